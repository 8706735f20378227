import { commandsOf } from './shell-text.ts'

/** A word of a command; null: one that nobody knows before it runs. */
export type Word = string | null

/** What a wrapper makes of its words. */
export type Unwrapped =
  /** Commands that it starts. `open`: words that nobody knows may follow. `moved`: somewhere else than here. */
  | {
      readonly kind: 'commands'
      readonly commands: readonly (readonly Word[])[]
      readonly open: boolean
      readonly path: string | null
      readonly moved: boolean
    }
  /** It starts nothing. */
  | { readonly kind: 'nothing' }
  /** What it starts cannot be told. */
  | { readonly kind: 'opaque'; readonly why: string }

const NOTHING: Unwrapped = { kind: 'nothing' }
const opaque = (why: string): Unwrapped => ({ kind: 'opaque', why })
const starts = (
  commands: readonly (readonly Word[])[],
  more: { open?: boolean; path?: string | null; moved?: boolean } = {},
): Unwrapped => ({
  kind: 'commands',
  commands,
  open: more.open ?? false,
  path: more.path ?? null,
  moved: more.moved ?? false,
})

/** How options of a wrapper are passed over; an option that is neither makes it opaque. */
interface Options {
  /** Has nothing behind it, or its value in the same word. */
  readonly alone: RegExp
  /** Its value is the next word. */
  readonly valued?: RegExp
  /** Words between the options and the command. */
  readonly skip?: number
}

const NONE = /^\b$/

const OPTIONS: Readonly<Record<string, Options>> = {
  timeout: {
    alone: /^(-[fpv]+|-[ks].+|--(preserve-status|foreground|verbose)|--(signal|kill-after)=.*)$/,
    valued: /^(-k|-s|--signal|--kill-after)$/,
    skip: 1,
  },
  nice: { alone: /^(-n.+|--?\d+|--adjustment=.*)$/, valued: /^(-n|--adjustment)$/ },
  nohup: { alone: NONE },
  setsid: { alone: /^(-[cfw]+|--ctty|--fork|--wait)$/ },
  stdbuf: { alone: /^(-[ioe].+|--(input|output|error)=.*)$/, valued: /^(-[ioe]|--(input|output|error))$/ },
  ionice: { alone: /^(-t|--ignore|-[cn].+|--class(data)?=.*)$/, valued: /^(-[cn]|--class|--classdata)$/ },
  time: { alone: /^(-[apqvV]+|--(portability|append|verbose|quiet))$/, valued: /^(-[fo]|--format|--output)$/ },
}

/** Behind its options: the index of the first word that is none, or why that cannot be told. */
const behindOptions = (words: readonly Word[], { alone, valued = NONE }: Options): number | null => {
  let at = 0
  for (; at < words.length; at++) {
    const word = words[at]
    if (word === null || word === undefined) return null
    if (word === '--') return at + 1
    if (!word.startsWith('-') || word === '-') return at
    if (alone.test(word)) continue
    if (!valued.test(word)) return null
    at += 1
  }
  return at
}

const byOptions = (name: string, words: readonly Word[], options: Options): Unwrapped => {
  const at = behindOptions(words, options)
  if (at === null) return opaque(`${name} has an option that is not known here`)
  const command = words.slice(at + (options.skip ?? 0))
  return command.length === 0 ? NOTHING : starts([command])
}

const ENV_ALONE =
  /^(-[iv0]+|-|-u.+|--ignore-environment|--null|--debug|--unset=.*|--(block|default|ignore)-signal(=.*)?|--list-signal-handling)$/
const ENV_VALUED = /^(-u|--unset)$/
const ENV_SPLIT = /^(?:-[iv0]*S|--split-string=)(.*)$/s
const ENV_MOVED = /^(-C.+|--chdir=.*)$/
/** Inside the text of `-S` these mean more than themselves. */
const ENV_QUOTING = /["'\\$#]/
const ASSIGNMENT = /^([^=]+)=(.*)$/s
/** Decide what code a program runs, or what a shell does before its text. */
export const isDangerous = (name: string): boolean => DANGEROUS.test(name)
const DANGEROUS =
  /^(LD_.*|DYLD_.*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|BASH_ENV|ENV|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|PS4|PROMPT_COMMAND|ZDOTDIR|NODE_(OPTIONS|PATH)|PYTHON.*|PERL.*|RUBY.*|GIT_.*|(_|JDK_)?JAVA_.*|CLASSPATH|LESS(OPEN|CLOSE)|IFS|PATH|HOME|XDG_CONFIG_.*|LUA_INIT.*|LUA_C?PATH.*|PHPRC|PHP_INI_SCAN_DIR|R_(PROFILE|ENVIRON).*|TCLLIBPATH|MAKEFLAGS|EDITOR|VISUAL|PAGER|SSH_ASKPASS|SHELL)$/

const env = (given: readonly Word[]): Unwrapped => {
  let words = [...given]
  let path: string | null = null
  let moved = false
  let optionsEnded = false
  for (let turns = 0; words.length > 0; turns++) {
    const [word, ...rest] = words
    if (word === null || word === undefined || turns > 1_024) return opaque('env gets a word that is not known before it runs')
    const attached = optionsEnded ? undefined : ENV_SPLIT.exec(word)?.[1]
    const isApart = !optionsEnded && (word === '--split-string' || (attached === '' && !word.startsWith('--')))
    const split = isApart ? (rest[0] ?? '') : attached
    if (split !== undefined) {
      if (ENV_QUOTING.test(split)) return opaque('env -S takes apart a text with quotes')
      words = [...split.split(/[ \t\n\v\f\r]+/).filter((one) => one !== ''), ...(isApart ? rest.slice(1) : rest)]
    } else if (!optionsEnded && word === '--') {
      optionsEnded = true
      words = rest
    } else if (!optionsEnded && word.startsWith('-')) {
      const isMoved = ENV_MOVED.test(word) || word === '-C' || word === '--chdir'
      if (isMoved) moved = true
      else if (!ENV_ALONE.test(word) && !ENV_VALUED.test(word)) return opaque('env has an option that is not known here')
      words = ENV_VALUED.test(word) || word === '-C' || word === '--chdir' ? rest.slice(1) : rest
    } else {
      const assigned = ASSIGNMENT.exec(word)
      if (assigned === null) return starts([words], { path, moved })
      const [, name = '', value = ''] = assigned
      if (name !== 'PATH' && isDangerous(name)) return opaque(`env sets ${name}, which decides what a program runs`)
      if (name === 'PATH') path = value
      optionsEnded = true
      words = rest
    }
  }
  return NOTHING
}

const XARGS: Options = {
  alone:
    /^(-[0rtxpo]+|-[ELnPsad].+|-[el].*|--(null|no-run-if-empty|verbose|exit|interactive|open-tty)|--(arg-file|delimiter|eof|max-lines|max-args|max-procs|max-chars|process-slot-var)=.*)$/,
  valued: /^(-[ELnPsad]|--(arg-file|delimiter|max-args|max-procs|max-chars))$/,
}

const xargs = (words: readonly Word[]): Unwrapped => {
  const at = behindOptions(words, XARGS)
  if (at === null) return opaque('xargs puts words that nobody knows where its options say')
  return at >= words.length ? NOTHING : starts([words.slice(at)], { open: true })
}

const FIND_STARTS = /^-(exec|execdir|ok|okdir)$/

const find = (words: readonly Word[]): Unwrapped => {
  const commands: Word[][] = []
  let open = false
  for (let at = 0; at < words.length; at++) {
    if (!FIND_STARTS.test(words[at] ?? '')) continue
    const end = words.findIndex((word, index) => index > at && (word === ';' || (word === '+' && words[index - 1] === '{}')))
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

/** Start another program in surroundings, as a user or on a host that is not followed here. */
const NOT_FOLLOWED =
  'chroot chrt taskset setarch flock watch script entr dbus-run-session unbuffer prlimit strace ltrace unshare nsenter proot fakeroot bwrap firejail start-stop-daemon systemd-run screen tmux ld.so sudo doas su runuser pkexec setpriv capsh run0 sg newgrp gosu su-exec ssh parallel run-parts socat expect at batch crontab docker podman'.split(
    ' ',
  )

/** What a program of this name starts; null: it is none that starts others by its words. */
export const unwrap = (name: string, words: readonly Word[]): Unwrapped | null => {
  if (Object.hasOwn(OPTIONS, name)) return byOptions(name, words, OPTIONS[name]!)
  switch (name) {
    case 'env':
      return env(words)
    case 'xargs':
      return xargs(words)
    case 'find':
    case 'gfind':
      return find(words)
    case 'busybox':
    case 'toybox':
    case 'coreutils':
      return applets(words)
  }
  return NOT_FOLLOWED.includes(name) ? opaque(`${name} starts another program, which is not followed`) : null
}

/** Names whose files are looked for under other names too. */
export const WRAPPER_NAMES: readonly string[] = [
  ...Object.keys(OPTIONS),
  'env',
  'xargs',
  'find',
  'busybox',
  'toybox',
  'coreutils',
  ...NOT_FOLLOWED,
]
