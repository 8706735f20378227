import { isHarmless } from '../environment.ts'
import { commandsOf } from './shell-text.ts'
import { WRAPPER_ROWS, wrapperRow, type WrapperRow } from './wrapper-table.ts'

/** A word of a command; null: one that nobody knows before it runs. */
export type Word = string | null

/** What a wrapper makes of its words. */
export type Unwrapped =
  /** Commands that it starts. `open`: words that nobody knows may follow. `moved`: somewhere else than here. `beside`: why something else may run. */
  | {
      readonly kind: 'commands'
      readonly commands: readonly (readonly Word[])[]
      readonly open: boolean
      readonly path: string | null
      readonly moved: boolean
      readonly beside: string | null
    }
  /** It starts nothing. */
  | { readonly kind: 'nothing' }
  /** What it starts cannot be told. */
  | { readonly kind: 'opaque'; readonly why: string }

const NOTHING: Unwrapped = { kind: 'nothing' }
const opaque = (why: string): Unwrapped => ({ kind: 'opaque', why })
const starts = (
  commands: readonly (readonly Word[])[],
  more: { open?: boolean; path?: string | null; moved?: boolean; beside?: string | null } = {},
): Unwrapped => ({
  kind: 'commands',
  commands,
  open: more.open ?? false,
  path: more.path ?? null,
  moved: more.moved ?? false,
  beside: more.beside ?? null,
})

/** A word that is an option; `-` alone and what is not known are none. */
const isOption = (word: Word | undefined): word is string => typeof word === 'string' && word.startsWith('-') && word !== '-'

const fits = (pattern: RegExp | undefined, word: string): boolean => pattern?.test(word) ?? false

/** A text for a shell, behind which no option may say otherwise. */
const onlyText = (name: string, words: readonly Word[]): Unwrapped =>
  words.slice(1).some((word) => word === null || isOption(word))
    ? opaque(`${name} has options behind its text, which may say another`)
    : shellText(words)

/** Options, then what `skip` says, then what is started. */
const byRow = (name: string, words: readonly Word[], row: WrapperRow): Unwrapped => {
  if (row.behind === 'own') return ownWords(name, words, row)
  let at = 0
  for (; isOption(words[at]); at++) {
    const word = words[at] as string
    if (word === '--') break
    if (row.skip === undefined && fits(row.text, word)) return onlyText(name, words.slice(at + 1))
    if (fits(row.valued, word)) at += 1
    else if (!fits(row.plain, word)) return opaque(`${name} has an option that is not known here`)
  }
  if (row.behind === 'unknown') return opaque(`${name} starts another program, which is not followed`)
  if (words[at] === '--') at += 1
  for (const shape of row.skip ?? []) {
    const word = words[at]
    if (word === undefined) return NOTHING
    if (word === null || !shape.test(word)) return opaque(`${name} has a word that is not known here`)
    at += 1
  }
  const command = words.slice(at)
  const [first] = command
  if (first === undefined) return NOTHING
  if (row.skip !== undefined && isOption(first))
    return fits(row.text, first) ? onlyText(name, command.slice(1)) : opaque(`${name} has an option that is not known here`)
  if (row.behind === 'command') return starts([command], { open: row.open === true })
  return command.includes(null) ? opaque(`${name} gives a shell words that nobody knows before it runs`) : shellText([command.join(' ')])
}

/** A program with words of its own: it starts nothing where each of them is understood. */
const ownWords = (name: string, words: readonly Word[], row: WrapperRow): Unwrapped => {
  const why = opaque(`${name} can start other programs, and not all of its words are known here`)
  let first: string | undefined
  let hasScript = false
  // Behind `--` words are read as before it: it may be the value of an option.
  for (let at = 0; at < words.length; at++) {
    const word = words[at]
    if (word === null || word === undefined || fits(row.starts, word)) return why
    const known = row.subcommands?.get(word)
    if (known !== undefined) return words.slice(at + 1).some((one) => one === null || known.test(one)) ? why : NOTHING
    if (!isOption(word)) {
      if (row.subcommands !== undefined) return why
      first ??= word
    } else if (word === '--') continue
    else if (fits(row.script?.option, word)) {
      hasScript = true
      at += 1
      if (!fits(row.script?.plain, words[at] ?? '')) return why
    } else if (fits(row.valued, word)) {
      at += 1
      const value = words[at]
      if (value === null || (value !== undefined && fits(row.starts, value))) return why
    } else if (!fits(row.plain, word)) return why
  }
  return row.script === undefined || hasScript || first === undefined || row.script.plain.test(first) ? NOTHING : why
}

const ENV_ALONE =
  /^(-[iv0]+|-|-u.+|--ignore-environment|--null|--debug|--unset=.*|--(block|default|ignore)-signal(=.*)?|--list-signal-handling)$/
const ENV_VALUED = /^(-u|--unset)$/
const ENV_SPLIT = /^(?:-[iv0]*S|--split-string=)(.*)$/s
const ENV_MOVED = /^(-C.+|--chdir=.*)$/
/** Of a name that a sentence says. */
const MAX_SHOWN = 64
/** Texts of `-S` within one another. */
const MAX_SPLITS = 16
/** Inside the text of `-S` these mean more than themselves. */
const ENV_QUOTING = /["'\\$#]/
const ASSIGNMENT = /^([^=]+)=(.*)$/s
const env = (given: readonly Word[]): Unwrapped => {
  let words = given
  let at = 0
  let path: string | null = null
  let beside: string | null = null
  let moved = false
  let optionsEnded = false
  for (let splits = 0; at < words.length;) {
    const word = words[at]
    if (word === null || word === undefined || splits > MAX_SPLITS) return opaque('env gets a word that is not known before it runs')
    const attached = optionsEnded ? undefined : ENV_SPLIT.exec(word)?.[1]
    const isApart = !optionsEnded && (word === '--split-string' || (attached === '' && !word.startsWith('--')))
    const split = isApart ? (words[at + 1] ?? '') : attached
    if (split !== undefined) {
      if (ENV_QUOTING.test(split)) return opaque('env -S takes apart a text with quotes')
      words = [...split.split(/[ \t\n\v\f\r]+/).filter((one) => one !== ''), ...words.slice(at + (isApart ? 2 : 1))]
      at = 0
      splits += 1
    } else if (!optionsEnded && word === '--') {
      optionsEnded = true
      at += 1
    } else if (!optionsEnded && word.startsWith('-')) {
      const isMoved = ENV_MOVED.test(word) || word === '-C' || word === '--chdir'
      if (isMoved) moved = true
      else if (!ENV_ALONE.test(word) && !ENV_VALUED.test(word)) return opaque('env has an option that is not known here')
      at += ENV_VALUED.test(word) || word === '-C' || word === '--chdir' ? 2 : 1
    } else {
      const assigned = ASSIGNMENT.exec(word)
      if (assigned === null) return starts([words.slice(at)], { path, moved, beside })
      const [, name = '', value = ''] = assigned
      if (name === 'PATH') path = value
      if (!isHarmless(name)) beside ??= `env sets ${name.slice(0, MAX_SHOWN)}, which may decide what a program runs`
      optionsEnded = true
      at += 1
    }
  }
  return NOTHING
}

const FIND_STARTS = /^-(exec|execdir|ok|okdir)$/
/** Writes what its words say to any file, or takes from one where it begins. */
const FIND_WRITES = /^-(fprint|fprint0|fprintf|fls|files0-from)$/

const find = (words: readonly Word[]): Unwrapped => {
  if (words.some((word) => FIND_WRITES.test(word ?? ''))) return opaque('find writes files that its words name')
  const commands: Word[][] = []
  let open = false
  for (let at = 0; at < words.length; at++) {
    if (!FIND_STARTS.test(words[at] ?? '')) continue
    const mayJoin = words[at] === '-exec' || words[at] === '-execdir'
    const end = words.findIndex((word, index) => index > at && (word === ';' || (mayJoin && word === '+' && words[index - 1] === '{}')))
    const command = words.slice(at + 1, end === -1 ? words.length : end).map((word) => (word?.includes('{}') === true ? null : word))
    if (words[end] === '+') open = true
    commands.push(command)
    at = end === -1 ? words.length : end
  }
  return commands.length === 0 ? NOTHING : starts(commands, { open, moved: words.some((word) => word === '-execdir' || word === '-okdir') })
}

const applets = (words: readonly Word[]): Unwrapped => {
  const [applet] = words
  if (applet === undefined) return NOTHING
  if (applet === null) return opaque('which of its programs runs is not known')
  const named = /^--coreutils-prog(?:-shebang)?=(.*)$/.exec(applet)?.[1]
  if (named !== undefined) return starts([[named, ...words.slice(1)]])
  return applet.startsWith('-') ? NOTHING : starts([words])
}

/** The commands of `sh -c TEXT`; `words`: from the text on. */
export const shellText = (words: readonly Word[]): Unwrapped => {
  const [text] = words
  const commands = typeof text === 'string' ? commandsOf(text) : null
  if (commands === null) return opaque('a shell is given a text that is more than plain commands')
  return commands.length === 0
    ? NOTHING
    : starts(commands, { moved: commands.length > 1 && commands.some(([name]) => name === 'cd' || name === 'pushd' || name === 'popd') })
}

/** Those whose words are more than a row can say. */
const OWN_READERS: Readonly<Record<string, (words: readonly Word[]) => Unwrapped>> = {
  env,
  genv: env,
  find,
  gfind: find,
  busybox: applets,
  toybox: applets,
  coreutils: applets,
}

/** What a program of this name starts; null: it is none that starts others by its words. */
export const unwrap = (name: string, words: readonly Word[]): Unwrapped | null => {
  if (Object.hasOwn(OWN_READERS, name)) return OWN_READERS[name]!(words)
  const row = wrapperRow(name)
  if (row !== null) return byRow(name, words, row)
  // Each command of git stands beside it by a name of its own.
  const [, command] = /^git-(.+)$/s.exec(name) ?? []
  return command === undefined ? null : unwrap('git', [command, ...words])
}

/** Names whose files are looked for under other names too. */
export const WRAPPER_NAMES: readonly string[] = [...Object.keys(OWN_READERS), ...WRAPPER_ROWS.flatMap(({ names }) => names)]
