import { AppError } from '../../base/errors.ts'
import { MAX_APPROVAL_WAIT_MS, MAX_MESH_APPROVERS } from '../limits/approvals.ts'
import {
  AGENT_SIGNATURE_BYTES,
  MAX_ARGV_BYTES,
  MAX_ARGV_TOKENS,
  MAX_BATCH_SIGNATURE_BYTES,
  MAX_DESCRIPTION_BYTES,
  MAX_EXIT_STATUS,
  MAX_FRAME_DATA,
  MAX_RULES,
  MAX_SIGNAL,
  MAX_STDIN_BYTES,
  MAX_STDIN_PIECES,
  MAX_TEXT,
  MAX_WARNING_TEXT,
  NONCE_BYTES,
  STDIN_PIECE_BYTES,
} from '../limits/wire.ts'
import { DENIAL_REASONS, DETACHED_STATES, WAITING_REASONS, WARNING_KINDS } from '../reasons.ts'
import { SPAN_ID_BYTES, TRACE_ID_BYTES } from '../trace-context.ts'
import {
  type Field,
  type ValueOf,
  bool,
  bytes,
  id32,
  list,
  literal,
  nullable,
  oneOf,
  range,
  record,
  requestId,
  text,
  uint,
  union,
} from './schema.ts'

/** The first twelve bytes of a direct message that belongs to exec. */
export const EXEC_PREFIX: Uint8Array = new TextEncoder().encode('x0x-exec-v1\0')
/** Domain of the agent key's signature over the exact bytes of an encoded `exec-request`. */
export const EXEC_REQUEST_DOMAIN = 'x0x-exec-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `exec-exit`. */
export const EXEC_EXIT_DOMAIN = 'x0x-exec-exit-v1'

const sha256 = bytes(32)

/** Number of pieces of stdin of this length. Empty stdin is one piece, so that its hash is signed. */
export const stdinPieces = (length: number): number => Math.max(1, Math.ceil(length / STDIN_PIECE_BYTES))

const stdin = record('exec-stdin', { len: uint(MAX_STDIN_BYTES), pieces: list(sha256, MAX_STDIN_PIECES) })
export type SignedStdin = ValueOf<typeof stdin>

/** Length of stdin that follows later, and the SHA-256 of each of its pieces in order. */
export const signedStdin: Field<SignedStdin> = {
  cddl: stdin.cddl,
  toCbor: (value) => stdin.toCbor(value),
  fromCbor: (value, path) => {
    const { len, pieces } = stdin.fromCbor(value, path)
    if (pieces.length !== stdinPieces(len)) throw new AppError('malformed', `${path}: expected ${stdinPieces(len)} pieces`)
    return { len, pieces }
  },
}

/** First fields of signed messages. They name the request, the signer and the addressee. */
export const PARTIES = {
  version: literal(1),
  request_id: requestId,
  from_agent: id32,
  from_machine: id32,
  to_agent: id32,
  to_machine: id32,
}

/**
 * A request to run a command, signed with the requester's agent key. It names the target agent and machine and quotes the responder's nonce
 * of this stream. Therefore another host rejects it, and the target rejects it later or after a restart.
 */
export const execRequest = record('exec-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds, as evidence only, because the nonce proves freshness. */
  created_at_ms: uint(),
  argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
  /** Stdin in the frames that follow. Null means /dev/null. */
  stdin: nullable(signedStdin),
  /** Milliseconds. Null means the responder's maximum. */
  timeout_ms: nullable(uint()),
  /** Always refused in this version. It exists so that the refusal is explicit. */
  cwd: nullable(text(MAX_TEXT)),
  /** A timeout above the maximum is reduced with a warning instead of being denied. */
  clamp: bool,
})
export type ExecRequest = ValueOf<typeof execRequest>

/** How a run ended, signed with the executing agent's key. It is valid evidence without the link. */
export const execExit = record('exec-exit', {
  ...PARTIES,
  /** SHA-256 of the exact bytes of the Request. */
  request_sha256: sha256,
  /** Exit status, or null when a signal ended the child or it never ran. */
  code: nullable(uint(MAX_EXIT_STATUS)),
  /** The Unix signal that ended the child. */
  signal: nullable(range(1, MAX_SIGNAL)),
  duration_ms: uint(),
  /** All bytes that the child wrote, with those beyond the limit. */
  stdout_bytes_total: uint(),
  stderr_bytes_total: uint(),
  /** Digest of the forwarded bytes. */
  stdout_sha256: sha256,
  stderr_sha256: sha256,
  /** True if bytes were dropped or the maximum duration ended the run. */
  truncated: bool,
  denial_reason: nullable(oneOf(DENIAL_REASONS)),
})
export type ExecExit = ValueOf<typeof execExit>

/** Domain of the agent key's signature over the exact bytes of an encoded `exec-rules-request`. */
export const EXEC_RULES_REQUEST_DOMAIN = 'x0x-exec-rules-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `exec-rules`. */
export const EXEC_RULES_DOMAIN = 'x0x-exec-rules-v1'

/** Queries which commands the sender's pair may run. Signed and bound to one stream of one host. It does not start a run. */
export const execRulesRequest = record('exec-rules-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds, as evidence only. */
  created_at_ms: uint(),
})
export type ExecRulesRequest = ValueOf<typeof execRulesRequest>

const RULE = {
  /** Description of the ACL entry, or null if it lacks one. */
  description: nullable(text(MAX_DESCRIPTION_BYTES)),
  /** Literals and templates of the ACL. */
  argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
  /** Limits of a run. If `max_stdin_bytes` is 0, the run gets no stdin. */
  timeout_ms: uint(),
  max_stdout_bytes: uint(),
  max_stderr_bytes: uint(),
  max_stdin_bytes: uint(),
}
const detachRule = record('exec-detach-rule', {
  ...RULE,
  /** Limits of a detached run, with one limit for stdout and stderr together. Null means not allowed. */
  detach: nullable(record('exec-rule-detach', { lifetime_ms: uint(), keep_bytes: uint() })),
  /** It may run on a terminal. */
  terminal: bool,
  /** The host keeps a transcript of each run. */
  record: bool,
  /** Operators of the host may look on. */
  watch: bool,
})
/** One command that a pair may run, as its host reports it. */
export type ExecRule = ValueOf<typeof detachRule>

const answer = {
  ...PARTIES,
  /** SHA-256 of the exact bytes of the query. */
  request_sha256: sha256,
}
/** Number of commands that did not fit. */
const left_out = uint()

/** Commands that the requesting pair may run, signed by the answering agent. The reply does not reveal why the list is empty. */
export const execDetachRules = record('exec-detach-rules', { ...answer, rules: list(detachRule, MAX_RULES), left_out })
export type ExecRules = ValueOf<typeof execDetachRules>

const signed = { body: bytes(1, MAX_FRAME_DATA), signature: bytes(AGENT_SIGNATURE_BYTES) }
/** A signed request. The signature may be for it alone or for a batch (`identity/signing.ts`). */
const asked = { body: bytes(1, MAX_FRAME_DATA), signature: bytes(AGENT_SIGNATURE_BYTES, MAX_BATCH_SIGNATURE_BYTES) }
const chunk = { request_id: requestId, seq: uint(), data: bytes(0, MAX_FRAME_DATA) }

/** Frames that are the same between machines and between the two processes of one machine. */
export const RUN_FRAMES = {
  /** Server to client. The process runs with this PID. */
  started: [2, { request_id: requestId, pid: uint() }],
  /** Server to client. `seq` counts from 0 per stream, without gaps. */
  stdout: [3, chunk],
  stderr: [4, chunk],
  /** Server to client. The run continues. */
  warning: [5, { request_id: requestId, kind: oneOf(WARNING_KINDS), message: text(MAX_WARNING_TEXT) }],
  /** Client to server. Ends the run. */
  cancel: [7, { request_id: requestId }],
  /** Client to server. `seq` counts from 0. `eof` marks the last. */
  stdin: [8, { ...chunk, eof: bool }],
  /** Both directions. All sequence numbers below these were consumed, or 0. */
  ack: [9, { request_id: requestId, stdin: uint(), stdout: uint(), stderr: uint() }],
} as const

const detachedRun = {
  request_id: requestId,
  state: oneOf(DETACHED_STATES),
  /** Digest of the exact bytes of the Request, or zeros if unknown or expired. */
  request_sha256: sha256,
  /** Output that is stored, output that was dropped, and the maximum to store. */
  kept: uint(),
  dropped: uint(),
  keep_bytes: uint(),
  /** Milliseconds until the run is ended, or null if it is not running. */
  lifetime_left_ms: nullable(uint()),
  /** Milliseconds until its output is removed, or null if it has not ended. */
  kept_for_ms: nullable(uint()),
  /** Offset in each stream of the first byte that follows an attach. */
  stdout_before: uint(),
  stderr_before: uint(),
}

/** Frames of a run between two machines. */
export const execFrame = union('exec-frame', {
  /** Client to server. `body` is an encoded `exec-request`. */
  request: [0, asked],
  /** Client to server, every 2 s, to show that the requester still exists. */
  lease_renew: [1, { request_id: requestId }],
  ...RUN_FRAMES,
  /** Server to client, always the last. `body` is an encoded `exec-exit`. */
  exit: [6, signed],
  /**
   * Client to server, the first frame of a new stream. Resumes the run on this stream. All frames below these numbers have arrived.
   * `request_nonce` is that of the Request.
   */
  resume: [10, { request_id: requestId, stdout: uint(), stderr: uint(), request_nonce: bytes(NONCE_BYTES) }],
  /** Server to client, the first reply to Resume. All stdin frames below this number have arrived. Missing frames follow. */
  resumed: [11, { request_id: requestId, stdin: uint() }],
  /**
   * Server to client, the other reply to Resume. This client has no such run, or no longer. If `unseen`, it never had, because the nonce of
   * its Request was never used and never will be.
   */
  gone: [12, { request_id: requestId, unseen: bool }],
  /** Client to server, the first and only frame of a new stream. `body` is an encoded `exec-rules-request`. */
  rules_request: [13, asked],
  /** Server to client, the only reply to it except an Exit with a denial. `body` is an encoded `exec-rules`. */
  rules: [14, signed],
  /**
   * Server to client, before Started. The run needs an approval and has not started. Repeated when the number of approvals changes, and on
   * each stream that resumes the waiting run.
   */
  waiting: [
    15,
    {
      request_id: requestId,
      /** Time after which it is denied without a decision. */
      expires_in_ms: uint(MAX_APPROVAL_WAIT_MS),
      /** Needed and received statements of other agents. If 0 are needed, only a local approver must decide. */
      approvals_needed: uint(MAX_MESH_APPROVERS),
      approvals_given: uint(MAX_MESH_APPROVERS),
      reason: oneOf(WAITING_REASONS),
    },
  ],
  /** Client to server, the first frame of a new stream. `body` is an encoded `approval-request`. Lease renewals follow. */
  approval_request: [16, signed],
  /** Server to client, the only reply to it except an Exit with a denial. `body` is an encoded `approval-statement`. */
  approval_statement: [17, signed],
  /** Client to server, once, after a Request or a detach request. The requester's trace and span do not affect the run. */
  trace: [18, { request_id: requestId, trace_id: bytes(TRACE_ID_BYTES), span_id: bytes(SPAN_ID_BYTES) }],
  /** Client to server, the first frame of a new stream, then at most `trace`. `body` is an encoded `exec-detach-request`. */
  detach_request: [19, asked],
  /**
   * Client to server, the first frame of a new stream. `body` is an encoded `exec-detached-ask`. After `attach`, Ack and renewals follow.
   */
  detached_ask: [20, asked],
  /** Server to client. State of a detached run. The reply to both of the above, unless the request is denied. */
  detached: [21, detachedRun],
  /** Client to server, the first frame of a new stream, as `request`. `body` is an encoded `exec-terminal-request`. */
  terminal_request: [22, asked],
  /** Client to server. `body` is an encoded `exec-terminal-input` with the same number. Ack counts it in `stdin`. */
  terminal_input: [23, { request_id: requestId, seq: uint(), ...signed }],
})
export type ExecFrame = ValueOf<typeof execFrame>
export type ExecFrameType = ExecFrame['type']

/** Decodes the prefix and the frame of a direct message. Throws only `malformed`. */
export const decodeExecBody = (body: Uint8Array): ExecFrame => {
  if (!EXEC_PREFIX.every((byte, index) => body[index] === byte)) throw new AppError('malformed', 'not an exec body')
  return execFrame.decode(body.subarray(EXEC_PREFIX.length))
}

/** Throws `malformed` if the tokens together are longer than a Request can carry. */
export const checkArgvSize = (argv: readonly string[]): void => {
  const total = argv.reduce((sum, token) => sum + Buffer.byteLength(token), 0)
  if (argv.length > MAX_ARGV_TOKENS || total > MAX_ARGV_BYTES)
    throw new AppError('malformed', `argv has at most ${MAX_ARGV_TOKENS} tokens and ${MAX_ARGV_BYTES} bytes`)
}
