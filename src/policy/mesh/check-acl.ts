import { statSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { errorText } from '../../base/errors.ts'
import { writableByOthers } from '../../base/file-permissions.ts'
import { isVisible } from '../../base/visible-text.ts'
import { pairKey } from '../../protocol/ids.ts'
import { interpreterName, mayRunOthers, opaqueNote } from '../escapes.ts'
import { isWithin } from '../sandbox/autostart-places.ts'
import { pathsIn, scriptOf } from '../scripts.ts'
import { quote, quoteArgv } from '../tokens.ts'
import { type Acl, type AllowEntry, type AllowedCommand, isStdinOpen } from './acl.ts'
import type { AclSignature } from './acl-bundle.ts'
import { type AskingCounts, countAsking, lintAsking } from './asking-rules.ts'
import { CONFINEMENT_KEYS, type EnforcementProbe, UNCONFINED } from './confinement.ts'
import { type FileGrant, hasRight } from './file-grants.ts'
import { type InspectAclOptions, inspectAcl } from './load-acl.ts'
import { coversAll } from './match.ts'

/** Result of `acl check`, as `--json` prints it. */
export interface AclCheck {
  /** True if the daemon would start with this file, with or without warnings. */
  readonly ok: boolean
  readonly problems: readonly string[]
  /** Commands that cannot run, or that allow more than they say. */
  readonly warnings: readonly string[]
  /** Null if the file is not signed. */
  readonly signature: AclSignature | null
  readonly summary: AskingCounts & {
    readonly enabled: boolean
    readonly allow_entry_count: number
    readonly command_entry_count: number
    /** Number of `[[exec.allow.files]]` tables. */
    readonly files_entry_count: number
  }
}

/**
 * Checks a file like the daemon at start, and its commands from an attacker's view. A missing file is a problem. A restriction that this
 * user cannot enforce is a warning, because the daemon may run as another user.
 */
export const checkAclFile = async (
  path: string,
  judge: EnforcementProbe | null = null,
  { dataDir = null, signing = null }: Omit<InspectAclOptions, 'pipes'> = {},
): Promise<AclCheck> => {
  const { acl, problems: all, warnings, unenforceable, signature } = await inspectAcl(path, judge, { pipes: true, dataDir, signing })
  const problems = all.filter((problem) => !unenforceable.includes(problem))
  const beyond = unenforceable.map((text) => `${text} (as this user; a daemon that cannot either would not start)`)
  return {
    ok: problems.length === 0,
    problems,
    warnings: [...warnings, ...beyond, ...(acl ? lint(acl) : [])],
    signature,
    summary: {
      enabled: acl?.enabled ?? false,
      allow_entry_count: acl?.allow.length ?? 0,
      command_entry_count: acl?.allow.reduce((sum, entry) => sum + entry.commands.length, 0) ?? 0,
      files_entry_count: acl?.allow.reduce((sum, entry) => sum + entry.files.length, 0) ?? 0,
      ...countAsking(acl),
    },
  }
}

const lint = (acl: Acl): string[] => {
  const warnings = lintDirectory(acl)
  const earlier = new Map<string, AllowedCommand[]>()
  for (const [entryIndex, entry] of acl.allow.entries()) {
    if (entry.discoverable && entry.described === null)
      warnings.push(`${acl.source ?? ''}:${entry.line}: exec.allow[${entryIndex}].description: ${UNDESCRIBED}`)
    for (const [commandIndex, command] of entry.commands.entries()) {
      const place = `${acl.source ?? ''}:${command.line}: exec.allow[${entryIndex}].commands[${commandIndex}].argv: `
      for (const text of [...lintUnreached(entry, command, earlier), ...lintCommand(entry, command)]) warnings.push(place + text)
    }
    for (const [index, pattern] of entry.asking.patterns.entries()) {
      const place = `${acl.source ?? ''}:${pattern.line}: exec.allow[${entryIndex}].ask_patterns[${index}].argv: `
      for (const text of lintWords(pattern)) warnings.push(place + text)
    }
  }
  return [...warnings, ...lintFiles(acl), ...lintAsking(acl)]
}

const UNDESCRIBED = 'is missing, and the entry is discoverable: requesters see the commands without a description'

const lintDirectory = ({ default_cwd, source, allow }: Acl): string[] => {
  const place = `${source ?? ''}: exec.default_cwd: `
  if (default_cwd === null)
    return allow.length === 0
      ? []
      : [`${place}is not set: programs start where x0xd was started, wherever that was; "/" is the same for all`]
  try {
    if (!statSync(default_cwd).isDirectory()) return [`${place}${quote(default_cwd)} is not a directory: no program can start in it`]
    return writableByOthers(default_cwd).map((problem) => `${place}${problem}; programs may read settings from their working directory`)
  } catch (error) {
    return [`${place}no program can start in it: ${errorText(error)}`]
  }
}

/** The first matching command applies, so a command covered by an earlier one is never reached. */
const lintUnreached = (entry: AllowEntry, command: AllowedCommand, earlier: Map<string, AllowedCommand[]>): string[] => {
  const key = JSON.stringify([entry.agent_id, entry.machine_id, command.argv[0], command.argv.length])
  const before = earlier.get(key) ?? []
  earlier.set(key, before)
  const first = before.find((other) => coversAll(other.tokens, command.tokens))
  before.push(command)
  if (first === undefined || entry.agent_id === '' || entry.machine_id === '') return []
  const [same, next] = coversAll(command.tokens, first.tokens)
    ? ['the same', 'remove one of the two']
    : ['this and more', 'remove this one, or move it before that line']
  return [
    `has no effect: line ${first.line} allows ${same} to the same agent and machine, with the limits, confinement and approval settings of its own entry; ${next}`,
  ]
}

const lintCommand = (entry: AllowEntry, command: AllowedCommand): string[] => {
  const [program] = command.argv
  const note = program === undefined ? null : opaqueNote(program, isStdinOpen(entry, command))
  return [...(note === null ? [] : [`${quoteArgv(command.argv)}: ${note}`]), ...lintTerminal(command), ...lintWords(command)]
}

/** Many programs start a shell or an editor when their user types so. */
const lintTerminal = ({ argv, terminal, record }: AllowedCommand): string[] =>
  terminal && mayRunOthers(argv[0] ?? '')
    ? [
        `${quoteArgv(argv)}: with terminal = true it is as good as a shell for the requester${record ? '' : '; record = true keeps what it shows'}`,
      ]
    : []

/** Warnings about the tokens of a command, with or without approval. */
const lintWords = (command: AllowedCommand): string[] => [...lintInvisible(command), ...lintScript(command), ...lintSlots(command)]

/** Tokens are compared byte for byte, so one with invisible characters allows something other than the reader sees. */
const lintInvisible = ({ tokens }: AllowedCommand): string[] =>
  tokens
    .flatMap((token) => (token.kind === 'literal' ? [token.text] : 'prefix' in token ? [token.prefix] : []))
    .filter((text) => !isVisible(text))
    .map((text) => `${quote(text)} has invisible characters: it does not allow what it seems to`)

/** A script of an interpreter is as powerful as a program, but only argv[0] is checked at each run. */
const lintScript = ({ argv, tokens }: AllowedCommand): string[] => {
  const interpreter = interpreterName(argv[0] ?? '')
  const given = interpreter === null ? null : scriptOf(interpreter, argv.slice(1))
  if (given === null || !('word' in given)) return []
  const words = tokens.slice(1).flatMap((token) => (token.kind === 'literal' ? [token.text] : []))
  const meant = words.some((word) => word === given.word || word.endsWith(`=${given.word}`)) ? [given.word] : []
  // After an unknown option, each path may be the script.
  const perhaps = given.kind === 'unsure' ? pathsIn(words) : []
  return [...new Set([...meant, ...perhaps])].flatMap(lintGiven)
}

const lintGiven = (word: string): string[] =>
  isAbsolute(word) ? writableByOthers(word) : [`${quote(word)} is looked up where the program starts; give an absolute path`]

const lintSlots = ({ tokens }: AllowedCommand): string[] =>
  tokens.flatMap((token) => (token.kind === 'url_path' ? lintSlot(token.prefix) : []))

/** A URL up to its host, `https://`, but also `https:` and other forms that a program may accept. */
const SCHEME_ALONE = /[A-Za-z][A-Za-z0-9+.-]*:\/*$/

const lintSlot = (prefix: string): string[] => {
  if (SCHEME_ALONE.test(prefix))
    return ['<URL_PATH> lets the caller name the host: programs skip slashes to find one; write it into the rule']
  if (prefix.endsWith('/'))
    return [
      `<URL_PATH> begins with a slash, so this only matches ${quote(`${prefix}/`)} with two slashes; remove the last slash of the rule`,
    ]
  if (prefix.includes('://')) return []
  const where = prefix === '' ? 'any absolute path of this host' : `any path that begins with ${quote(`${prefix}/`)}`
  return [`<URL_PATH> lets the caller name ${where}; links are followed`]
}

/** Reports files tables that have no effect, or that allow something other than they seem to, each with file, line and key. */
const lintFiles = (acl: Acl): string[] => {
  const earlier = new Map<string, FileGrant[]>()
  return acl.allow.flatMap((entry, entryIndex) => {
    const key = pairKey(entry)
    const before = earlier.get(key) ?? []
    earlier.set(key, before)
    return entry.files.flatMap((grant, index) => {
      const place = `${acl.source ?? ''}:${grant.line}: exec.allow[${entryIndex}].files[${index}]: `
      const found = [...lintFilesEntry(entry, index), ...lintUnreachedFiles(before, grant)]
      before.push(grant)
      return found.map((text) => place + text)
    })
  })
}

/** Confinement restricts processes. A file command is not a process. */
const lintFilesEntry = ({ confinement }: AllowEntry, index: number): string[] => {
  const keys = CONFINEMENT_KEYS.filter((key) => key !== 'contain' && confinement[key] !== UNCONFINED[key])
  return index > 0 || keys.length === 0
    ? []
    : [`${keys.join(', ')} of the entry does not apply to files: x0xd reads and writes them itself; "owner" names the owner of new files`]
}

/** The first table whose root contains the path and that has the right applies. */
const lintUnreachedFiles = (earlier: readonly FileGrant[], grant: FileGrant): string[] =>
  (['read', 'write'] as const).flatMap((right) => {
    const first = hasRight(grant, right) ? earlier.find((one) => hasRight(one, right) && isWithin(grant.root, one.root)) : undefined
    return first === undefined
      ? []
      : [`${right} = true has no effect: line ${first.line} already allows it below ${quote(first.root)}; put the smaller root first`]
  })
