import type { Terminal } from '../executor-api/local.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { Account } from './account.ts'
import type { FilePin } from './file-mark.ts'
import type { Confinement } from './mesh/confinement.ts'

/** A permitted program, identified by its inode so that a replacement is detected. */
export interface Executable {
  /** Absolute path. Links are not resolved, because a program may use its own name. */
  readonly path: string
  readonly dev: bigint
  readonly ino: bigint
}

/** Limits of one run in bytes and milliseconds. */
export interface RunCaps {
  readonly max_stdout_bytes: number
  readonly max_stderr_bytes: number
  /** Limit of both streams together, or null if each has only its own. */
  readonly max_output_bytes: number | null
  readonly max_stdin_bytes: number
  readonly warn_stdout_bytes: number
  readonly warn_stderr_bytes: number
  readonly warn_duration_ms: number
  readonly max_duration_ms: number
  /** Duration after which the run is ended. It is the timeout of the request, or else the maximum. */
  readonly timeout_ms: number
  /** True if the request exceeded the maximum and accepted the reduction. */
  readonly timeout_clamped: boolean
  /** Bytes of output stored for a detached run, or null for other runs. */
  readonly keep_bytes: number | null
}

/** Files of a container image, used in a sandbox instead of this host's programs. */
export interface SandboxImage {
  readonly name: string
  /** SHA-256 of the image's configuration as hex, as the engine reports it. */
  readonly id: string
  /** Directory on this host with the unpacked files. */
  readonly root: string
  /** Environment that the image sets. */
  readonly env: Readonly<Record<string, string>>
}

/** Access of a run in a sandbox to this host. All else is absent, or read-only and part of the system. */
export interface SandboxGrant {
  readonly engine: 'bubblewrap' | 'podman' | 'docker'
  /** Null if this host's programs are shown. */
  readonly image: SandboxImage | null
  /** True for the host's network, false for a run without network. */
  readonly network: boolean
  /** True if AF_UNIX sockets are allowed without the network. */
  readonly unix_sockets: boolean
  /** The only writable directory, at its own path. */
  readonly writable: string
  /** Further visible directories. */
  readonly readable: readonly string[]
  /** Home directory, which appears empty except for the directories above. */
  readonly home: string
  /** Limit for all processes together, or null. */
  readonly max_memory_bytes: number | null
  /** Limit of processes and threads, or null for a default, if control groups are available. */
  readonly max_processes: number | null
}

/** A file that the requester can replace. A private copy or link runs in its place. */
export interface PinnedFile {
  /** Path without links. */
  readonly path: string
  /** SHA-256 of the copied bytes as hex, or null if the requester can replace only links to the file and a private link is enough. */
  readonly sha256: string | null
  /** Last component of the path by which the command names it. */
  readonly name: string
}

/** Command that starts in place of `executable` and `argv`, so that the requester can change no file of it. */
export interface StandIn {
  readonly argv0: string
  /** The program, then its arguments. */
  readonly words: readonly (string | PinnedFile)[]
}

/** The requester of the run. */
export type PermitPrincipal =
  | { readonly kind: 'mesh'; readonly agent_id: AgentId; readonly machine_id: MachineId }
  | { readonly kind: 'local'; readonly session_id: string }

/** All that is allowed of one run. Nothing else is read when it starts. */
export interface PermitFields {
  readonly argv: readonly string[]
  readonly executable: Executable
  readonly cwd: string
  /** Descriptor of that directory, which prevents its replacement. Null means that it is opened by path. */
  readonly cwd_descriptor: number | null
  readonly env: Readonly<Record<string, string>>
  readonly caps: RunCaps
  /** Initial size of the run's terminal, or null for pipes. */
  readonly terminal: Terminal | null
  /** True if it must not run without a transcript. Absent means false. */
  readonly record?: boolean
  /** True if operators may look on. Absent means false. */
  readonly watch?: boolean
  /** Restrictions that the system enforces on its processes. */
  readonly confinement: Confinement
  /** User of the run, or null for the daemon's user. */
  readonly account: Account | null
  /** Sandbox of the run, or null for the host. */
  readonly sandbox: SandboxGrant | null
  /** Files that must be as they were when the run was allowed. */
  readonly pins: readonly FilePin[]
  /** Null if the requester cannot write any of the files, or no approver allowed their content. */
  readonly stand_in: StandIn | null
  /** Description of the ACL entry that allows the run. */
  readonly matched_acl: string
  readonly principal: PermitPrincipal
}

declare const brand: unique symbol

/** Made by `authorize` and `authorizeLocalRun` alone, and deeply frozen. */
export interface Permit extends PermitFields {
  readonly [brand]: true
}

const permits = new WeakSet<object>()

const frozenGrant = (grant: SandboxGrant): SandboxGrant =>
  Object.freeze({
    ...grant,
    image: grant.image && Object.freeze({ ...grant.image, env: Object.freeze({ ...grant.image.env }) }),
    readable: Object.freeze([...grant.readable]),
  })

const frozenStandIn = ({ argv0, words }: StandIn): StandIn =>
  Object.freeze({ argv0, words: Object.freeze(words.map((word) => (typeof word === 'string' ? word : Object.freeze({ ...word })))) })

/** Copies, freezes and marks a permit. Only `authorize` and `authorizeLocalRun` may call it. A test checks all other files. */
export const sealPermit = (fields: PermitFields): Permit => {
  const permit = Object.freeze({
    argv: Object.freeze([...fields.argv]),
    executable: Object.freeze({ ...fields.executable }),
    cwd: fields.cwd,
    cwd_descriptor: fields.cwd_descriptor,
    env: Object.freeze({ ...fields.env }),
    caps: Object.freeze({ ...fields.caps }),
    terminal: fields.terminal && Object.freeze({ ...fields.terminal }),
    record: fields.record ?? false,
    watch: fields.watch ?? false,
    confinement: Object.freeze({ ...fields.confinement }),
    account: fields.account && Object.freeze({ ...fields.account }),
    sandbox: fields.sandbox && frozenGrant(fields.sandbox),
    pins: Object.freeze(fields.pins.map((pin) => Object.freeze({ ...pin }))),
    stand_in: fields.stand_in && frozenStandIn(fields.stand_in),
    matched_acl: fields.matched_acl,
    principal: Object.freeze({ ...fields.principal }),
  })
  permits.add(permit)
  return permit as unknown as Permit
}

/** True only for the object that `authorize` made, not for a copy. */
export const isPermit = (thing: unknown): thing is Permit => typeof thing === 'object' && thing !== null && permits.has(thing)
