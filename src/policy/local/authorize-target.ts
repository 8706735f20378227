import { posix } from 'node:path'
import type { TerminalSize } from '../../executor-api/local.ts'
import { isPlainPath } from '../../protocol/file-command.ts'
import { type RequestId, isHexId } from '../../protocol/ids.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS } from '../../protocol/limits/wire.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import { alwaysAskOf } from '../approval/always-ask.ts'
import type { Approval } from '../approval/approval.ts'
import { Framed } from '../approval/framed.ts'
import { meaningOf } from '../approval/meanings.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import type { Slot, Slots } from '../slots.ts'
import {
  type LocalRunIntent,
  type Refused,
  type SessionIntent,
  type SessionRights,
  capsOf,
  impossibleText,
  missingCapability,
  noSlot,
  refused,
  ungranted,
} from './intent.ts'
import { type ExecInForce, type LocalApprovalNeeded, askLocally, deniedByMode } from './local-asking.ts'
import type { FileAccess } from './file-permit.ts'
import type { LocalPolicy } from './policy.ts'

/** Capabilities of a session for another agent. The ACL of that agent decides about each command, terminal and file. */
export const THROUGH_THE_MESH: readonly Capability[] = ['exec', 'pty', 'events', 'fs.read', 'fs.write']

/** Why a session for this agent is refused, or null if it is allowed. */
export const forbiddenTarget = (
  target: string,
  { roots }: SessionIntent,
  policy: LocalPolicy,
  available: ReadonlySet<Capability>,
): Refused | null => {
  if (!policy.granted.has('target') || !available.has('target')) return ungranted('target')
  if (roots !== null) return refused('bad_request', 'workspace_roots: a session of a target has none', { target })
  if (policy.targets === null || policy.targets.includes(target)) return null
  return refused('unsupported_capability', `target: ${JSON.stringify(target)} is not in security.allow_targets`, {
    capability: 'target',
    target,
  })
}

/** The name by which a session is opened: the one in `security.allow_targets`, else the contact's name. */
export const targetNameOf = ({ host, agent_id }: { readonly host: string; readonly agent_id: string }, { targets }: LocalPolicy): string =>
  targets !== null && !targets.includes(host) && targets.includes(agent_id) ? agent_id : host

/** Decides whether the mesh may be asked for a file. Returns the absolute path without `.` and `..`. The target's ACL decides about it. */
export const authorizeTargetFile = (
  { path, access }: { readonly path: string; readonly access: FileAccess },
  { capabilities, target }: SessionRights,
): { readonly kind: 'permit'; readonly path: string } | Refused => {
  const capability = access === 'write' ? 'fs.write' : 'fs.read'
  if (target === null || !capabilities.has(capability)) return ungranted(capability)
  if (!posix.isAbsolute(path)) return refused('bad_request', `path: must be absolute for a target, not ${JSON.stringify(path)}`)
  const whole = posix.normalize(path)
  const plain = whole.length > 1 && whole.endsWith('/') ? whole.slice(0, -1) : whole
  return isPlainPath(plain) ? { kind: 'permit', path: plain } : refused('bad_request', 'path: too long, or with a NUL character')
}

/** A run to request from the mesh. The target's ACL decides about it. */
export interface TargetGrant {
  readonly target: string
  readonly argv: readonly string[]
  readonly timeout_ms: number
  readonly max_output_bytes: number
  readonly detach?: true
  /** First size of the terminal. Absent for pipes. */
  readonly terminal?: TerminalSize
}

export interface TargetContext {
  readonly rights: SessionRights
  readonly slots: Slots
  readonly session_id?: string
  /** True if the configuration grants `exec.detach`. */
  readonly may_detach?: boolean
  /** Modes in force for this call, absent or null if the configuration sets none. */
  readonly exec?: ExecInForce | null
}

/** Decides whether the mesh may be asked for a run. A target supports no shell, variables or working directory of this host. */
export const authorizeTargetRun = (
  intent: LocalRunIntent & { readonly cwd: string | null; readonly detached_id?: RequestId },
  { rights, slots, session_id, may_detach = false, exec = null }: TargetContext,
  approval: Approval | null = null,
): { readonly kind: 'permit'; readonly grant: TargetGrant; readonly slot: Slot } | LocalApprovalNeeded | Refused => {
  const { target } = rights
  if (target === null) return ungranted('target')
  const problem = impossibleText(intent) ?? tooLongForMesh(intent) ?? missingCapability(intent, rights) ?? onlyHere(intent)
  if (problem !== null) return problem
  const detach = intent.detached_id !== undefined
  if (detach && !may_detach) return ungranted('exec.detach')
  const terminal = terminalOf(intent)
  if (terminal !== null && 'kind' in terminal) return terminal
  const denial = exec === null ? null : deniedByMode(exec)
  if (denial !== null) return denial
  const caps = capsOf({ ...intent, detach }, rights.limits)
  if ('kind' in caps) return caps
  const { timeout_ms, max_output_bytes } = caps
  const grant = Object.freeze({
    target,
    argv: intent.argv,
    timeout_ms,
    max_output_bytes: max_output_bytes ?? 0,
    ...(detach && { detach }),
    ...(terminal && { terminal }),
  })
  const asked = exec === null ? null : askAbout(grant, exec, session_id ?? null, approval)
  if (asked !== null) return asked
  const slot = slots.reserve('')
  return slot === null ? noSlot(rights.limits, false) : { kind: 'permit', grant, slot }
}

/** For a command on another host, its arguments are known and its files are not. */
const askAbout = (
  grant: TargetGrant,
  exec: ExecInForce,
  session_id: string | null,
  approval: Approval | null,
): LocalApprovalNeeded | Refused | null => {
  const { argv, target, timeout_ms } = grant
  const { door, label, stdin, ask } = exec
  const meaning = meaningOf(argv, [], { cwd: null, path: null })
  const always_ask = alwaysAskOf(exec.always_ask, meaning, SCRUBBED_PATH)?.reason ?? null
  const framed = new Framed('x0x-target-permit-v2')
    .tree('grant', grant)
    .tree('stdin', stdin)
    .tree('asker', [door, label, session_id])
    .add('ask', ask)
    .add('always_ask', always_ask)
  const facts = {
    permit_sha256: framed.digest(),
    grant_sha256: null,
    executable: argv[0] ?? '',
    programs: [],
    opaque: meaning.opaque,
    variables: [],
    script: null,
    timeout_ms,
    max_output_bytes: grant.max_output_bytes,
    outlives: grant.detach ?? false,
    writable: [],
    unheld: null,
    always_ask,
  }
  return askLocally({ argv, cwd: '/', env: {}, session_id, agent_id: isHexId(target) ? target : null }, facts, exec, approval)
}

/** A detached run has no terminal, and the terminal of a target is not raw. */
const terminalOf = ({ terminal, detached_id }: LocalRunIntent & { readonly detached_id?: RequestId }): TerminalSize | Refused | null => {
  if (terminal === null) return null
  if (detached_id !== undefined || terminal.raw === true)
    return refused('unsupported_capability', 'a raw or detached run of a target has no terminal', { capability: 'pty' })
  return Object.freeze({ cols: terminal.cols, rows: terminal.rows })
}

/** A Request must fit one frame. */
const tooLongForMesh = ({ argv }: LocalRunIntent): Refused | null => {
  const asked = argv.reduce((sum, token) => sum + Buffer.byteLength(token), 0)
  if (argv.length <= MAX_ARGV_TOKENS && asked <= MAX_ARGV_BYTES) return null
  const text = `argv: ${argv.length} texts of ${asked} bytes, where ${MAX_ARGV_TOKENS} of ${MAX_ARGV_BYTES} together go through the mesh`
  return refused('resource_limit', `${text}; give more by stdin`, { limit: 'argv', asked, max: MAX_ARGV_BYTES })
}

const onlyHere = ({ env, cwd }: { readonly env: LocalRunIntent['env']; readonly cwd: string | null }): Refused | null => {
  const field = Object.keys(env).length > 0 ? 'env' : cwd !== null ? 'cwd' : null
  const text = `${String(field)}: not allowed with a target; the ACL of the target decides`
  return field === null ? null : refused('unsupported_capability', text, { capability: field })
}
