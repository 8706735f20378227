import fc from 'fast-check'
import {
  EXEC_PREFIX,
  execFrame,
  type ExecExit,
  type ExecFrame,
  type ExecRequest,
  type ExecRules,
  type ExecRulesRequest,
} from '../../src/protocol/wire/exec.ts'
import { AGENT_SIGNATURE_BYTES, STDIN_PIECE_BYTES } from '../../src/protocol/limits/wire.ts'
import { DENIAL_REASONS, DETACHED_STATES, WAITING_REASONS, WARNING_KINDS } from '../../src/protocol/reasons.ts'
import { MAX_APPROVAL_WAIT_MS, MAX_MESH_APPROVERS } from '../../src/protocol/limits/approvals.ts'

const hexId = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex'))
const bytes32 = fc.uint8Array({ minLength: 32, maxLength: 32 })
const request_id = fc.uuid({ version: 7 })
const uint = fc.nat({ max: Number.MAX_SAFE_INTEGER })
const ends = { version: fc.constant<1>(1), request_id, from_agent: hexId, from_machine: hexId, to_agent: hexId, to_machine: hexId }

export const anyExecRequest: fc.Arbitrary<ExecRequest> = fc.record({
  ...ends,
  stream_nonce: bytes32,
  created_at_ms: uint,
  argv: fc.array(fc.string({ unit: 'grapheme' }), { maxLength: 8 }),
  stdin: fc.option(fc.array(bytes32, { minLength: 1, maxLength: 4 }).map((pieces) => ({ len: pieces.length * STDIN_PIECE_BYTES, pieces }))),
  timeout_ms: fc.option(uint),
  cwd: fc.option(fc.string()),
  clamp: fc.boolean(),
})

export const anyExecExit: fc.Arbitrary<ExecExit> = fc.record({
  ...ends,
  request_sha256: bytes32,
  code: fc.option(fc.nat({ max: 255 })),
  signal: fc.option(fc.integer({ min: 1, max: 127 })),
  duration_ms: uint,
  stdout_bytes_total: uint,
  stderr_bytes_total: uint,
  stdout_sha256: bytes32,
  stderr_sha256: bytes32,
  truncated: fc.boolean(),
  denial_reason: fc.option(fc.constantFrom(...DENIAL_REASONS)),
})

export const anyExecRulesRequest: fc.Arbitrary<ExecRulesRequest> = fc.record({ ...ends, stream_nonce: bytes32, created_at_ms: uint })

export const anyExecRules: fc.Arbitrary<ExecRules> = fc.record({
  ...ends,
  request_sha256: bytes32,
  rules: fc.array(
    fc.record({
      description: fc.option(fc.string({ unit: 'grapheme', maxLength: 30 })),
      argv: fc.array(fc.oneof(fc.constantFrom('<INT>', '<URL_PATH>', 'http://h<URL_PATH>', '<ANY>', ''), fc.string()), { maxLength: 6 }),
      timeout_ms: uint,
      max_stdout_bytes: uint,
      max_stderr_bytes: uint,
      max_stdin_bytes: uint,
      detach: fc.option(fc.record({ lifetime_ms: uint, keep_bytes: uint })),
      terminal: fc.boolean(),
      record: fc.boolean(),
      watch: fc.boolean(),
    }),
    { maxLength: 5 },
  ),
  left_out: uint,
})

const signed = {
  body: fc.uint8Array({ minLength: 1, maxLength: 600 }),
  signature: fc.uint8Array({ minLength: AGENT_SIGNATURE_BYTES, maxLength: AGENT_SIGNATURE_BYTES }),
}
const chunk = { request_id, seq: uint, data: fc.uint8Array({ maxLength: 600 }) }

export const anyExecFrame: fc.Arbitrary<ExecFrame> = fc.oneof(
  fc.record({ type: fc.constant('request' as const), ...signed }),
  fc.record({ type: fc.constant('lease_renew' as const), request_id }),
  fc.record({ type: fc.constant('started' as const), request_id, pid: uint }),
  fc.record({ type: fc.constantFrom('stdout' as const, 'stderr' as const), ...chunk }),
  fc.record({
    type: fc.constant('warning' as const),
    request_id,
    kind: fc.constantFrom(...WARNING_KINDS),
    message: fc.string({ maxLength: 100 }),
  }),
  fc.record({
    type: fc.constantFrom(...(['exit', 'rules_request', 'rules', 'approval_request', 'approval_statement'] as const)),
    ...signed,
  }),
  fc.record({ type: fc.constantFrom(...(['detach_request', 'detached_ask', 'terminal_request'] as const)), ...signed }),
  fc.record({
    type: fc.constant('detached' as const),
    request_id,
    state: fc.constantFrom(...DETACHED_STATES),
    request_sha256: bytes32,
    kept: uint,
    dropped: uint,
    keep_bytes: uint,
    lifetime_left_ms: fc.option(uint),
    kept_for_ms: fc.option(uint),
    stdout_before: uint,
    stderr_before: uint,
  }),
  fc.record({ type: fc.constant('terminal_input' as const), request_id, seq: uint, ...signed }),
  fc.record({ type: fc.constant('cancel' as const), request_id }),
  fc.record({ type: fc.constant('stdin' as const), ...chunk, eof: fc.boolean() }),
  fc.record({ type: fc.constant('ack' as const), request_id, stdin: uint, stdout: uint, stderr: uint }),
  fc.record({ type: fc.constant('resume' as const), request_id, stdout: uint, stderr: uint, request_nonce: bytes32 }),
  fc.record({ type: fc.constant('resumed' as const), request_id, stdin: uint }),
  fc.record({ type: fc.constant('gone' as const), request_id, unseen: fc.boolean() }),
  fc.record({
    type: fc.constant('waiting' as const),
    request_id,
    expires_in_ms: fc.nat({ max: MAX_APPROVAL_WAIT_MS }),
    approvals_needed: fc.nat({ max: MAX_MESH_APPROVERS }),
    approvals_given: fc.nat({ max: MAX_MESH_APPROVERS }),
    reason: fc.constantFrom(...WAITING_REASONS),
  }),
)

/** The body of a direct message: the prefix and the frame. */
export const encodeExecBody = (frame: ExecFrame): Uint8Array => Buffer.concat([EXEC_PREFIX, execFrame.encode(frame)])
