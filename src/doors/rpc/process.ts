import { isUtf8 } from 'node:buffer'
import type { Clock } from '../../base/clock.ts'
import { AppError, ERROR_TABLE } from '../../base/errors.ts'
import { signalName } from '../../base/format.ts'
import { Condition } from '../../base/wait-queue.ts'
import type { LocalOutcome, LocalRunHandle, LocalRunEvent, LocalRunSink, RunWaiting } from '../../executor-api/local.ts'
import { jsonText } from '../../protocol/lines.ts'
import type { ProcessStatus } from '../../protocol/rexd/results.ts'
import { toBase64, unfinished } from '../../protocol/text.ts'
import type { RpcId } from './message.ts'

export interface EncodedOutput {
  readonly data: string
  readonly encoding: 'utf8' | 'base64'
}

/** In characters. Small output of terminals stays readable, and costs little. */
const SMALL = 1_024

/** JSON encodes a control character as six characters (RFC 8259, section 7), a line feed or a quote as two. */
const growsTooMuch = (text: string): boolean => text.length >= SMALL && jsonText(text).length > 2 * text.length + 2

/** Encodes a stream as UTF-8 text, or as base64 if it is not UTF-8 or JSON would enlarge it too much. Characters are never cut. */
export class OutputText {
  #held: Uint8Array = new Uint8Array(0)

  /** Null means that more bytes are needed. */
  push(bytes: Uint8Array): EncodedOutput | null {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes])
    const end = all.length - unfinished(all)
    const whole = all.subarray(0, end)
    if (!isUtf8(whole)) {
      this.#held = new Uint8Array(0)
      return { data: toBase64(all), encoding: 'base64' }
    }
    const text = Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength).toString('utf8')
    // A copy, so that three bytes do not retain a whole frame.
    this.#held = Uint8Array.from(all.subarray(end))
    if (end === 0) return null
    return growsTooMuch(text) ? { data: toBase64(whole), encoding: 'base64' } : { data: text, encoding: 'utf8' }
  }

  /** The incomplete character at the end of the stream. */
  end(): EncodedOutput | null {
    const rest = this.#held
    this.#held = new Uint8Array(0)
    return rest.length === 0 ? null : { data: toBase64(rest), encoding: 'base64' }
  }
}

/** Sends an event to the client of the session. Returns a promise while the client is behind. */
export type Emit = (method: string, params: Readonly<Record<string, unknown>>) => void | Promise<void>

export interface RpcProcessInit {
  readonly sessionId: string
  /** ID of the call that starts the process. Undefined means the client does not want `exec.waiting`. */
  readonly call: RpcId | undefined
  readonly argv: readonly string[]
  /** Whether the process ends when output is dropped. */
  readonly failOnLimit: boolean
  /** Whether the process runs on a terminal, which has separate events. */
  readonly terminal: boolean
  /** Whether the process continues after its session. */
  readonly detached: boolean
}

/** Limits of one wait for a process. */
export interface WaitInit {
  /** Null means no timeout. */
  readonly timeoutMs: number | null
  readonly unreadMs: number | null
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal
}

/** One process of a session. It sends its output as events and keeps its result. */
export class RpcProcess implements LocalRunSink {
  readonly init: RpcProcessInit
  /** Size of the argv as JSON. */
  readonly argvSize: number
  #emit: Emit
  readonly #clock: Clock
  readonly #streams = {
    stdout: { text: new OutputText(), seq: 0, bytes: 0 },
    stderr: { text: new OutputText(), seq: 0, bytes: 0 },
  }
  readonly #released = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<void>()
  readonly #waiters = new Condition()
  /** Settles when the client has taken the last output. */
  #behind: Promise<void> | null = null
  #run: LocalRunHandle | null = null
  #outcome: LocalOutcome | null = null
  #over = false
  /** The client has taken the last event. */
  #taken = false
  #timedOut = false
  #limitHit = false
  /** Number of processes that the program left running and that were ended with it, or null. */
  #descendantsEnded: number | null = null
  /** ID of the process while an approval is pending, or null before. */
  #asked: string | null = null
  readonly #withdrawn = new AbortController()

  /** Aborts when the client stops waiting for the start of the process. */
  readonly gone: AbortSignal

  constructor(deps: { emit: Emit; clock: Clock; gone?: AbortSignal }, init: RpcProcessInit) {
    this.#emit = deps.emit
    this.gone = AbortSignal.any([this.#withdrawn.signal, ...(deps.gone === undefined ? [] : [deps.gone])])
    this.#clock = deps.clock
    this.init = init
    this.argvSize = Buffer.byteLength(JSON.stringify(init.argv))
  }

  /** Attaches the run that sends events to this sink. Settles when all its events were taken. */
  async attach(run: LocalRunHandle): Promise<void> {
    this.#run = run
    // The approval arrived just as the call was withdrawn.
    if (this.#withdrawn.signal.aborted) run.cancel()
    await this.#finish(await run.ended)
  }

  get run(): LocalRunHandle {
    if (this.#run === null) throw new AppError('internal', 'the process has no run yet')
    return this.#run
  }

  get id(): string {
    return `p_${this.run.requestId}`
  }

  get over(): boolean {
    return this.#over
  }

  /** The program has ended, but its events were not taken. */
  get unread(): boolean {
    return this.run.over && !this.#taken
  }

  /** Settles when the end was reported. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  get summary(): Readonly<Record<string, unknown>> {
    return { process_id: this.id, argv: this.init.argv, started_at: this.run.startedAt, cwd: this.run.cwd, ...this.status }
  }

  /** After the end of the session, output is counted but not sent. */
  silence(): void {
    // Releases the events of the session.
    this.#emit = () => undefined
  }

  /** The client knows the ID, so events may be sent. */
  release(): void {
    this.#released.resolve()
  }

  /** Sent before the answer to the call. */
  waiting({ request_id, question_id, expires_at_ms }: RunWaiting): void {
    const { sessionId: session_id, call } = this.init
    const process_id = `p_${request_id}`
    this.#asked = process_id
    const expires_in_ms = Math.max(0, expires_at_ms - this.#clock.now())
    if (call !== undefined) void this.#emit('exec.waiting', { session_id, process_id, call, question_id, expires_in_ms })
  }

  /** Withdraws the approval request if it is about the process of this ID. */
  withdraw(id: string): boolean {
    if (this.#asked !== id) return false
    this.#withdrawn.abort(new AppError('conflict', 'it was withdrawn before it started', { data: { reason: 'withdrawn' } }))
    return true
  }

  async event(event: LocalRunEvent): Promise<void> {
    await this.#released.promise
    if (event.type === 'warning') {
      if (event.kind === 'duration_cap_hit') this.#timedOut = true
      if (event.kind === 'descendants_ended') this.#descendantsEnded = event.amount ?? null
      if (event.kind === 'stdout_cap_hit' || event.kind === 'stderr_cap_hit') this.#limitHit = true
      return
    }
    const stream = this.#streams[event.type]
    stream.bytes += event.data.length
    const output = stream.text.push(event.data)
    if (output !== null) await this.#say(event.type, output)
  }

  get status(): ProcessStatus {
    const { stdout, stderr } = this.#streams
    const outcome = this.#over ? this.#outcome : null
    const number = outcome?.signal ?? null
    const signal = number === null ? null : (signalName(number) ?? `SIG${number}`)
    return {
      status: !this.#over ? 'running' : this.#timedOut ? 'timed_out' : signal === null ? 'exited' : 'killed',
      exit_code: outcome?.code ?? null,
      signal,
      bytes_stdout: outcome?.stdout_bytes_total ?? stdout.bytes,
      bytes_stderr: outcome?.stderr_bytes_total ?? stderr.bytes,
      held: this.#behind !== null,
      ...this.#left,
    }
  }

  get #left(): Pick<ProcessStatus, 'descendants_ended'> {
    return this.#over && this.#descendantsEnded !== null ? { descendants_ended: this.#descendantsEnded } : {}
  }

  /**
   * Resolves with the status at the end or the timeout. Throws `output_limit_exceeded` if that ended the process. Without a timeout, throws
   * `resource_limit` if the process was paused for `unreadMs`, which is null if the client has a connection.
   */
  async wait({ timeoutMs, unreadMs, signal }: WaitInit): Promise<ProcessStatus> {
    let behind: Promise<void> | null
    do {
      behind = this.#behind
      if (!this.#over) await this.#waiters.waitAtMost({ clock: this.#clock, timeoutMs: timeoutMs ?? unreadMs, signal })
      if (timeoutMs !== null || unreadMs === null || signal.aborted) break
      if (behind !== null && behind === this.#behind) throw this.#unreadFor(unreadMs)
    } while (!this.#over)
    if (this.#over && this.#limitExceeded)
      throw new AppError('output_limit_exceeded', undefined, { data: { process_id: this.id, ...this.status } })
    return this.status
  }

  #unreadFor(unreadMs: number): AppError {
    const why = `its output has not been read for ${unreadMs / 1_000} s; it continues after the events of its session are read`
    return new AppError('resource_limit', why, { data: { limit: 'unread_ms', max: unreadMs, process_id: this.id, ...this.status } })
  }

  get #limitExceeded(): boolean {
    return this.#limitHit && this.init.failOnLimit
  }

  get ptyId(): string {
    return `t_${this.run.requestId}`
  }

  get #ids(): Readonly<Record<string, string>> {
    const { sessionId, terminal } = this.init
    return { session_id: sessionId, ...(terminal ? { pty_id: this.ptyId } : {}), process_id: this.id }
  }

  async #say(name: 'stdout' | 'stderr', { data, encoding }: EncodedOutput): Promise<void> {
    const seq = ++this.#streams[name].seq
    const behind = this.#emit(this.init.terminal ? 'pty.output' : `exec.${name}`, { ...this.#ids, seq, data, encoding })
    if (behind === undefined) return
    this.#behind = behind
    await behind
    this.#behind = null
  }

  async #finish(outcome: LocalOutcome | null): Promise<void> {
    await this.#released.promise
    for (const name of ['stdout', 'stderr'] as const) {
      const rest = this.#streams[name].text.end()
      if (rest !== null) await this.#say(name, rest)
    }
    this.#outcome = outcome
    this.#over = true
    // Sent before `exec.wait` is answered, which does not wait until they are read.
    const room = [this.#sayError(this.#errorOf(outcome)), this.#sayExit(outcome)]
    this.#waiters.notifyAll()
    this.#ended.resolve()
    for (const one of room) await one
    this.#taken = true
  }

  #errorOf(outcome: LocalOutcome | null): AppError | null {
    if (outcome === null) return new AppError('shutting_down', 'the executor has ended, so the end of the process is unknown')
    if (outcome.lost !== null) return new AppError('peer_unreachable', `the end of the process is unknown: ${outcome.lost}`)
    if (outcome.denial_reason !== null)
      return new AppError('file_error', outcome.detail ?? 'the program could not be started', { data: { reason: outcome.denial_reason } })
    return this.#limitExceeded ? new AppError('output_limit_exceeded') : null
  }

  #sayError(error: AppError | null): void | Promise<void> {
    if (error === null) return undefined
    const data = { code: error.code, ...error.data }
    return this.#emit('exec.error', { ...this.#ids, code: ERROR_TABLE[error.code].rpc, message: error.message, data })
  }

  #sayExit(outcome: LocalOutcome | null): void | Promise<void> {
    if (outcome === null || outcome.denial_reason !== null || outcome.lost !== null) return undefined
    const { exit_code, signal, bytes_stdout, bytes_stderr } = this.status
    const { duration_ms, truncated } = outcome
    const exit = {
      ...this.#ids,
      exit_code,
      signal,
      timed_out: this.#timedOut,
      duration_ms,
      bytes_stdout,
      bytes_stderr,
      truncated,
      ...this.#left,
    }
    return this.#emit(this.init.terminal ? 'pty.exit' : 'exec.exit', exit)
  }
}
