import { statSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, systemClock } from '../../base/clock.ts'
import { AppError, attempt, errorText, isAppError } from '../../base/errors.ts'
import { journalPlaceProblems, writableByOthers } from '../../base/file-permissions.ts'
import { absolutePath } from '../../base/home.ts'
import { type TomlDocument, readToml, tomlError } from '../../base/toml.ts'
import { findExecutable } from '../executable.ts'
import type { AclSignatureRule } from './accepted-acl.ts'
import { type AclSignature, verifyAclBundle } from './acl-bundle.ts'
import { type Acl, type AllowEntry, type AllowedCommand, closedAcl } from './acl.ts'
import { type AclComparison, compareAcl } from './compare-acl.ts'
import { CONFINEMENT_KEYS, type EnforcementProbe, UNCONFINED } from './confinement.ts'
import { judgeFileRoots, ownerProblem } from './judge-file-roots.ts'
import { readAcl } from './read-acl.ts'

export type AclStatus = 'enabled' | 'exec_disabled' | 'acl_missing' | 'missing_exec_section'

/** The ACL in force. A reload can only narrow it. */
export interface LoadedAcl {
  readonly acl: Acl
  readonly status: AclStatus
  /** Path of the file, also if it does not exist. */
  readonly loaded_from: string
  /** SHA-256 of the file as hex, or null without a file. */
  readonly sha256: string | null
  /** Content of the file, or null without a file. */
  readonly bytes: Uint8Array | null
  /** Null if the file is not signed. */
  readonly signature: AclSignature | null
  /** ISO 8601. */
  readonly loaded_at: string
  /** Settings without the intended effect, each as `file:line: key: text`. */
  readonly warnings: readonly string[]
}

export interface LoadAclInit {
  readonly path: string
  /** True if the operator configured the path, so that a missing file is an error. */
  readonly explicit: boolean
  /** Probes whether this host can enforce the entries. Without it, they are not probed. */
  readonly judge?: EnforcementProbe
  /** Data directory of the daemon, which no root of files may contain. Null or absent if unknown. */
  readonly dataDir?: string | null
  /** Rules about signers and versions. Without them, an ACL need not be signed. */
  readonly signing?: AclSignatureRule | null
}

/** All problems and warnings of an ACL file. */
export interface AclInspection {
  readonly path: string
  /** Null if the file is missing, is not TOML, or has no `[exec]`. */
  readonly acl: Acl | null
  readonly missing: boolean
  /** SHA-256 of the file as hex, or null if it is missing or not TOML. */
  readonly sha256: string | null
  /** Content of the file, if it is TOML. */
  readonly bytes: Uint8Array | null
  /** The valid signature of the file, or null. */
  readonly signature: AclSignature | null
  /** Problems that prevent the daemon's start. */
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
  /** The problems that may be due to the present user, which are unenforceable restrictions and a log directory of another user. */
  readonly unenforceable: readonly string[]
}

const NOTHING = { acl: null, missing: false, sha256: null, bytes: null, signature: null, warnings: [], unenforceable: [] } as const

export interface InspectAclOptions extends Pick<LoadAclInit, 'dataDir' | 'signing'> {
  /** See `readToml`. */
  readonly pipes?: boolean
}

/** The signature of a file, and why it may not be used. A file that says that it is signed must be. */
const judgeSignature = async (
  bytes: Uint8Array,
  path: string,
  signing: AclSignatureRule | null,
): Promise<Pick<AclInspection, 'signature' | 'problems'>> => {
  const verified = await verifyAclBundle(bytes)
  if (typeof verified === 'string') return { signature: null, problems: [`${path}: ${verified}`] }
  const problem = signing?.problem(verified) ?? null
  return { signature: verified, problems: problem === null ? [] : [`${path}: ${problem}`] }
}

/** Checks an ACL file with its write permissions, signature, syntax, meaning, programs and the roots of files. */
export const inspectAcl = async (
  file: string,
  judge: EnforcementProbe | null = null,
  { pipes = false, dataDir = null, signing = null }: InspectAclOptions = {},
): Promise<AclInspection> => {
  const path = absolutePath('the ACL', file)
  const problems = writableByOthers(path)
  let document: Awaited<ReturnType<typeof readToml>>
  try {
    document = await readToml(path, 'bad_acl', { bigints: true, pipes })
  } catch (error) {
    if (isAppError(error, 'not_found')) return { ...NOTHING, path, missing: true, problems: [`cannot read ${path}: no such file`] }
    return { ...NOTHING, path, problems: [...problems, errorText(error)] }
  }
  const { signature, problems: unsigned } = await judgeSignature(document.bytes, path, signing)
  const reading = readAcl(document)
  const programs = judgePrograms(document, reading.acl)
  const roots = judgeFileRoots(document, reading.acl, { acl: path, dataDir })
  const place = judgeJournal(document, reading.acl)
  const ofAnyOwner = judgeJournal(document, reading.acl, ownerOf(reading.acl?.audit_log_path ?? null))
  const beyond = reading.acl === null || judge === null ? [] : await unenforceable(document, reading.acl, judge)
  return {
    path,
    acl: reading.acl,
    missing: false,
    sha256: document.sha256,
    bytes: document.bytes,
    signature,
    problems: [...problems, ...unsigned, ...reading.problems, ...place, ...programs.problems, ...roots.problems, ...beyond],
    warnings: [...reading.warnings, ...programs.warnings, ...roots.warnings],
    unenforceable: [...beyond, ...place.filter((problem) => isHidden(problem) || !ofAnyOwner.includes(problem))],
  }
}

/**
 * Loads the ACL for the daemon. A missing file at the default path disables exec. A missing configured file and any problem throw
 * `bad_acl`, with one line for each problem.
 */
export const loadAcl = async (init: LoadAclInit, clock: Pick<Clock, 'now'> = systemClock): Promise<LoadedAcl> => {
  const { dataDir = null, signing = null } = init
  const { path, acl, missing, sha256, bytes, signature, problems, warnings } = await inspectAcl(init.path, init.judge, { dataDir, signing })
  const read = { loaded_from: path, sha256, bytes, signature, loaded_at: new Date(clock.now()).toISOString() }
  if (missing && !init.explicit) return { ...read, acl: closedAcl(null), status: 'acl_missing', warnings: [] }
  if (problems.length > 0) throw new AppError('bad_acl', problems.join('\n'), { data: { file: path, problems } })
  if (!acl) return { ...read, acl: closedAcl(path), status: 'missing_exec_section', warnings }
  return { ...read, acl, status: acl.enabled ? 'enabled' : 'exec_disabled', warnings: [...warnings, ...ownDirectoryWarnings(acl)] }
}

/** Without `default_cwd`, programs start in the daemon's working directory, which the file does not show. */
const ownDirectoryWarnings = ({ enabled, default_cwd, source }: Acl): string[] => {
  if (!enabled || default_cwd !== null) return []
  const place = `${source ?? ''}: exec.default_cwd: is not set, so programs start in the working directory of this daemon, and may read settings from it: `
  const directory = attempt(() => process.cwd())
  return directory === null ? [] : writableByOthers(directory).map((problem) => place + problem)
}

/** Owner of a file's directory, or undefined if unknown. */
const ownerOf = (path: string | null): number | undefined =>
  path === null ? undefined : (attempt(() => statSync(dirname(path)).uid) ?? undefined)

/** True if only this user may not read there. The daemon's user may. */
const isHidden = (problem: string): boolean => problem.includes('EACCES: ')

/** An audit log that other users can replace proves little. A missing directory is created as private. */
const judgeJournal = (document: TomlDocument, acl: Acl | null, owner?: number): string[] => {
  if (acl === null || acl.audit_log_path === null) return []
  const asProblem = (text: string): string => tomlError('bad_acl', document, ['exec', 'audit_log_path'], text).message
  return journalPlaceProblems(acl.audit_log_path, owner).map(asProblem)
}

/** Restrictions that this host cannot enforce, as `file:line: key: reason`. Runs of these entries must not start. */
const unenforceable = async (document: TomlDocument, acl: Acl, judge: EnforcementProbe): Promise<string[]> => {
  const problems: string[] = []
  for (const [index, { confinement, description, files }] of acl.allow.entries()) {
    for (const [fileIndex, { owner }] of files.entries()) {
      const why = owner === null ? null : ownerProblem(owner)
      const place = ['exec', 'allow', index, 'files', fileIndex, 'owner']
      if (why !== null) problems.push(tomlError('bad_acl', document, place, `cannot be enforced on this host: ${why}`).message)
    }
    if (CONFINEMENT_KEYS.every((key) => confinement[key] === UNCONFINED[key])) continue
    for (const { key, why } of await judge(confinement)) {
      const text = `cannot be enforced on this host for ${JSON.stringify(description)}: ${why}`
      problems.push(tomlError('bad_acl', document, ['exec', 'allow', index, key], text).message)
    }
  }
  return problems
}

/** All commands and ask patterns of an entry, with their index in the file. */
const programsOf = ({ commands, asking }: AllowEntry): (readonly ['commands' | 'ask_patterns', number, AllowedCommand])[] => [
  ...commands.map((command, index) => ['commands', index, command] as const),
  ...asking.patterns.map((pattern, index) => ['ask_patterns', index, pattern] as const),
]

/** Checks each program once. A missing program is a warning, but a program that other users could replace is a problem. */
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

/** The ACL that decides. A running daemon can only replace it by a narrower one, or by one that an enrolment extended. */
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

  /** Replaces the ACL at once, unless the new one widens it. */
  narrow(next: LoadedAcl): AclComparison {
    const comparison = compareAcl(this.#loaded.acl, next.acl)
    if (comparison.verdict !== 'widens') this.#loaded = next
    return comparison
  }

  /** Replaces the ACL at once if the new one allows the same, and in addition only something to this agent on this machine. */
  extend(next: LoadedAcl, pair: Pick<AllowEntry, 'agent_id' | 'machine_id'>): boolean {
    const { more, less } = compareAcl(this.#loaded.acl, next.acl)
    const isOnlyForPair = more.every(({ agent_id, machine_id }) => agent_id === pair.agent_id && machine_id === pair.machine_id)
    if (less.length > 0 || !isOnlyForPair || next.status !== this.#loaded.status) return false
    this.#loaded = next
    return true
  }
}
