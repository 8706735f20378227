import { statSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, systemClock } from '../../base/clock.ts'
import { AppError, attempt, errorText, isAppError } from '../../base/errors.ts'
import { journalPlaceProblems, writableByOthers } from '../../base/file-permissions.ts'
import { absolutePath } from '../../base/home.ts'
import { type TomlDocument, readToml, tomlError } from '../../base/toml.ts'
import { findExecutable } from '../executable.ts'
import { type Acl, type AllowEntry, type AllowedCommand, closedAcl } from './acl.ts'
import { type AclComparison, compareAcl } from './compare-acl.ts'
import { CONFINEMENT_KEYS, type EnforcementProbe, UNCONFINED } from './confinement.ts'
import { readAcl } from './read-acl.ts'

export type AclStatus = 'enabled' | 'exec_disabled' | 'acl_missing' | 'missing_exec_section'

/** The ACL of this daemon. What takes its place without a restart only narrows it. */
export interface LoadedAcl {
  readonly acl: Acl
  readonly status: AclStatus
  /** The file that was read, or looked for where `status` is `acl_missing`. */
  readonly loaded_from: string
  /** SHA-256 of the file as it was read, hex; null where there was none. */
  readonly sha256: string | null
  /** What was read; null where there was none. */
  readonly bytes: Uint8Array | null
  /** ISO 8601. */
  readonly loaded_at: string
  /** What will not work as written, each `file:line: key: what`. */
  readonly warnings: readonly string[]
}

export interface LoadAclInit {
  readonly path: string
  /** The operator named the path, so that its absence is a mistake and not a choice. */
  readonly explicit: boolean
  /** Whether this host can enforce what the entries ask for; without it nobody looks. */
  readonly judge?: EnforcementProbe
}

/** All that is right and wrong with an ACL file, found in one pass. */
export interface AclInspection {
  readonly path: string
  /** Null where the file is missing, is not TOML, or has no `[exec]`. */
  readonly acl: Acl | null
  readonly missing: boolean
  /** SHA-256 of the file, hex; null where it is missing or no TOML. */
  readonly sha256: string | null
  /** The file, where it is TOML. */
  readonly bytes: Uint8Array | null
  /** Any of these keeps the daemon from starting. */
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
  /** Of the problems, those of this user: what this host cannot enforce, and a journal's directory that is another's. */
  readonly unenforceable: readonly string[]
}

const NOTHING = { acl: null, missing: false, sha256: null, bytes: null, warnings: [], unenforceable: [] } as const

/** Reads a file and everything about it: who may write it, its syntax, its meaning, the programs it names. `pipes`: as for `readToml`. */
export const inspectAcl = async (
  file: string,
  judge: EnforcementProbe | null = null,
  { pipes = false }: { readonly pipes?: boolean } = {},
): Promise<AclInspection> => {
  const path = absolutePath('the ACL', file)
  const problems = writableByOthers(path)
  let document: Awaited<ReturnType<typeof readToml>>
  try {
    document = await readToml(path, 'bad_acl', { bigints: true, pipes })
  } catch (error) {
    if (isAppError(error, 'not_found')) return { ...NOTHING, path, missing: true, problems: [`${path}: there is no such file`] }
    return { ...NOTHING, path, problems: [...problems, errorText(error)] }
  }
  const reading = readAcl(document)
  const programs = judgePrograms(document, reading.acl)
  const place = judgeJournal(document, reading.acl)
  const ofAnyOwner = judgeJournal(document, reading.acl, ownerOf(reading.acl?.audit_log_path ?? null))
  const beyond = reading.acl === null || judge === null ? [] : await unenforceable(document, reading.acl, judge)
  return {
    path,
    acl: reading.acl,
    missing: false,
    sha256: document.sha256,
    bytes: document.bytes,
    problems: [...problems, ...reading.problems, ...place, ...programs.problems, ...beyond],
    warnings: [...reading.warnings, ...programs.warnings],
    unenforceable: [...beyond, ...place.filter((problem) => isHidden(problem) || !ofAnyOwner.includes(problem))],
  }
}

/**
 * The ACL that the daemon enforces. A missing file at the default path disables exec; a missing
 * explicit one, or anything wrong with a file, is `bad_acl` with every problem on a line of its own.
 */
export const loadAcl = async (init: LoadAclInit, clock: Pick<Clock, 'now'> = systemClock): Promise<LoadedAcl> => {
  const { path, acl, missing, sha256, bytes, problems, warnings } = await inspectAcl(init.path, init.judge)
  const read = { loaded_from: path, sha256, bytes, loaded_at: new Date(clock.now()).toISOString() }
  if (missing && !init.explicit) return { ...read, acl: closedAcl(null), status: 'acl_missing', warnings: [] }
  if (problems.length > 0) throw new AppError('bad_acl', problems.join('\n'), { data: { file: path, problems } })
  if (!acl) return { ...read, acl: closedAcl(path), status: 'missing_exec_section', warnings }
  return { ...read, acl, status: acl.enabled ? 'enabled' : 'exec_disabled', warnings: [...warnings, ...ownDirectoryWarnings(acl)] }
}

/** Without `default_cwd` programs start in the daemon's own directory, which the file does not show. */
const ownDirectoryWarnings = ({ enabled, default_cwd, source }: Acl): string[] => {
  if (!enabled || default_cwd !== null) return []
  const place = `${source ?? ''}: exec.default_cwd: is not set, so programs start where this daemon was started, and may read settings from there: `
  const directory = attempt(() => process.cwd())
  return directory === null ? [] : writableByOthers(directory).map((problem) => place + problem)
}

/** Who owns the directory of a file; undefined where it cannot be looked at. */
const ownerOf = (path: string | null): number | undefined =>
  path === null ? undefined : (attempt(() => statSync(dirname(path)).uid) ?? undefined)

/** It is this user who may not look there; the daemon's user may. */
const isHidden = (problem: string): boolean => problem.includes('EACCES: ')

/** A journal that others can take away is no evidence. What is not there yet is made, for us alone. */
const judgeJournal = (document: TomlDocument, acl: Acl | null, owner?: number): string[] => {
  if (acl === null || acl.audit_log_path === null) return []
  const asProblem = (text: string): string => tomlError('bad_acl', document, ['exec', 'audit_log_path'], text).message
  return journalPlaceProblems(acl.audit_log_path, owner).map(asProblem)
}

/** Keys of entries that this host cannot enforce, without which their runs may not begin: each `file:line: key: why`. */
const unenforceable = async (document: TomlDocument, acl: Acl, judge: EnforcementProbe): Promise<string[]> => {
  const problems: string[] = []
  for (const [index, { confinement, description }] of acl.allow.entries()) {
    if (CONFINEMENT_KEYS.every((key) => confinement[key] === UNCONFINED[key])) continue
    for (const { key, why } of await judge(confinement)) {
      const text = `cannot be enforced on this host for ${JSON.stringify(description)}: ${why}`
      problems.push(tomlError('bad_acl', document, ['exec', 'allow', index, key], text).message)
    }
  }
  return problems
}

/** Every command of an entry, and what a human may allow of it, by its place in the file. */
const programsOf = ({ commands, asking }: AllowEntry): (readonly ['commands' | 'ask_patterns', number, AllowedCommand])[] => [
  ...commands.map((command, index) => ['commands', index, command] as const),
  ...asking.patterns.map((pattern, index) => ['ask_patterns', index, pattern] as const),
]

/** Each program once: one that is not there is a warning, one that others could replace is a problem. */
const judgePrograms = (document: TomlDocument, acl: Acl | null): { problems: string[]; warnings: string[] } => {
  const problems: string[] = []
  const warnings: string[] = []
  const seen = new Set<string>()
  for (const [entryIndex, entry] of (acl?.allow ?? []).entries())
    for (const [key, commandIndex, command] of programsOf(entry)) {
      const token = command.tokens[0]
      if (token?.kind !== 'literal' || seen.has(token.text)) continue
      seen.add(token.text)
      const lookup = findExecutable(token.text)
      if (lookup.kind === 'found') continue
      const place = ['exec', 'allow', entryIndex, key, commandIndex, 'argv', 0]
      const text = tomlError('bad_acl', document, place, lookup.detail).message
      if (lookup.kind === 'unsafe') problems.push(text)
      else warnings.push(text)
    }
  return { problems, warnings }
}

/** The ACL that decides. What takes its place while a daemon runs allows nothing that it does not. */
export class AclInForce {
  #loaded: LoadedAcl

  constructor(loaded: LoadedAcl) {
    this.#loaded = loaded
  }

  get loaded(): LoadedAcl {
    return this.#loaded
  }

  get acl(): Acl {
    return this.#loaded.acl
  }

  /** In force from this turn on, unless it widens: then nothing is changed. */
  narrow(next: LoadedAcl): AclComparison {
    const comparison = compareAcl(this.#loaded.acl, next.acl)
    if (comparison.verdict !== 'widens') this.#loaded = next
    return comparison
  }
}
