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

/** Characters: what a terminal is told now and then is read by people, and costs little as it is. */
const SMALL = 1_024

/** A control character is six in JSON (RFC 8259, section 7); a line feed or a quote is two. */
const growsTooMuch = (text: string): boolean => text.length >= SMALL && jsonText(text).length > 2 * text.length + 2

/** One stream of bytes as texts: UTF-8 where it is that and JSON does not blow it up, base64 where not. No character is cut in two. */
export class OutputText {
  #held: Uint8Array = new Uint8Array(0)

  /** Null: nothing can be said yet. */
  push(bytes: Uint8Array): EncodedOutput | null {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes])
    const end = all.length - unfinished(all)
    const whole = all.subarray(0, end)
    if (!isUtf8(whole)) {
      this.#held = new Uint8Array(0)
      return { data: toBase64(all), encoding: 'base64' }
    }
    const text = Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength).toString('utf8')
    // A copy of its own, so that three bytes do not keep a whole frame.
    this.#held = Uint8Array.from(all.subarray(end))
    if (end === 0) return null
    return growsTooMuch(text) ? { data: toBase64(whole), encoding: 'base64' } : { data: text, encoding: 'utf8' }
  }

  /** What is left when no more comes: the beginning of a character. */
  end(): EncodedOutput | null {
    const rest = this.#held
    this.#held = new Uint8Array(0)
    return rest.length === 0 ? null : { data: toBase64(rest), encoding: 'base64' }
  }
}

/** Says an event to whoever has the session; a promise while the reader is behind. */
export type Emit = (method: string, params: Readonly<Record<string, unknown>>) => void | Promise<void>

export interface RpcProcessInit {
  readonly sessionId: string
  /** By which its caller knows the call that starts it; undefined: it does not want to be told that somebody is asked first. */
  readonly call: RpcId | undefined
  readonly argv: readonly string[]
  /** It is ended when output is dropped. */
  readonly failOnLimit: boolean
  /** It runs on a terminal: its events are those of one. */
  readonly terminal: boolean
  /** It goes on when its session ends. */
  readonly detached: boolean
}

/** How long somebody waits for a process. */
export interface WaitInit {
  /** Null: until it has ended. */
  readonly timeoutMs: number | null
  readonly unreadMs: number | null
  /** Aborted when the caller is gone. */
  readonly signal: AbortSignal
}

/** One process of a session: its output as events, and how it ended, for as long as anybody may ask. */
export class RpcProcess implements LocalRunSink {
  readonly init: RpcProcessInit
  /** Bytes of its argv as JSON. */
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
  /** What it wrote last waits for its reader until this settles. */
  #behind: Promise<void> | null = null
  #run: LocalRunHandle | null = null
  #outcome: LocalOutcome | null = null
  #over = false
  /** There was room for its last event. */
  #taken = false
  #timedOut = false
  #limitHit = false
  /** Processes that the program left running and that were ended with it; null: there were none. */
  #descendantsEnded: number | null = null
  /** Its id while somebody is asked whether it may begin; null before. */
  #asked: string | null = null
  readonly #withdrawn = new AbortController()

  /** Aborted when nobody waits for the answer that it has begun. */
  readonly gone: AbortSignal

  constructor(components: { emit: Emit; clock: Clock; gone?: AbortSignal }, init: RpcProcessInit) {
    this.#emit = components.emit
    this.gone = AbortSignal.any([this.#withdrawn.signal, ...(components.gone === undefined ? [] : [components.gone])])
    this.#clock = components.clock
    this.init = init
    this.argvSize = Buffer.byteLength(JSON.stringify(init.argv))
  }

  /** The run whose events this sink gets. Settles when there was room for all of its events. */
  async attach(run: LocalRunHandle): Promise<void> {
    this.#run = run
    // It was allowed just when that was taken back.
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

  /** Its program has ended, and what is said of it waits for a reader. */
  get unread(): boolean {
    return this.run.over && !this.#taken
  }

  /** Its end is told. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  get summary(): Readonly<Record<string, unknown>> {
    return { process_id: this.id, argv: this.init.argv, started_at: this.run.startedAt, cwd: this.run.cwd, ...this.status }
  }

  /** Its session is over: what it writes is counted, and told to nobody. */
  silence(): void {
    // The old one would keep the events of the session in memory.
    this.#emit = () => undefined
  }

  /** Its caller knows its id: events may be said. */
  release(): void {
    this.#released.resolve()
  }

  /** Its call is not answered yet, and may be told all the same. */
  waiting({ request_id, question_id, expires_at_ms }: RunWaiting): void {
    const { sessionId: session_id, call } = this.init
    const process_id = `p_${request_id}`
    this.#asked = process_id
    const expires_in_ms = Math.max(0, expires_at_ms - this.#clock.now())
    if (call !== undefined) void this.#emit('exec.waiting', { session_id, process_id, call, question_id, expires_in_ms })
  }

  /** Takes back what is asked about the process of this id, if that is this one. */
  withdraw(id: string): boolean {
    if (this.#asked !== id) return false
    this.#withdrawn.abort(new AppError('conflict', 'it was taken back before it began', { data: { reason: 'withdrawn' } }))
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
   * Its status when it has ended, or when the time is up. Throws `output_limit_exceeded` where it was ended for that; and
   * without a time, `resource_limit` where it has been held for all of `unreadMs` (null: its reader is known to be there).
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
    const why = `what it wrote has waited ${unreadMs / 1_000} s for its reader, and it goes on when the events of its session are read`
    return new AppError('resource_limit', why, { data: { limit: 'unread_ms', max: unreadMs, process_id: this.id, ...this.status } })
  }

  get #limitExceeded(): boolean {
    return this.#limitHit && this.init.failOnLimit
  }

  /** Of its terminal; a process without one has none. */
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
    // Emitted before exec.wait is answered, which does not wait for a reader of the events.
    const room = [this.#sayError(this.#errorOf(outcome)), this.#sayExit(outcome)]
    this.#waiters.notifyAll()
    this.#ended.resolve()
    for (const one of room) await one
    this.#taken = true
  }

  #errorOf(outcome: LocalOutcome | null): AppError | null {
    if (outcome === null) return new AppError('shutting_down', 'the executor is gone, and how the process ended is not known')
    if (outcome.lost !== null) return new AppError('peer_unreachable', `how it ended is not known: ${outcome.lost}`)
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
