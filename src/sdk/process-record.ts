import type { OutputName } from '../protocol/reasons.ts'
import type { RunReporter } from '../protocol/events/run-reporter.ts'
import type { Params } from '../protocol/rexd/methods.ts'
import type { EventParams, Result, RexdEvent } from '../protocol/rexd/results.ts'
import type { Connection } from './connection.ts'
import { RexdError, type RexdGap, RexdProtocolError } from './errors.ts'
import { type CamelCase, camelCase, present } from './fields.ts'
import { bytesOf, resultOf } from './incoming.ts'
import { OutputQueue } from './output.ts'
import { type CallOptions, deferred, pause } from './promises.ts'
import type { ProcessListener, SessionLink } from './session-link.ts'

/** Delay of SIGKILL after SIGTERM, the same as on the server. */
const KILL_GRACE_MS = 5_000

/** How a process ended. */
export type ProcessExit = CamelCase<Omit<EventParams<'exec.exit'>, 'session_id' | 'process_id' | 'cursor'>>

/** Host of a program. It is this server, its sandbox, or a node with its `agentId`. */
export type RanOn = CamelCase<NonNullable<Result<'exec.start'>['ran_on']>>
/** A preference beyond the server's configuration, and the value that is in force. */
export type ClampedPreference = CamelCase<NonNullable<Result<'exec.start'>['cut_wishes']>[number]>

export interface RunPlacement {
  /** Null if the server does not choose among hosts. */
  readonly ranOn: RanOn | null
  readonly cutWishes: readonly ClampedPreference[]
}

export interface ProcessRecordInit extends Result<'exec.start'> {
  /** ID of its terminal, or null without one. */
  readonly pty_id: string | null
}

/** False if it had ended. While an approver is asked about the start, this withdraws the request. */
export const killProcess = async (
  { connection, link }: { readonly connection: Connection; readonly link: SessionLink },
  asked: { readonly process_id: string; readonly signal?: string | undefined },
  { signal }: CallOptions = {},
): Promise<boolean> => {
  const accept = (result: unknown): boolean => resultOf(result, 'exec.kill', ['ok']).ok
  const params = present<Params<'exec.kill'>>({ session_id: link.id, ...asked })
  return connection.request({ method: 'exec.kill', params, scope: link, signal, accept })
}

/** A process of a session. It receives events, checks that no event is missing, and keeps unread output. */
export class ProcessRecord implements ProcessListener {
  readonly queue: OutputQueue
  readonly init: ProcessRecordInit
  readonly link: SessionLink
  readonly #connection: Connection
  readonly #exited = deferred<ProcessExit>()
  readonly #over = new AbortController()
  readonly #gone = new AbortController()
  readonly exited: Promise<ProcessExit> = this.#exited.promise
  /** Aborted when the caller gets no more of it. */
  readonly over: AbortSignal = this.#over.signal
  /** Aborted after the server's last message about it, or when no more can come. */
  readonly gone: AbortSignal = this.#gone.signal
  readonly #streams = { stdout: { seq: 0, bytes: 0 }, stderr: { seq: 0, bytes: 0 } }
  /** Reports its output, or null without a reporter. */
  story: Pick<RunReporter, 'output'> | null = null
  /** Its session is being closed, so further output is ignored. */
  #cut = false

  constructor(components: { connection: Connection; link: SessionLink }, init: ProcessRecordInit) {
    this.init = init
    this.#connection = components.connection
    this.link = components.link
    this.queue = new OutputQueue({ onFullness: (fullness) => this.#connection.gate.set(this, fullness) })
    // It may have no other handler.
    this.#exited.promise.catch(() => undefined)
    this.link.add(init.process_id, this)
  }

  get ids(): Params<'exec.kill'> {
    return { session_id: this.link.id, process_id: this.init.process_id }
  }

  get place(): RunPlacement {
    const { ran_on, cut_wishes = [] } = this.init
    return { ranOn: ran_on === undefined ? null : camelCase(ran_on), cutWishes: camelCase(cut_wishes) }
  }

  /** False if it had ended. */
  async kill(name: string | undefined, options: CallOptions): Promise<boolean> {
    return killProcess({ connection: this.#connection, link: this.link }, { process_id: this.init.process_id, signal: name }, options)
  }

  /** Rejects pending promises and ends the process. */
  abandon(reason: unknown): void {
    if (this.over.aborted) return
    this.queue.fail(reason)
    this.#finish(reason)
    void this.#putDown()
  }

  /** The session is being closed. Readers get the output so far, then the error. */
  cut(error: Error): void {
    this.#cut = true
    this.queue.end(error)
  }

  /** Readers get the earlier output, then the error. The program continues. */
  onGap(error: RexdGap): void {
    this.queue.end(error)
    this.#finish(error)
  }

  onLost(error: Error): void {
    this.queue.end(error)
    this.#finish(error)
    this.#leave()
  }

  onEvent({ method, params }: RexdEvent): void {
    switch (method) {
      case 'exec.stdout':
      case 'pty.output':
        return this.#heard('stdout', params)
      case 'exec.stderr':
        return this.#heard('stderr', params)
      case 'exec.exit':
      case 'pty.exit':
        return this.#ended(params)
      case 'exec.error':
        return this.#failed(params)
      // `SessionLink` handles them.
      case 'exec.waiting':
      case 'session.gap':
        return undefined
    }
  }

  #heard(name: OutputName, { seq, data, encoding }: EventParams<'exec.stdout'>): void {
    if (this.over.aborted || this.#cut) return
    const stream = this.#streams[name]
    stream.seq += 1
    if (seq !== stream.seq) {
      const text = `${name} of ${this.init.process_id} continues with ${seq} instead of ${stream.seq}: a part is missing`
      return this.#broken(new RexdProtocolError(text))
    }
    const bytes = bytesOf(data, encoding, `exec.${name}`)
    stream.bytes += bytes.length
    this.story?.output(bytes)
    this.queue.push({ stream: name, data: bytes, seq })
  }

  #ended(params: EventParams<'exec.exit'>): void {
    const { exit_code, signal, timed_out, duration_ms, bytes_stdout, bytes_stderr, truncated, descendants_ended } = params
    const facts = { exit_code, signal, timed_out, duration_ms, bytes_stdout, bytes_stderr, truncated }
    const exit = { ...facts, ...(descendants_ended !== undefined && { descendants_ended }) }
    this.#leave()
    if (this.over.aborted) return
    const { stdout, stderr } = this.#streams
    const whole = stdout.bytes === exit.bytes_stdout && stderr.bytes === exit.bytes_stderr
    if (!whole && !exit.truncated && !this.#cut) {
      const text = `${this.init.process_id} wrote ${exit.bytes_stdout} and ${exit.bytes_stderr} bytes, of which ${stdout.bytes} and ${stderr.bytes} arrived`
      return this.#broken(new RexdProtocolError(text))
    }
    this.queue.end(null)
    this.#over.abort()
    this.#exited.resolve(camelCase(exit))
  }

  #failed({ code, message, data }: EventParams<'exec.error'>): void {
    const error = new RexdError({ code, message, data })
    this.queue.end(error)
    this.#finish(error)
    this.#leave()
  }

  /** Readers get the output so far, then the error. The process is ended. */
  #broken(error: RexdProtocolError): void {
    this.queue.end(error)
    this.#finish(error)
    if (!this.gone.aborted) void this.#putDown()
  }

  #finish(error: unknown): void {
    if (this.over.aborted) return
    this.#over.abort()
    this.#exited.reject(error)
  }

  #leave(): void {
    this.#gone.abort()
    this.link.remove(this.init.process_id, this)
  }

  /** Sends SIGTERM, and SIGKILL after `KILL_GRACE_MS`. If both fail, the process is gone or ends with its connection. */
  async #putDown(): Promise<void> {
    for (const name of ['TERM', 'KILL']) {
      if (this.gone.aborted) return
      // Not awaited, because the answer may follow unread output.
      this.kill(name, {}).catch(() => undefined)
      await pause(KILL_GRACE_MS, this.gone)
    }
  }
}
