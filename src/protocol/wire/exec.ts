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

/** Pieces of stdin of this length; no bytes are one piece too, so that their hash is signed. */
export const stdinPieces = (length: number): number => Math.max(1, Math.ceil(length / STDIN_PIECE_BYTES))

const stdin = record('exec-stdin', { len: uint(MAX_STDIN_BYTES), pieces: list(sha256, MAX_STDIN_PIECES) })
export type SignedStdin = ValueOf<typeof stdin>

/** All of stdin, before it comes: its length, and the SHA-256 of each of its pieces in order. */
export const signedStdin: Field<SignedStdin> = {
  cddl: stdin.cddl,
  toCbor: (value) => stdin.toCbor(value),
  fromCbor: (value, path) => {
    const { len, pieces } = stdin.fromCbor(value, path)
    if (pieces.length !== stdinPieces(len)) throw new AppError('malformed', `${path}: expected ${stdinPieces(len)} pieces`)
    return { len, pieces }
  },
}

/** How what is signed begins: which request it is about, who signs and who is meant. */
export const PARTIES = {
  version: literal(1),
  request_id: requestId,
  from_agent: id32,
  from_machine: id32,
  to_agent: id32,
  to_machine: id32,
}

/**
 * What a requester asks, signed with its agent key. Names the target agent and machine and quotes the
 * responder's nonce of this stream, so it means nothing at another host, later, or after a restart.
 */
export const execRequest = record('exec-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds; evidence only, freshness comes from the nonce. */
  created_at_ms: uint(),
  argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
  /** What follows in Stdin frames; null = /dev/null. */
  stdin: nullable(signedStdin),
  /** Milliseconds; null = the responder's cap. */
  timeout_ms: nullable(uint()),
  /** Always refused in this version; carried so that the refusal is explicit. */
  cwd: nullable(text(MAX_TEXT)),
  /** A timeout above the cap runs at the cap with a warning instead of being denied. */
  clamp: bool,
})
export type ExecRequest = ValueOf<typeof execRequest>

/** How a run ended, signed with the executing agent's key: evidence that stands without the link. */
export const execExit = record('exec-exit', {
  ...PARTIES,
  /** SHA-256 of the exact bytes of the Request. */
  request_sha256: sha256,
  /** Exit status; null when a signal ended the child or it never ran. */
  code: nullable(uint(MAX_EXIT_STATUS)),
  /** The Unix signal that really ended the child. */
  signal: nullable(range(1, MAX_SIGNAL)),
  duration_ms: uint(),
  /** All bytes the child wrote, those beyond the cap included. */
  stdout_bytes_total: uint(),
  stderr_bytes_total: uint(),
  /** Of the bytes that were forwarded. */
  stdout_sha256: sha256,
  stderr_sha256: sha256,
  /** A cap cut something: bytes were dropped, or the duration cap ended the run. */
  truncated: bool,
  denial_reason: nullable(oneOf(DENIAL_REASONS)),
})
export type ExecExit = ValueOf<typeof execExit>

/** Domain of the agent key's signature over the exact bytes of an encoded `exec-rules-request`. */
export const EXEC_RULES_REQUEST_DOMAIN = 'x0x-exec-rules-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `exec-rules`. */
export const EXEC_RULES_DOMAIN = 'x0x-exec-rules-v1'

/** Asks which commands its own pair may run. Signed and bound to one stream of one host, as a Request is; nothing runs for it. */
export const execRulesRequest = record('exec-rules-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds; evidence only. */
  created_at_ms: uint(),
})
export type ExecRulesRequest = ValueOf<typeof execRulesRequest>

const RULE = {
  /** Of its entry in the ACL; null = the entry has none. */
  description: nullable(text(MAX_DESCRIPTION_BYTES)),
  /** Its tokens as in the ACL: literals and templates. */
  argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
  /** The caps of a run of it; 0 bytes of stdin = it takes none. */
  timeout_ms: uint(),
  max_stdout_bytes: uint(),
  max_stderr_bytes: uint(),
  max_stdin_bytes: uint(),
}
const detachRule = record('exec-detach-rule', {
  ...RULE,
  /** Of a run that outlives its caller, whose stdout and stderr are kept together; null = no run of it may. */
  detach: nullable(record('exec-rule-detach', { lifetime_ms: uint(), keep_bytes: uint() })),
})
/** One command that a pair may run, as its host tells it. */
export type ExecRule = ValueOf<typeof detachRule>

const answer = {
  ...PARTIES,
  /** SHA-256 of the exact bytes of the question. */
  request_sha256: sha256,
}
/** Commands that did not fit. */
const left_out = uint()

/** Which commands the asking pair may run, signed with the answering agent's key. The same where there is no ACL, no entry, or none that may be told. */
export const execDetachRules = record('exec-detach-rules', { ...answer, rules: list(detachRule, MAX_RULES), left_out })
export type ExecRules = ValueOf<typeof execDetachRules>

const signed = { body: bytes(1, MAX_FRAME_DATA), signature: bytes(AGENT_SIGNATURE_BYTES) }
/** Of what is asked: its requester may have signed it alone or in a batch (`identity/batch-signing.ts`). */
const asked = { body: bytes(1, MAX_FRAME_DATA), signature: bytes(AGENT_SIGNATURE_BYTES, MAX_BATCH_SIGNATURE_BYTES) }
const chunk = { request_id: requestId, seq: uint(), data: bytes(0, MAX_FRAME_DATA) }

/** Frames that are the same wherever a run is carried: between machines and between the halves of one. */
export const RUN_FRAMES = {
  /** Server to client: the process runs and this is its pid. */
  started: [2, { request_id: requestId, pid: uint() }],
  /** Server to client; `seq` from 0 per stream, without holes. */
  stdout: [3, chunk],
  stderr: [4, chunk],
  /** Server to client; does not end the run. */
  warning: [5, { request_id: requestId, kind: oneOf(WARNING_KINDS), message: text(MAX_WARNING_TEXT) }],
  /** Client to server: end the run. */
  cancel: [7, { request_id: requestId }],
  /** Client to server; `seq` from 0; `eof` marks the last. */
  stdin: [8, { ...chunk, eof: bool }],
  /** Both ways: everything below these sequence numbers has been consumed; 0 where nothing was. */
  ack: [9, { request_id: requestId, stdin: uint(), stdout: uint(), stderr: uint() }],
} as const

const detachedRun = {
  request_id: requestId,
  state: oneOf(DETACHED_STATES),
  /** Of the exact bytes of the Request that runs, or ran; zeros where it is unknown or expired. */
  request_sha256: sha256,
  /** Bytes of output that are kept, that were dropped, and that may be kept at most. */
  kept: uint(),
  dropped: uint(),
  keep_bytes: uint(),
  /** Milliseconds until it is ended; null: it does not run. */
  lifetime_left_ms: nullable(uint()),
  /** Milliseconds until it is forgotten; null: it is not over. */
  kept_for_ms: nullable(uint()),
  /** Of an attach: what of each stream came before the first byte that follows. */
  stdout_before: uint(),
  stderr_before: uint(),
}

/** Frames of a run, field for field those of the seed, and Stdin and Ack. */
export const execFrame = union('exec-frame', {
  /** Client to server: `body` is an encoded `exec-request`. */
  request: [0, asked],
  /** Client to server, every 2 s: the caller is still there. */
  lease_renew: [1, { request_id: requestId }],
  ...RUN_FRAMES,
  /** Server to client, always the last: `body` is an encoded `exec-exit`. */
  exit: [6, signed],
  /**
   * Client to server, the first frame of a new stream: go on with the run here; everything below these numbers
   * has come. `request_nonce` is what the Request quoted.
   */
  resume: [10, { request_id: requestId, stdout: uint(), stderr: uint(), request_nonce: bytes(NONCE_BYTES) }],
  /** Server to client, the first answer to Resume: stdin below this number has come. What is missing follows. */
  resumed: [11, { request_id: requestId, stdin: uint() }],
  /**
   * Server to client, the other answer to Resume: there is no such run of this client (any more). `unseen`: there
   * never was one, since the nonce of its Request was never used, and from now on never will be.
   */
  gone: [12, { request_id: requestId, unseen: bool }],
  /** Client to server, the first and only frame of a new stream: `body` is an encoded `exec-rules-request`. */
  rules_request: [13, asked],
  /** Server to client, the only answer to it but an Exit with a denial: `body` is an encoded `exec-rules`. */
  rules: [14, signed],
  /**
   * Server to client, before Started: nothing runs yet, because somebody
   * must allow it. Comes again when the number of approvals changes, and on every stream that resumes the run meanwhile.
   */
  waiting: [
    15,
    {
      request_id: requestId,
      /** When it is denied where nobody has decided. */
      expires_in_ms: uint(MAX_APPROVAL_WAIT_MS),
      /** Of other agents, and how many of these have come. 0: it waits for a human there alone. */
      approvals_needed: uint(MAX_MESH_APPROVERS),
      approvals_given: uint(MAX_MESH_APPROVERS),
      reason: oneOf(WAITING_REASONS),
    },
  ],
  /** Client to server, the first frame of a new stream: `body` is an encoded `approval-request`. Lease renewals follow. */
  approval_request: [16, signed],
  /** Server to client, the only answer to it but an Exit with a denial: `body` is an encoded `approval-statement`. */
  approval_statement: [17, signed],
  /**
   * Client to server, once, behind a Request or a request to detach: the trace and the span of the
   * requester that it belongs to. It changes nothing of the run, and is for whoever observes it.
   */
  trace: [18, { request_id: requestId, trace_id: bytes(TRACE_ID_BYTES), span_id: bytes(SPAN_ID_BYTES) }],
  /** Client to server, the first frame of a new stream, behind which there may be a `trace` alone: `body` is an encoded `exec-detach-request`. */
  detach_request: [19, asked],
  /** Client to server, the first frame of a new stream: `body` is an encoded `exec-detached-ask`. After `attach` Ack and lease renewals follow. */
  detached_ask: [20, asked],
  /** Server to client: how a detached run is. The answer to both of the above, but where the request is denied. */
  detached: [21, detachedRun],
})
export type ExecFrame = ValueOf<typeof execFrame>
export type ExecFrameType = ExecFrame['type']

/** The body of a direct message: the prefix and the frame. Throws only `malformed`. */
export const decodeExecBody = (body: Uint8Array): ExecFrame => {
  if (!EXEC_PREFIX.every((byte, index) => body[index] === byte)) throw new AppError('malformed', 'not an exec body')
  return execFrame.decode(body.subarray(EXEC_PREFIX.length))
}

/** Throws `malformed` when the tokens together are longer than a Request can carry. */
export const checkArgvSize = (argv: readonly string[]): void => {
  const total = argv.reduce((sum, token) => sum + Buffer.byteLength(token), 0)
  if (argv.length > MAX_ARGV_TOKENS || total > MAX_ARGV_BYTES)
    throw new AppError('malformed', `argv has at most ${MAX_ARGV_TOKENS} tokens and ${MAX_ARGV_BYTES} bytes`)
}
