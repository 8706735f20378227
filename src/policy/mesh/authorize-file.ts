import { statSync } from 'node:fs'
import { dirname } from 'node:path'
import { errorText } from '../../base/errors.ts'
import { writableByOthers } from '../../base/file-permissions.ts'
import { namesOf, realPath } from '../../base/path-resolution.ts'
import { type FileCommand, changesFiles, parseFileCommand } from '../../protocol/file-command.ts'
import { MAX_APPEND_BYTES, MAX_FILE_CHUNK_BYTES, MAX_FILE_ERROR_BYTES } from '../../protocol/limits/files.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import { type Account, findAccount } from '../account.ts'
import type { ApprovalRequest } from '../approval/approval.ts'
import { type FilePermit, type Root, sealFilePermit } from '../local/file-permit.ts'
import type { PermitPrincipal, RunCaps } from '../permit.ts'
import type { AllowEntry } from './acl.ts'
import { bindCommand, needsApproval } from './file-asking.ts'
import { type FileGrant, type MatchedGrant, describeNoGrant, findGrant } from './file-grants.ts'
import type { Intent } from './intent.ts'

/** What an ACL entry allows of one file command. Deeply frozen. */
export interface FileRunPermit {
  readonly command: FileCommand
  /** Access to the path, below the root of the grant. */
  readonly files: FilePermit
  readonly limits: Pick<FileGrant, 'create_dirs' | 'max_file_bytes' | 'max_total_bytes' | 'mode'> & { readonly account: Account | null }
  /** Agent and machine of the requester. */
  readonly owner: string
  readonly caps: RunCaps
  readonly matched_acl: string
  readonly principal: PermitPrincipal
}

/** A file command that a table allows. */
interface GrantedFiles {
  readonly permit: FileRunPermit
  /** What must be approved before the permit is used, or null. */
  readonly question: ApprovalRequest | null
}

/** A denial by one of these gates. */
export interface FilesDenied {
  readonly gate: 'argv' | 'command' | 'cwd' | 'detach' | 'terminal' | 'stdin' | 'timeout' | 'executable'
  readonly reason: DenialReason
  readonly detail: string
}

const refused = (gate: FilesDenied['gate'], reason: DenialReason, detail: string): FilesDenied => ({ gate, reason, detail })

/** Finds the file command of argv and the table that allows it. */
export const findFileGrant = (
  argv: readonly string[],
  entries: readonly AllowEntry[],
): (MatchedGrant<AllowEntry> & { readonly command: FileCommand }) | FilesDenied => {
  const command = parseFileCommand(argv)
  if (command === null) return refused('argv', 'argv_not_allowed', 'it is not a valid file command')
  const found = findGrant(entries, command)
  return found === null ? refused('command', 'argv_not_allowed', describeNoGrant(entries, command)) : { ...found, command }
}

/**
 * Permits a file command of a verified requester. Only `authorize` may call it, because it checks the requester first, and the approvals
 * after it.
 */
export const permitFileCommand = (
  intent: Intent,
  { agent_id, machine_id, name = null }: { readonly agent_id: AgentId; readonly machine_id: MachineId; readonly name?: string | null },
  entries: readonly AllowEntry[],
): GrantedFiles | FilesDenied => {
  const found = findFileGrant(intent.argv, entries)
  if ('gate' in found) return found
  const { command, entry, grant } = found
  const caps = capsOf(intent, command, entry)
  if ('gate' in caps) return caps
  const account = grant.owner === null ? null : findAccount(grant.owner)
  if (account?.kind === 'refused') return refused('executable', 'spawn_failed', `owner: ${account.detail}`)
  const root = rootOf(grant.root)
  if (typeof root === 'string') return refused('executable', 'spawn_failed', root)
  const principal = Object.freeze({ kind: 'mesh', agent_id, machine_id } as const)
  const bound = needsApproval(found)
    ? bindCommand({ intent, command, entry, grant, root, caps, principal, name })
    : { command, createDirs: grant.create_dirs, question: null }
  const { max_file_bytes, max_total_bytes, mode } = grant
  const access = changesFiles(command) ? 'write' : 'read'
  const names = namesOf(command.path).slice(namesOf(grant.root).length)
  const permit = Object.freeze({
    command: Object.freeze(bound.command),
    files: sealFilePermit({ access, root, names, roots: [root], max_read_bytes: MAX_FILE_CHUNK_BYTES }),
    limits: Object.freeze({
      create_dirs: bound.createDirs,
      max_file_bytes,
      max_total_bytes,
      mode,
      account: account?.account ?? null,
    }),
    owner: `${agent_id} ${machine_id}`,
    caps: Object.freeze(caps),
    matched_acl: entry.description,
    principal,
  })
  return { permit, question: bound.question }
}

/** The root as it is now, or why it cannot be used. */
const rootOf = (path: string): Root | string => {
  try {
    // A user who can replace the root, or a directory above it, chooses where the daemon reads and writes.
    const [loose] = writableByOthers(dirname(path))
    if (loose !== undefined) return `root ${path}: ${loose}`
    const real = realPath(path)
    const { dev, ino } = statSync(real, { bigint: true })
    return { path, real, dev, ino }
  } catch (error) {
    return `root ${path}: ${errorText(error)}`
  }
}

const capsOf = (intent: Intent, command: FileCommand, { limits }: AllowEntry): RunCaps | FilesDenied => {
  if (intent.cwd !== null) return refused('cwd', 'cwd_not_allowed', 'a requester cannot choose the working directory')
  if ((intent.detach ?? null) !== null) return refused('detach', 'detach_not_allowed', 'a file command cannot run detached')
  if ((intent.terminal ?? null) !== null) return refused('terminal', 'terminal_not_allowed', 'a file command has no terminal')
  const max_stdin_bytes = command.op === 'write' ? MAX_FILE_CHUNK_BYTES : command.op === 'append' ? MAX_APPEND_BYTES : 0
  const stdin = intent.stdin_len ?? 0
  if (stdin > max_stdin_bytes || (intent.stdin_len !== null && max_stdin_bytes === 0))
    return refused('stdin', 'stdin_too_large', `${stdin} bytes of stdin; the limit of this file command is ${max_stdin_bytes}`)
  const cap = limits.max_duration_secs * 1000
  const asked = intent.timeout_ms ?? cap
  if (asked < 1 || (asked > cap && intent.clamp !== true))
    return refused('timeout', 'timeout_too_large', `a timeout of ${asked} ms; it must be from 1 to ${cap}`)
  return {
    max_stdout_bytes: MAX_FILE_CHUNK_BYTES,
    max_stderr_bytes: MAX_FILE_ERROR_BYTES,
    max_output_bytes: null,
    max_stdin_bytes,
    // Large files need no warning.
    warn_stdout_bytes: MAX_FILE_CHUNK_BYTES + 1,
    warn_stderr_bytes: MAX_FILE_ERROR_BYTES + 1,
    warn_duration_ms: cap,
    max_duration_ms: cap,
    timeout_ms: Math.min(asked, cap),
    timeout_clamped: asked > cap,
    keep_bytes: null,
  }
}
