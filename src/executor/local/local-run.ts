import { constants } from 'node:os'

import { AppError, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Slot } from '../../policy/slots.ts'
import { PROCESS_SIGNALS, type ProcessSignal } from '../../process/signals.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { CutWish, RanOn } from '../../protocol/run-place.ts'
import type { LocalOutcome, LocalRun, LocalRunSink, TerminalSize } from '../port/local-executor.ts'
import { Execution, type EndCause, type ExecutionInit } from '../runs/execution.ts'
import type { Warning } from '../runs/warning-text.ts'
import type { LocalProgram, LocalReport } from './local-report.ts'
import type { OpenStdin } from './open-stdin.ts'
import { SinkQueue } from './sink-queue.ts'
import type { TargetProgram } from './target-program.ts'

export interface LocalRunInit {
  readonly requestId: RequestId
  readonly startedAt: string
  readonly cwd: string | null
  readonly caps: LocalRun['caps']
  readonly sink: LocalRunSink
  readonly stdin: OpenStdin | null
  readonly report: LocalReport
  readonly slot: Slot
  readonly start: ExecutionInit<LocalProgram, LocalOutcome>['start']
  /** Null: it runs here. */
  readonly target: TargetProgram | null
  /** Absent: the configuration does not choose among hosts. */
  readonly ranOn?: RanOn | null
  readonly cuts?: readonly CutWish[]
}

/** A permitted run of a caller of this host, here or on a target. */
export class SessionRun implements LocalRun {
  readonly requestId: RequestId
  readonly startedAt: string
  readonly cwd: string | null
  readonly caps: LocalRun['caps']
  readonly ranOn: RanOn | null
  readonly cuts: readonly CutWish[]
  /** On a target. */
  readonly isThere: boolean
  readonly begun: Promise<LocalOutcome | null>
  readonly ended: Promise<LocalOutcome | null>
  readonly #log: Logger
  readonly #queue: SinkQueue
  /** Null once the outcome is known: whoever keeps the run then does not keep its stdin and its permit with it. */
  #parts: (Pick<LocalRunInit, 'stdin' | 'report' | 'target'> & { readonly execution: Execution<LocalProgram, LocalOutcome> }) | null
  readonly #begun = Promise.withResolvers<LocalOutcome | null>()
  readonly #ended = Promise.withResolvers<LocalOutcome | null>()

  constructor(components: { log: Logger }, init: LocalRunInit) {
    this.#log = components.log
    const { start, target, stdin, report, slot, sink } = init
    this.isThere = target !== null
    this.requestId = init.requestId
    this.startedAt = init.startedAt
    this.cwd = init.cwd
    this.caps = init.caps
    this.ranOn = init.ranOn ?? null
    this.cuts = init.cuts ?? []
    this.begun = this.#begun.promise
    this.ended = this.#ended.promise
    this.#queue = new SinkQueue({ sink }, { onRoom: () => this.#parts?.execution.resume(), onSinkError: () => this.end('cancelled') })
    const output = {
      push: (type: 'stdout' | 'stderr', data: Uint8Array) => this.#queue.push({ type, data }),
      started: () => this.#begun.resolve(null),
      warning: (warning: Warning) => void this.#queue.push({ type: 'warning', ...warning }),
    }
    const execution = new Execution({ start, starting: target, stdin, report, output, slot, timeoutClamped: false })
    this.#parts = { execution, stdin, report, target }
  }

  get over(): boolean {
    return this.#parts === null
  }

  /** Runs to the end; never rejects. Where a target refuses it, `begun` rejects. The slot is free when it settles. */
  async execute(): Promise<void> {
    const { execution, report, target } = this.#parts!
    let outcome: LocalOutcome | null = null
    try {
      outcome = await execution.run()
    } catch (error) {
      if (target?.refused === true) {
        await report.refused(error)
        this.#begun.reject(error)
      } else {
        this.#log.error({ request_id: this.requestId, error: errorText(error) }, 'a run failed inside')
        report.lost()
      }
    }
    this.#parts = null
    this.#begun.resolve(outcome)
    void this.#queue.idle().then(() => this.#ended.resolve(outcome))
  }

  input(data: Uint8Array, eof: boolean): number {
    const stdin = this.#parts?.stdin ?? null
    if (stdin === null || stdin.ended) throw new AppError('conflict', 'its stdin is closed; start it with stdin_open: true')
    return stdin.give(data, eof)
  }

  signal(text: string): boolean {
    // Before the look whether it is over: a wrong name is an error in any case.
    const signal = signalOf(text)
    const program = this.#parts?.execution.program ?? null
    program?.signal(signal)
    return program !== null
  }

  cancel(): void {
    this.end('cancelled')
  }

  resize(size: TerminalSize): void {
    this.#parts?.execution.program?.resize(size)
  }

  hangUp(): void {
    this.#parts?.execution.program?.hangUp()
  }

  end(cause: EndCause): void {
    this.#parts?.execution.end(cause)
    // Its door has stopped reading by then: a full queue must not hold the program.
    if (cause === 'daemon_stopping') this.#queue.close()
  }

  /** SIGKILL, and no more waiting for a reader. */
  kill(): void {
    this.#parts?.execution.kill()
    this.#queue.close()
  }
}

/** `TERM` or `SIGTERM`; throws `bad_request` for what may not be sent. */
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
