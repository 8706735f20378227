import { constants } from 'node:os'
import { AppError, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { Condition } from '../../base/wait-queue.ts'
import type { LocalOutcome, LocalRunHandle, LocalRunEvent, LocalRunSink, TerminalSize } from '../../executor-api/local.ts'
import type { Slot } from '../../policy/slots.ts'
import { PROCESS_SIGNALS, type ProcessSignal } from '../../process/signals.ts'
import type { ClampedPreferenceJson, RanOnJson } from '../../protocol/api/exec-target.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { SessionNotice } from '../../protocol/reasons.ts'
import { FRAME_COST, MIN_UNACKED_PER_RUN } from '../../protocol/limits/wire.ts'
import { type EndCause, Execution, type ExecutionInit, type InputSink } from '../runs/execution.ts'
import type { Warning } from '../runs/frames.ts'
import type { LocalProgram, LocalReport } from './journal.ts'
import type { MeshProgram } from './mesh-program.ts'

/** Bytes of one run that wait for its sink, plus FRAME_COST per event. Above this the program is paused. */
const HIGH_WATER_MARK = MIN_UNACKED_PER_RUN

const costOf = (event: LocalRunEvent): number => ('data' in event ? event.data.length + FRAME_COST : 0)

/** Delivers the events of one run to its sink, one at a time and in order. */
export class SinkQueue {
  readonly #sink: LocalRunSink
  readonly #init: { readonly onRoom: () => void; readonly onSinkError: () => void }
  readonly #queue: LocalRunEvent[] = []
  readonly #idle = new Condition()
  #bytes = 0
  #delivering = false
  #full = false
  #closed = false

  /**
   * `onRoom` is called once after each `push` that returned false. `onSinkError` is called if the sink rejects, which gets no more calls.
   */
  constructor(deps: { sink: LocalRunSink }, init: { onRoom: () => void; onSinkError: () => void }) {
    this.#sink = deps.sink
    this.#init = init
  }

  /** False means to read no more before `onRoom`. */
  push(event: LocalRunEvent): boolean {
    if (this.#closed) return true
    this.#queue.push(event)
    this.#bytes += costOf(event)
    if (!this.#delivering) void this.#deliver()
    this.#full = this.#bytes >= HIGH_WATER_MARK
    return !this.#full
  }

  /** Resolves when the sink has taken everything. */
  async idle(): Promise<void> {
    if (this.#delivering) await this.#idle.wait()
  }

  /** Drops the rest, because the reader is gone. */
  close(): void {
    this.#closed = true
    this.#queue.length = 0
    this.#bytes = 0
    this.#checkRoom()
  }

  /** If the sink returns no promise, the next event follows in the same turn. */
  async #deliver(): Promise<void> {
    this.#delivering = true
    for (let event = this.#queue.shift(); event !== undefined; event = this.#queue.shift()) {
      try {
        const taken = this.#sink.event(event)
        if (taken !== undefined) await taken
      } catch {
        this.close()
        this.#init.onSinkError()
      }
      if (this.#closed) continue
      this.#bytes -= costOf(event)
      this.#checkRoom()
    }
    this.#delivering = false
    this.#idle.notifyAll()
  }

  #checkRoom(): void {
    if (!this.#full || this.#bytes >= HIGH_WATER_MARK) return
    this.#full = false
    this.#init.onRoom()
  }
}

/** Limit on bytes that wait for the program. More are refused. */
export const MAX_STDIN_UNACKED = 1024 * 1024
/** Smaller waiting pieces are joined, so that many tiny ones do not cost memory. */
const JOIN_BELOW = 4_096

/** The stdin of a local program, sent piece by piece without being announced. */
export class OpenStdin {
  readonly #queue: Uint8Array[] = []
  #sink: InputSink | null = null
  #bytes = 0
  #writing = false
  #stopped = false
  #ended: boolean

  /** `first` came with the command and is bounded by the interface. `eof` means that it is complete. */
  constructor({ first, eof }: { readonly first: Uint8Array; readonly eof: boolean }) {
    if (first.length > 0) this.#keep(first)
    this.#ended = eof
  }

  get ended(): boolean {
    return this.#ended
  }

  /** Accepts as many bytes as there is room for and returns their number. `eof` counts only if all bytes were accepted. */
  give(data: Uint8Array, eof: boolean): number {
    const room = Math.max(0, MAX_STDIN_UNACKED - this.#bytes)
    // A copy, because a view would keep the whole message in memory.
    const taken = data.length <= room ? data : Uint8Array.from(data.subarray(0, room))
    if (taken.length > 0 && !this.#stopped) this.#keep(taken)
    this.#ended = eof && taken.length === data.length
    void this.#write()
    return taken.length
  }

  /** The program has started. */
  attach(sink: InputSink): void {
    this.#sink = sink
    void this.#write()
  }

  stop(): void {
    this.#stopped = true
    this.#queue.length = 0
  }

  #keep(data: Uint8Array): void {
    this.#bytes += data.length
    const last = this.#queue.at(-1)
    if (last === undefined || last.length + data.length > JOIN_BELOW) this.#queue.push(data)
    else this.#queue[this.#queue.length - 1] = Buffer.concat([last, data])
  }

  async #write(): Promise<void> {
    if (this.#writing || this.#sink === null) return
    this.#writing = true
    for (let data = this.#queue.shift(); data !== undefined; data = this.#queue.shift()) {
      await this.#sink.write(data)
      this.#bytes -= data.length
    }
    this.#writing = false
    if (this.#ended && !this.#stopped) this.#sink.end()
  }
}

export interface LocalRunInit {
  readonly requestId: RequestId
  readonly startedAt: string
  readonly cwd: string | null
  readonly caps: LocalRunHandle['caps']
  readonly sink: LocalRunSink
  readonly stdin: OpenStdin | null
  readonly report: LocalReport
  readonly slot: Slot
  readonly start: ExecutionInit<LocalProgram, LocalOutcome>['start']
  /** Null for a run on this machine. */
  readonly target: MeshProgram | null
  /** Absent if the configuration has no modes. */
  readonly ranOn?: RanOnJson | null
  readonly cuts?: readonly ClampedPreferenceJson[]
}

/** A permitted run of a local client, on this machine or on a target. */
export class LocalRun implements LocalRunHandle {
  readonly requestId: RequestId
  readonly startedAt: string
  readonly cwd: string | null
  readonly caps: LocalRunHandle['caps']
  readonly ranOn: RanOnJson | null
  readonly cuts: readonly ClampedPreferenceJson[]
  /** The run is on a target. */
  readonly isThere: boolean
  notices: readonly SessionNotice[] = []
  readonly begun: Promise<LocalOutcome | null>
  readonly ended: Promise<LocalOutcome | null>
  readonly #log: Logger
  readonly #queue: SinkQueue
  /** Null once the outcome is known, so that a retained run does not retain stdin and permit. */
  #parts: (Pick<LocalRunInit, 'stdin' | 'report' | 'target'> & { readonly execution: Execution<LocalProgram, LocalOutcome> }) | null
  readonly #started = Promise.withResolvers<LocalOutcome | null>()
  readonly #ended = Promise.withResolvers<LocalOutcome | null>()

  constructor(deps: { log: Logger }, init: LocalRunInit) {
    this.#log = deps.log
    const { start, target, stdin, report, slot, sink } = init
    this.isThere = target !== null
    this.requestId = init.requestId
    this.startedAt = init.startedAt
    this.cwd = init.cwd
    this.caps = init.caps
    this.ranOn = init.ranOn ?? null
    this.cuts = init.cuts ?? []
    this.begun = this.#started.promise
    this.ended = this.#ended.promise
    this.#queue = new SinkQueue({ sink }, { onRoom: () => this.#parts?.execution.resume(), onSinkError: () => this.end('cancelled') })
    const output = {
      push: (type: 'stdout' | 'stderr', data: Uint8Array) => this.#queue.push({ type, data }),
      started: () => {
        this.notices = target?.notices ?? []
        this.#started.resolve(null)
      },
      warning: (warning: Warning) => void this.#queue.push({ type: 'warning', ...warning }),
    }
    const execution = new Execution({ start, starting: target, stdin, report, output, slot, timeoutClamped: false })
    this.#parts = { execution, stdin, report, target }
  }

  get over(): boolean {
    return this.#parts === null
  }

  /** Runs to the end. Never rejects. If a target refuses the run, `begun` rejects. The slot is free when it resolves. */
  async execute(): Promise<void> {
    const { execution, report, target } = this.#parts!
    let outcome: LocalOutcome | null = null
    try {
      outcome = await execution.run()
    } catch (error) {
      if (target?.refused === true) {
        await report.refused(error)
        this.#started.reject(error)
      } else {
        this.#log.error({ request_id: this.requestId, error: errorText(error) }, 'a run failed with an internal error')
        report.lost()
      }
    }
    this.#parts = null
    this.#started.resolve(outcome)
    void this.#queue.idle().then(() => this.#ended.resolve(outcome))
  }

  input(data: Uint8Array, eof: boolean): number {
    const stdin = this.#parts?.stdin ?? null
    if (stdin === null || stdin.ended) throw new AppError('conflict', 'its stdin is closed; start it with stdin_open: true')
    return stdin.give(data, eof)
  }

  signal(text: string): boolean {
    // Checked first, because a wrong name is an error even after the end.
    const signal = signalOf(text)
    const program = this.#parts?.execution.program ?? null
    program?.signal(signal)
    return program !== null
  }

  cancel(): void {
    this.#parts?.execution.end('cancelled')
  }

  resize(size: TerminalSize): void {
    this.#parts?.execution.program?.resize(size)
  }

  hangUp(): void {
    this.#parts?.execution.program?.hangUp()
  }

  /** Ends the run. A detached run of a target is only left. */
  end(cause: EndCause): void {
    if (this.#parts?.target?.isDetached === true) return this.kill()
    this.#parts?.execution.end(cause)
    // The interface has stopped reading, so a full queue must not hold the program.
    if (cause === 'daemon_stopping') this.#queue.close()
  }

  /** Sends SIGKILL and stops waiting for the reader. */
  kill(): void {
    this.#parts?.execution.kill()
    this.#queue.close()
  }
}

/** Accepts `TERM` and `SIGTERM`. Throws `bad_request` for other names. */
const signalOf = (text: string): ProcessSignal => {
  const name = text.startsWith('SIG') ? text : `SIG${text}`
  const signal = PROCESS_SIGNALS.find((one) => one === name)
  if (signal === undefined || constants.signals[signal] === undefined)
    throw new AppError(
      'bad_request',
      `signal: one of ${PROCESS_SIGNALS.map((one) => one.slice(3)).join(', ')}, not ${JSON.stringify(text)}`,
    )
  return signal
}
