import { createHash } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { isAppError } from '../../base/errors.ts'
import { VERSION } from '../../base/runtime.ts'
import { visibleJson } from '../../base/visible-text.ts'
import type { LocalRunHandle } from '../../executor-api/local.ts'
import { RECORD_VERSION, type RecordLine, type RunRecordEvent } from '../../protocol/tool-record.ts'
import { type ToolRequest, requestHash } from './tool-request.ts'
import { type ToolResult, answerOf } from './tool-result.ts'
import { framed } from './untrusted-frame.ts'

/** Receives the events of all runs in order. */
export interface ToolRunRecorder {
  record(run: string, event: RunRecordEvent): void
}

/** Hash of the text that a model gets for a result, hex. */
export const textHash = (result: ToolResult): string =>
  createHash('sha256')
    .update(framed(JSON.stringify(result), answerOf(result).foreign))
    .digest('hex')

export const requestEvent = (asked: ToolRequest, askedAt: number): RunRecordEvent => {
  const { operation, command, args, cwd, target, env, timeout_ms, wish } = asked
  const request = { operation, command, args, cwd, target, env: Object.keys(env), timeout_ms, wish }
  return { event: 'request', request, request_hash: requestHash(asked), asked_at: askedAt }
}

export const startedEvent = (
  run: Pick<LocalRunHandle, 'startedAt' | 'cwd' | 'ranOn' | 'cuts'> & { readonly caps: Pick<LocalRunHandle['caps'], 'timeout_ms'> },
): RunRecordEvent => {
  const { startedAt, cwd, ranOn, cuts, caps } = run
  return { event: 'started', started_at: startedAt, cwd, timeout_ms: caps.timeout_ms, ran_on: ranOn ?? undefined, cuts }
}

export const refusalEvent = (error: unknown): RunRecordEvent =>
  isAppError(error)
    ? { event: 'refused', code: error.code, message: error.message, data: error.data }
    : { event: 'refused', code: null, message: '', data: {} }

/** `of_dropped`: the result was made from text that has been dropped since. */
export const resultEvent = (
  view: { readonly stdout: number; readonly stderr: number },
  result: ToolResult,
  of_dropped: boolean,
): RunRecordEvent => ({
  event: 'result',
  view,
  result: { ...result },
  text_sha256: textHash(result),
  of_dropped,
})

const encoded = (line: RecordLine): Buffer => Buffer.from(`${visibleJson(JSON.stringify(line))}\n`)

/** Writes the events of runs as lines of a record. */
export class LineRecorder implements ToolRunRecorder {
  readonly #clock: Clock
  readonly #write: (line: Buffer) => void
  readonly #began: number

  /** `write` must not block. */
  constructor(deps: { readonly clock: Clock; readonly write: (line: Buffer) => void }, init: { readonly whoami: string }) {
    this.#clock = deps.clock
    this.#write = deps.write
    this.#began = this.#clock.monotonic()
    const began_at = new Date(this.#clock.now()).toISOString()
    this.#write(encoded({ event: 'record', version: RECORD_VERSION, x0x: VERSION, whoami: init.whoami, began_at }))
  }

  record(run: string, event: RunRecordEvent): void {
    const { event: name, ...fields } = event
    const ms = Math.round(this.#clock.monotonic() - this.#began)
    this.#write(encoded({ event: name, run, ms, ...fields } as RecordLine))
  }
}

/** Number and SHA-256 of a record's lines. The last line of a record states both for the lines before it. */
export class RecordDigest {
  readonly #hash = createHash('sha256')
  #lines = 0

  /** Takes a line without its line feed. */
  add(line: Uint8Array): void {
    this.#hash.update(line).update('\n')
    this.#lines += 1
  }

  /** Of the lines so far; `sha256` in hex. */
  value(): { readonly lines: number; readonly sha256: string } {
    return { lines: this.#lines, sha256: this.#hash.copy().digest('hex') }
  }
}
