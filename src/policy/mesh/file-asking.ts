import { type BigIntStats, existsSync, lstatSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { BoundedMap } from '../../base/bounded-collections.ts'
import type { Clock } from '../../base/clock.ts'
import { attempt } from '../../base/errors.ts'
import { directoryMode } from '../../base/file-permissions.ts'
import { octal } from '../../base/format.ts'
import { mtimeText, versionOf } from '../../base/mtime.ts'
import type { ApprovalRequest, RequestedFile } from '../../protocol/desk/approval-request.ts'
import type { FileCommand } from '../../protocol/file-command.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { APPROVED_READ_MS, MAX_APPROVED_READS } from '../../protocol/limits/approvals.ts'
import { STDIN_PIECE_BYTES } from '../../protocol/limits/wire.ts'
import { Framed } from '../approval/framed.ts'
import type { Root } from '../local/file-permit.ts'
import type { PermitPrincipal, RunCaps } from '../permit.ts'
import { isWithin, whereTo } from '../sandbox/autostart-places.ts'
import type { AllowEntry } from './acl.ts'
import type { FileGrant, MatchedGrant } from './file-grants.ts'
import type { Intent } from './intent.ts'

/** A file command that a table allows, before it is asked about. */
interface GrantedCommand extends MatchedGrant<AllowEntry> {
  readonly intent: Intent
  readonly command: FileCommand
  readonly root: Root
  readonly caps: RunCaps
  readonly principal: Extract<PermitPrincipal, { kind: 'mesh' }>
  /** Name of the requester's contact, for display. */
  readonly name: string | null
}

/** A command whose effect is bound to the facts in its approval request. */
interface BoundCommand {
  readonly command: FileCommand
  readonly createDirs: boolean
  /** Null without a need for approval. Then the command shows no content and changes no file, even if the file changes meanwhile. */
  readonly question: ApprovalRequest | null
}

/** True if the file commands of a table need approvals. */
export const needsApproval = ({ entry, grant }: MatchedGrant<AllowEntry>): boolean => grant.ask || entry.asking.approvers.length > 0

/** True if an approver decides about such a command. Names, sizes and parts of unfinished uploads need no approval. */
export const isAskedAbout = ({ op }: Pick<FileCommand, 'op'>): boolean => op !== 'stat' && op !== 'list' && op !== 'upload'

/** Why a table asks, for approvers and the operator. */
export const whyAsked = ({ entry, grant }: MatchedGrant<AllowEntry>): string => {
  const { ask, approvers, approvals_needed } = entry.asking
  if (ask === 'always') return `the entry ${JSON.stringify(entry.description)} says ask = "always"`
  if (grant.ask) return `the files table of ${JSON.stringify(entry.description)} says ask = true (line ${grant.line})`
  return `the entry needs ${approvals_needed} of ${approvers.length} other agents`
}

/** A path as it is now. */
interface Place {
  /** The path with all links followed. */
  readonly real: string
  /** Status of the file or directory there, or null if the name is unused. */
  readonly info: BigIntStats | null
  /** Missing directories above it, the topmost first. */
  readonly missing: readonly string[]
  /** Device and inode of the directory that holds it, or of the last one that exists. */
  readonly directory: readonly [bigint, bigint]
}

/** Null if the path leads out of the root or cannot be followed. */
const lookAt = (path: string, root: Root): Place | null =>
  attempt(() => {
    const real = whereTo(path)
    if (!isWithin(real, root.real)) return null
    const info = lstatSync(real, { bigint: true, throwIfNoEntry: false }) ?? null
    const missing: string[] = []
    let directory = real === root.real ? real : dirname(real)
    for (; isWithin(directory, root.real) && !existsSync(directory); directory = dirname(directory)) missing.unshift(directory)
    const { dev, ino } = statSync(directory, { bigint: true })
    return { real, info, missing, directory: [dev, ino] as const }
  })

/** No file has this version, this modification time or this content. So a command with it can only fail. */
const NO_VERSION = '0'
const NO_TIME = ''
const NO_CONTENT = ''

/** The command without effect. It fails with the error of the file system that the requester would get anyway. */
const withoutEffect = (command: FileCommand): FileCommand => {
  switch (command.op) {
    case 'read':
    case 'hash':
      return { ...command, version: NO_VERSION }
    case 'append':
      return { ...command, mtime: NO_TIME }
    case 'write':
      return command.finish === null ? command : { ...command, finish: { ...command.finish, sha256: NO_CONTENT } }
    default:
      return command
  }
}

/** The facts for an approver, and the command that the approval allows. */
interface Asked {
  readonly command: FileCommand
  readonly facts: Pick<RequestedFile, 'action' | 'path'> & Partial<RequestedFile>
}

const presentOf = ({ size, mtimeNs }: BigIntStats): RequestedFile['present'] => ({ size: Number(size), mtime: mtimeText(mtimeNs) })

/** Null if the command cannot have an effect on this file. */
const askedOf = (command: FileCommand, place: Place, { intent, grant }: GrantedCommand): Asked | null => {
  const { path } = command
  const { info } = place
  const file = info?.isFile() === true ? info : null
  switch (command.op) {
    case 'read':
    case 'hash': {
      const version = file && versionOf(file)
      if (file === null || version === null || (command.version ?? version) !== version) return null
      return { command: { ...command, version }, facts: { action: 'read', path, size: Number(file.size), present: presentOf(file) } }
    }
    case 'append': {
      if (file === null || mtimeText(file.mtimeNs) !== command.mtime) return null
      const size = intent.stdin_len ?? 0
      // The hash of several pieces is not that of the content, but the digest of the request covers it.
      const sha256 = size <= STDIN_PIECE_BYTES ? (intent.stdin_sha256 ?? null) : null
      return { command, facts: { action: 'append', path, size, sha256, present: presentOf(file) } }
    }
    case 'write':
      return command.finish === null ? askedParents(command, place, grant) : askedWrite(command, place, { intent, grant })
    case 'mkdir': {
      if (info !== null) return null
      const mode = octal(directoryMode(grant.mode) & (command.mode ?? 0o777))
      return { command, facts: { action: 'mkdir', path, creates: place.missing, mode, owner: grant.owner } }
    }
    default:
      return null
  }
}

type WriteCommand = Extract<FileCommand, { op: 'write' }>

/** A part of an upload has no effect except that its directories may have to be created. */
const askedParents = (command: WriteCommand, { missing }: Place, grant: FileGrant): Asked | null => {
  if (missing.length === 0 || !command.parents || !grant.create_dirs) return null
  const mode = octal(directoryMode(grant.mode))
  return { command, facts: { action: 'mkdir', path: dirname(command.path), creates: missing.slice(0, -1), mode, owner: grant.owner } }
}

const askedWrite = (command: WriteCommand, place: Place, { intent, grant }: Pick<GrantedCommand, 'intent' | 'grant'>): Asked | null => {
  const { path, finish, offset, parents } = command
  const { info, missing } = place
  const size = offset + (intent.stdin_len ?? 0)
  const now = info === null ? 'absent' : versionOf(info)
  if (finish === null || (info !== null && !info.isFile()) || (finish.expect ?? now) !== now || size > grant.max_file_bytes) return null
  if (missing.length > 0 && !(parents && grant.create_dirs)) return null
  return {
    // The file that the approver sees is the only one that may be replaced.
    command: { ...command, finish: { ...finish, expect: now } },
    facts: {
      action: 'write',
      path,
      size,
      sha256: finish.sha256,
      creates: missing,
      // A replaced file keeps its owner and its mode.
      ...(info === null ? { mode: octal(grant.mode & (finish.mode ?? 0o777)), owner: grant.owner } : { present: presentOf(info) }),
    },
  }
}

/** Binds a command of a table that needs approvals to the facts in its approval request. */
export const bindCommand = (granted: GrantedCommand): BoundCommand => {
  const { command, root, grant } = granted
  if (!isAskedAbout(command)) return { command, createDirs: false, question: null }
  const place = lookAt(command.path, root)
  const asked = place && askedOf(command, place, granted)
  if (place === null || asked === null) return { command: withoutEffect(command), createDirs: false, question: null }
  const question = questionOf(granted, asked, place)
  return { command: asked.command, createDirs: grant.create_dirs, question }
}

const questionOf = (granted: GrantedCommand, { facts }: Asked, place: Place): ApprovalRequest => {
  const { intent, entry, grant, root, caps, principal, name } = granted
  const { agent_id, machine_id } = principal
  const { approvers, approvals_needed } = entry.asking
  const [executable = ''] = intent.argv
  const file: RequestedFile = Object.freeze({
    leads_to: place.real === facts.path || facts.path !== granted.command.path ? null : place.real,
    size: null,
    sha256: null,
    present: null,
    creates: [],
    mode: null,
    owner: null,
    ...facts,
  })
  const question: ApprovalRequest = {
    permit_sha256: digestOf(granted, file, place),
    grant_sha256: null,
    door: 'mesh',
    session_id: null,
    asker: { kind: 'mesh', agent_id, machine_id, name },
    target: { host: 'gateway', agent_id: null },
    argv: intent.argv,
    executable,
    programs: [],
    opaque: null,
    cwd: root.path,
    env_names: [],
    variables: [],
    stdin: null,
    script: null,
    writable: [],
    unheld: null,
    timeout_ms: caps.timeout_ms,
    max_output_bytes: caps.max_stdout_bytes + caps.max_stderr_bytes,
    outlives: false,
    security: 'allowlist',
    ask: grant.ask ? 'always' : 'off',
    ask_fallback: 'deny',
    always_ask: null,
    why: whyAsked(granted),
    approvers: approvers.length === 0 ? null : { agent_ids: approvers, needed: approvals_needed },
    file,
  }
  return Object.freeze(question)
}

/** For reading, all commands that read the same version of a file have the same digest. */
const digestOf = ({ intent, entry, grant, root, caps, principal }: GrantedCommand, file: RequestedFile, place: Place): string => {
  const { real, info, missing, directory } = place
  const framed = new Framed('x0x-file-permit-v1')
    .tree('file', file)
    .tree('root', root)
    .tree('place', { real, version: info && versionOf(info), missing, directory })
    .tree('principal', principal)
    .add('matched_acl', entry.description)
    .tree('asking', { human: grant.ask, approvers: entry.asking.approvers, needed: entry.asking.approvals_needed })
  if (file.action === 'read') return framed.digest()
  const { stdin_len, stdin_sha256 = null } = intent
  const { create_dirs, max_file_bytes, max_total_bytes, mode, owner } = grant
  return framed
    .add('argv', ...intent.argv)
    .tree('stdin', { bytes: stdin_len, sha256: stdin_sha256 })
    .tree('limits', { create_dirs, max_file_bytes, max_total_bytes, mode, owner })
    .tree('caps', caps)
    .digest()
}

/**
 * Files that approvers have allowed a requester to read, because a download consists of several commands. Each is the digest of an approval
 * request, which covers the requester, the path and the version of the file. A forgotten file is asked about again.
 */
export class ApprovedReads {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #until = new BoundedMap<string, number>({ max: MAX_APPROVED_READS })

  constructor(deps: { readonly clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = deps.clock
  }

  add(permitSha256: string, agentId: AgentId): void {
    this.#until.set(permitSha256, this.#clock.monotonic() + APPROVED_READ_MS, agentId)
  }

  has(permitSha256: string): boolean {
    const until = this.#until.get(permitSha256)
    if (until === undefined) return false
    if (this.#clock.monotonic() < until) return true
    this.#until.delete(permitSha256)
    return false
  }
}
