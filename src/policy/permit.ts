import type { Terminal } from '../executor-api/local.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { Account } from './account.ts'
import type { FilePin } from './file-mark.ts'
import type { Confinement } from './mesh/confinement.ts'

/** A program as it stood when it was permitted: the very inode, so that another in its place is noticed. */
export interface Executable {
  /** Absolute; links are not resolved, because a program may look at its own name. */
  readonly path: string
  readonly dev: bigint
  readonly ino: bigint
}

/** The limits of this one run: bytes, and milliseconds from its start. */
export interface RunCaps {
  readonly max_stdout_bytes: number
  readonly max_stderr_bytes: number
  /** Both streams together; null: each has its own cap alone. */
  readonly max_output_bytes: number | null
  readonly max_stdin_bytes: number
  readonly warn_stdout_bytes: number
  readonly warn_stderr_bytes: number
  readonly warn_duration_ms: number
  /** Nothing runs longer than this. */
  readonly max_duration_ms: number
  /** When this run is to be ended: the request's own timeout, else the cap. */
  readonly timeout_ms: number
  /** The request asked for more than the cap and agreed to run at the cap. */
  readonly timeout_clamped: boolean
  /** It outlives its caller, and so much of its output is kept; null: it ends with its caller. */
  readonly keep_bytes: number | null
}

/** The files of a container's image, which stand in a sandbox in place of this host's programs. */
export interface SandboxImage {
  /** As it is configured. */
  readonly name: string
  /** SHA-256 of its configuration, hex, as the engine names it. */
  readonly id: string
  /** Where its files were unpacked on this host. */
  readonly root: string
  /** The environment that it gives its programs. */
  readonly env: Readonly<Record<string, string>>
}

/** What a run in a sandbox has of this host; all else is absent, or is read only and the system's own. */
export interface SandboxGrant {
  readonly engine: 'bubblewrap' | 'podman' | 'docker'
  /** Null: this host's own programs are shown. */
  readonly image: SandboxImage | null
  /** The host's network with all that listens on it; false: none at all. */
  readonly network: boolean
  /** It may make sockets of the file system (AF_UNIX) without the network. */
  readonly unix_sockets: boolean
  /** The one directory that it may change, at its own path. */
  readonly writable: string
  /** Further ones that it sees. */
  readonly readable: readonly string[]
  /** Stands there empty, but for what is named above. */
  readonly home: string
  /** Of all its processes together; null: no bound. */
  readonly max_memory_bytes: number | null
  /** At once, threads included; null: a number of ours, where control groups can be had. */
  readonly max_processes: number | null
}

/** A file that the requester can exchange. Something that it cannot write stands in its place. */
export interface PinnedFile {
  /** Without symbolic links. */
  readonly path: string
  /** Hex, of the bytes of which a private copy is made; null: the requester can exchange only links to the file, and a private link is made. */
  readonly sha256: string | null
  /** The last name of the path by which the command names it. */
  readonly name: string
}

/** What starts in place of `executable` and `argv`, so that the requester can change nothing of it any more. */
export interface StandIn {
  readonly argv0: string
  /** The program first, then its words. */
  readonly words: readonly (string | PinnedFile)[]
}

/** For whom it runs. */
export type PermitPrincipal =
  | { readonly kind: 'mesh'; readonly agent_id: AgentId; readonly machine_id: MachineId }
  | { readonly kind: 'local'; readonly session_id: string }

/** All that is allowed of one run, and all that will run: nothing else is read when the program starts. */
export interface PermitFields {
  readonly argv: readonly string[]
  readonly executable: Executable
  /** Absolute. */
  readonly cwd: string
  /** That very directory, held open by whoever asked, where a path could come to mean another; null: by its path. */
  readonly cwd_descriptor: number | null
  /** The whole environment. */
  readonly env: Readonly<Record<string, string>>
  readonly caps: RunCaps
  /** It runs on a terminal of its own, which begins with this size; null: on pipes. */
  readonly terminal: Terminal | null
  /** What the system enforces on its processes. */
  readonly confinement: Confinement
  /** Whom it runs as; null: the daemon's own user. */
  readonly account: Account | null
  /** It runs in a sandbox, or not at all; null: on the host. */
  readonly sandbox: SandboxGrant | null
  /** Files that it would run, which must be what they were when somebody allowed it. */
  readonly pins: readonly FilePin[]
  /** Null: the requester can write none of them, or nobody allowed these very files. */
  readonly stand_in: StandIn | null
  /** The description of the ACL entry that allows it. */
  readonly matched_acl: string
  readonly principal: PermitPrincipal
}

declare const brand: unique symbol

/** Made by `authorize` alone, frozen through and through. */
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

/** For `authorize` alone (a test holds every other file to that). Copies, freezes and marks. */
export const sealPermit = (fields: PermitFields): Permit => {
  const permit = Object.freeze({
    argv: Object.freeze([...fields.argv]),
    executable: Object.freeze({ ...fields.executable }),
    cwd: fields.cwd,
    cwd_descriptor: fields.cwd_descriptor,
    env: Object.freeze({ ...fields.env }),
    caps: Object.freeze({ ...fields.caps }),
    terminal: fields.terminal && Object.freeze({ ...fields.terminal }),
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

/** True for the very object that `authorize` made; a copy or a likeness of one is none. */
export const isPermit = (thing: unknown): thing is Permit => typeof thing === 'object' && thing !== null && permits.has(thing)
