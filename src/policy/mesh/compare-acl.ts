import { pairKey } from '../../protocol/ids.ts'
import {
  type Acl,
  type AllowEntry,
  type AllowedCommand,
  type AskPattern,
  type EntryAsking,
  type RunLimits,
  isStdinOpen,
  outlivesLonger,
} from './acl.ts'
import { fewerApprovers, filesBeyond } from './compare-files.ts'
import { type Confinement, umaskOf } from './confinement.ts'
import { ruleOf } from './file-grants.ts'
import { type MatchedCommand, coversAll, overlap } from './match.ts'
import { type WiderRight, allows, differs, lackedBy, moreOf, restricts } from './wider-right.ts'

/** A permission that one ACL has and another lacks. */
export interface Beyond {
  /** Null if it concerns the whole file. */
  readonly agent_id: string | null
  readonly machine_id: string | null
  /** The argv in the file, the rule of a files table, or null if it concerns neither. */
  readonly argv: readonly string[] | null
  /** Line number of the permission, from 1, or null if it concerns the whole file. */
  readonly line: number | null
  /** The difference, in words about the newer ACL. */
  readonly why: string
}

interface Found extends Omit<Beyond, 'why'> {
  readonly rights: readonly WiderRight[]
}

/** Difference between two ACLs. `narrows` means that each run which the new ACL allows is proven to be allowed by the old one. */
export interface AclComparison {
  readonly verdict: 'equal' | 'narrows' | 'widens'
  readonly more: readonly Beyond[]
  readonly less: readonly Beyond[]
}

/** Compares by structure. A permission that is not proven to be in the old ACL counts as wider. */
export const compareAcl = (old: Acl, next: Acl): AclComparison => {
  const more = inWords(beyond(old, next), 'gained')
  const less = inWords(beyond(next, old), 'lost')
  return { verdict: more.length > 0 ? 'widens' : less.length > 0 ? 'narrows' : 'equal', more, less }
}

/** Several commands of an entry may differ in the same right, which is named once. */
const inWords = (found: readonly Found[], as: keyof WiderRight): Beyond[] =>
  found.map(({ rights, ...one }) => ({ ...one, why: [...new Set(rights.map((right) => right[as]))].join('; ') }))

/** Permissions of `next` that `old` may lack. Sound but incomplete: each command must be covered by one command of the same pair. */
const beyond = (old: Acl, next: Acl): Found[] => {
  const found = wholeFile(old, next)
  const pairs = Map.groupBy(old.allow, pairKey)
  const listed = Map.groupBy(old.enabled ? placesOf(old.allow) : [], shapeOf)
  const earlier = new Map<string, AllowedCommand[]>()
  for (const entry of next.allow) {
    const before = pairs.get(pairKey(entry)) ?? []
    // This counts even if exec is disabled: a pair in the ACL is not an unlisted peer and has its own rate limits.
    if (before.length === 0) found.push(of(entry, null, [NO_ENTRY]))
    if (!next.enabled) continue
    for (const place of placesOf([entry])) {
      const shape = shapeOf(place)
      const own = earlier.get(shape) ?? []
      earlier.set(shape, own)
      found.push(...commandBeyond(listed.get(shape) ?? [], place, own))
      own.push(place.command)
    }
    if (entry.asking.ask === 'off') continue
    for (const pattern of entry.asking.patterns) found.push(...patternBeyond(old.enabled ? before : [], entry, pattern))
  }
  return next.enabled ? [...found, ...filesOfPairs(old.enabled ? pairs : new Map<string, AllowEntry[]>(), next)] : found
}

const filesOfPairs = (old: ReadonlyMap<string, readonly AllowEntry[]>, { allow }: Acl): Found[] =>
  [...Map.groupBy(allow, pairKey)].flatMap(([pair, entries]) =>
    filesBeyond(old.get(pair) ?? [], entries).map(({ entry: { agent_id, machine_id }, grant, right, wider }) => ({
      agent_id,
      machine_id,
      argv: ruleOf(grant, right),
      line: grant.line,
      rights: wider,
    })),
  )

const placesOf = (entries: readonly AllowEntry[]): MatchedCommand[] =>
  entries.flatMap((entry) => entry.commands.map((command) => ({ entry, command })))

/** Only commands of the same pair, program and length can match the same argv. */
const shapeOf = ({ entry, command: { argv } }: MatchedCommand): string => JSON.stringify([pairKey(entry), argv[0], argv.length])

const of = ({ agent_id, machine_id, line }: AllowEntry, command: AllowedCommand | null, rights: readonly WiderRight[]): Found => ({
  agent_id,
  machine_id,
  argv: command?.argv ?? null,
  line: command?.line ?? line,
  rights,
})

const NO_ENTRY = lackedBy('no entry of', ' is for this agent on this machine')
const NO_COMMAND = lackedBy('no single command of', ' has all of this')
const NO_PATTERN = lackedBy('no entry of', ' asks for approval of this')

const FILE_KEYS = ['audit_log_path', 'default_cwd', 'audit_tasklist_id'] as const
const FILE_CAPS = ['max_concurrent_per_agent', 'max_concurrent_total'] as const

const wholeFile = (old: Acl, next: Acl): Found[] => {
  const rights = [
    ...(next.enabled && !old.enabled ? [allows('enabled')] : []),
    ...FILE_KEYS.filter((key) => old[key] !== next[key]).map((key) => differs(`${key} is another`)),
    ...FILE_CAPS.filter((key) => next.caps[key] > old.caps[key]).map((key) => moreOf(key, next.caps[key], old.caps[key])),
    ...old.always_ask
      .filter((rule) => !next.always_ask.some((one) => samePattern(one, rule)))
      .map(({ argv }) => JSON.stringify(argv))
      .map((argv) => ({ gained: `always_ask lacks ${argv}`, lost: `always_ask has ${argv}, and had not` })),
  ]
  return rights.map((right) => ({ agent_id: null, machine_id: null, argv: null, line: null, rights: [right] }))
}

/**
 * In the old ACL, an earlier command of the pair may have matched a part of the argv, with its own limits. The rights must therefore be
 * within those of each old command that may match first, up to the one that matches all. Argv that `earlier` commands of the new ACL match
 * are theirs.
 */
const commandBeyond = (before: readonly MatchedCommand[], place: MatchedCommand, earlier: readonly AllowedCommand[]): Found[] => {
  const { entry, command } = place
  const isTheirs = ({ tokens }: AllowedCommand): boolean => earlier.some((one) => coversAll(one.tokens, tokens))
  if (isTheirs(command)) return []
  for (const old of before) {
    if (!overlap(old.command.tokens, command.tokens) || isTheirs(old.command)) continue
    const wider = widerRights(old, place, asksLess(old.entry.asking, entry.asking, commandAsks))
    if (wider.length > 0) return [of(entry, command, wider)]
    if (coversAll(old.command.tokens, command.tokens)) return []
  }
  return [of(entry, command, [NO_COMMAND])]
}

/**
 * A pattern applies only if no command matches. The old ACL must have it, with rights that do not exceed those of any entry of the pair.
 */
const patternBeyond = (before: readonly AllowEntry[], entry: AllowEntry, pattern: AskPattern): Found[] => {
  const old = before.find(({ asking }) => asking.ask !== 'off' && asking.patterns.some((one) => samePattern(one, pattern)))
  if (old === undefined) return [of(entry, pattern, [NO_PATTERN])]
  const wider = before.flatMap((one) =>
    [...one.commands, ...one.asking.patterns].flatMap((command) =>
      widerRights({ entry: one, command }, { entry, command: pattern }, asksLess(one.asking, entry.asking, patternAsks)),
    ),
  )
  return wider.length === 0 ? [] : [of(entry, pattern, wider)]
}

const samePattern = (one: Pick<AskPattern, 'argv' | 'anyArguments'>, other: Pick<AskPattern, 'argv' | 'anyArguments'>): boolean =>
  one.anyArguments === other.anyArguments && JSON.stringify(one.argv) === JSON.stringify(other.argv)

const CAP_KEYS = [
  'max_stdout_bytes',
  'max_stderr_bytes',
  'max_stdin_bytes',
  'max_duration_secs',
] as const satisfies readonly (keyof RunLimits)[]

/** Rights of a run that grew. Warning thresholds grant nothing. */
const widerRights = (old: MatchedCommand, next: MatchedCommand, asking: readonly WiderRight[]): WiderRight[] => [
  ...CAP_KEYS.filter((key) => next.entry.limits[key] > old.entry.limits[key]).map((key) =>
    moreOf(key, next.entry.limits[key], old.entry.limits[key]),
  ),
  ...(isStdinOpen(next.entry, next.command) && !isStdinOpen(old.entry, old.command) ? [allows('stdin', 'open')] : []),
  ...(next.command.terminal && !old.command.terminal ? [allows('terminal')] : []),
  ...(['record', 'watch'] as const).filter((key) => old.command[key] && !next.command[key]).map((key) => restricts(key)),
  ...(next.entry.discoverable && !old.entry.discoverable ? [allows('discoverable')] : []),
  ...looser(old.entry.confinement, next.entry.confinement),
  ...outlivesLonger(old.entry.detaching, next.entry.detaching),
  ...asking,
]

const looser = (old: Confinement, next: Confinement): WiderRight[] => [
  ...(old.contain === 'required' && next.contain !== 'required' ? [restricts('contain', '"required"')] : []),
  ...(['max_memory_bytes', 'max_processes', 'max_cpu_secs'] as const)
    .filter((key) => (next[key] ?? Infinity) > (old[key] ?? Infinity))
    .map((key) => moreOf(key, next[key] ?? 'not set', old[key] ?? 'not set')),
  ...((next.nice ?? 0) < (old.nice ?? 0) ? [moreOf('nice', next.nice ?? 0, old.nice ?? 0)] : []),
  ...(next.run_as === old.run_as ? [] : [differs('run_as is another')]),
  ...((umaskOf(old) & ~umaskOf(next)) === 0 ? [] : [moreOf('umask', next.umask ?? 'not set', old.umask ?? 'not set')]),
  ...(['no_network', 'read_only'] as const).filter((key) => old[key] && !next[key]).map((key) => restricts(key)),
]

/** How often a local approver decides, as a number for comparison. */
type Asks = (ask: EntryAsking['ask']) => number
/** For a listed command, approval is needed only with `ask = "always"`. */
const commandAsks: Asks = (ask) => (ask === 'always' ? 1 : 0)
/** For a pattern, approval is needed in any case; with `always`, for each run. */
const patternAsks: Asks = (ask) => (ask === 'always' ? 2 : 1)

const FEWER_ASKED: WiderRight = { gained: 'fewer requests need approval', lost: 'more requests need approval' }

const asksLess = (old: EntryAsking, next: EntryAsking, asks: Asks): WiderRight[] => [
  ...(asks(next.ask) < asks(old.ask) ? [FEWER_ASKED] : []),
  ...fewerApprovers(old, next),
]
