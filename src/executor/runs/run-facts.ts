import { sha256 } from '../../identity/hash.ts'
import type { JournalExit } from '../../journal/events.ts'
import type { RunKey } from '../../journal/run-key.ts'
import type { FileRunPermit } from '../../policy/mesh/authorize-file.ts'
import type { Permit } from '../../policy/permit.ts'
import type { ProcessEnd } from '../../process/running-process.ts'
import { toHex } from '../../protocol/ids.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ExecExit } from '../../protocol/wire/exec.ts'

/** Fields of an Exit that describe the run. */
export type ExitFacts = Omit<
  ExecExit,
  'version' | 'request_id' | 'from_agent' | 'from_machine' | 'to_agent' | 'to_machine' | 'request_sha256'
>

const NO_OUTPUT = sha256()

export const neverRan = (denialReason: DenialReason | null): ExitFacts => ({
  code: null,
  signal: null,
  duration_ms: 0,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  stdout_sha256: NO_OUTPUT,
  stderr_sha256: NO_OUTPUT,
  truncated: false,
  denial_reason: denialReason,
})

export const factsOf = (end: ProcessEnd): ExitFacts => ({
  code: end.code,
  signal: end.signal,
  duration_ms: end.duration_ms,
  stdout_bytes_total: end.stdout.bytes_total,
  stderr_bytes_total: end.stderr.bytes_total,
  stdout_sha256: end.stdout.sha256,
  stderr_sha256: end.stderr.sha256,
  truncated: end.truncated,
  denial_reason: null,
})

/** Fields of an `exit` line. */
export const endOf = (facts: ExitFacts): Omit<JournalExit, 'event' | keyof RunKey> => ({
  code: facts.code,
  signal: facts.signal,
  duration_ms: facts.duration_ms,
  stdout_bytes: facts.stdout_bytes_total,
  stderr_bytes: facts.stderr_bytes_total,
  stdout_sha256: toHex(facts.stdout_sha256),
  stderr_sha256: toHex(facts.stderr_sha256),
  truncated: facts.truncated,
})

/** The hash of a single piece, or the hash of several hashes, or null without stdin. */
export const stdinDigest = (pieces: readonly Uint8Array[]): string | null =>
  pieces.length === 0 ? null : toHex(pieces.length === 1 ? pieces[0]! : sha256(...pieces))

/** Fields of a `request` line from permit and stdin. */
export const evidenceOf = (permit: Permit | FileRunPermit, stdin: readonly Uint8Array[]) => ({
  matched_acl: permit.matched_acl,
  stdin_sha256: stdinDigest(stdin),
  timeout_ms: permit.caps.timeout_ms,
  // A file command starts no program.
  ...('command' in permit ? { executable: null, account: null } : programOf(permit)),
})

const programOf = ({ executable: { path, dev, ino }, account }: Permit) => ({
  executable: { path, dev: `${dev}`, ino: `${ino}` },
  account: account?.name ?? null,
})
