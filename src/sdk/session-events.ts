import { constants } from 'node:os'
import { HERE, type LifecycleEvent, type LifecycleFacts, lifecycleEvent, lifecycleTextWithTail } from '../protocol/events/lifecycle.ts'
import { RunReporter } from '../protocol/events/run-reporter.ts'
import { EVENT_COST, MAX_KEPT_CHARACTERS, MAX_KEPT_EVENTS } from '../protocol/limits/events.ts'
import type { EventParams } from '../protocol/rexd/results.ts'
import { RexdDisconnected, RexdError, visibleLines } from './errors.ts'
import { type CamelCase, camelCase } from './fields.ts'
import type { ProcessRecord, RanOn } from './process-record.ts'

/** An event of a program, as fields and as the sentence for an AI agent. */
export type SessionEvent = CamelCase<Omit<LifecycleEvent, 'owner' | 'door' | 'run_id'>> & {
  /** Null if it was denied before it had an ID. */
  readonly processId: string | null
  /** The sentence, followed by the end of the output. Each line of output is indented, so that it cannot imitate a sentence. */
  readonly text: string
}

const costOf = ({ tail }: SessionEvent): number => EVENT_COST + (tail?.length ?? 0)

/** The newest events of a session's programs, in bounded memory, for an AI agent that reads them at its next turn. */
export interface SessionEvents {
  /** Number of oldest events dropped since the last `take`. */
  readonly dropped: number
  /** Events since the last call, oldest first. */
  take(): readonly SessionEvent[]
}

/** Reports the events of one program from its call on. */
interface ProgramEvents {
  waiting(told: EventParams<'exec.waiting'>): void
  begun(record: ProcessRecord): void
  /** It has not started, as far as is known. */
  failed(error: unknown): void
}

/** Records the events of a session's programs. */
export class SessionEventHistory implements SessionEvents {
  readonly #session: string
  readonly #events: SessionEvent[] = []
  #cost = 0
  #last = 0
  #dropped = 0

  constructor(init: { session: string }) {
    this.#session = init.session
  }

  get dropped(): number {
    return this.#dropped
  }

  take(): readonly SessionEvent[] {
    this.#cost = 0
    this.#dropped = 0
    return this.#events.splice(0)
  }

  /** `node` is the requested one. The start event reports the actual one. */
  program(node: string = HERE): ProgramEvents {
    let waited = false
    return {
      waiting: ({ process_id, expires_in_ms }) => {
        if (!waited) this.#story(process_id, node).waits(expires_in_ms)
        waited = true
      },
      begun: (record) => this.#follow(record, record.place.ranOn === null ? node : nodeOf(record.place.ranOn)),
      failed: (error) => {
        const story = this.#story(null, node)
        if (error instanceof RexdDisconnected && error.sent) story.lost()
        else story.denied(reasonOf(error))
      },
    }
  }

  #follow(record: ProcessRecord, node: string): void {
    const story = this.#story(record.init.process_id, node)
    story.started()
    record.story = story
    record.exited.then(
      ({ exitCode: code, signal, durationMs: duration_ms }) =>
        story.finished({ code, signal: numberOf(signal), duration_ms, incomplete: false }),
      (error: unknown) => (isNoStart(error) ? story.denied(reasonOf(error)) : story.lost()),
    )
  }

  #story(processId: string | null, node: string): RunReporter {
    const about = { owner: '', session: this.#session, door: 'stdio', run_id: String(processId), node: String(node) } as const
    return new RunReporter({ tell: (facts) => this.#add(facts, processId) }, about)
  }

  #add(facts: LifecycleFacts, processId: string | null): void {
    const event = lifecycleEvent(facts, { n: ++this.#last, ts: new Date().toISOString() })
    const { owner: _owner, door: _door, run_id: _id, ...rest } = event
    const told = { ...camelCase(rest), processId, text: lifecycleTextWithTail(event, visibleLines) }
    this.#events.push(told)
    this.#cost += costOf(told)
    while (this.#events.length > MAX_KEPT_EVENTS || this.#cost > MAX_KEPT_CHARACTERS) {
      this.#cost -= costOf(this.#events.shift()!)
      this.#dropped += 1
    }
  }
}

const nodeOf = ({ host, agentId, name }: RanOn): string => (host === 'node' ? (agentId ?? name ?? host) : host)

const numberOf = (signal: string | null): number | null => (signal === null ? null : (constants.signals[signal as NodeJS.Signals] ?? null))

/** Whether the system could not start it, which is known a moment after the answer to the start. */
const isNoStart = (error: unknown): boolean => error instanceof RexdError && error.name === 'file_error'

/** Why it did not run, in one word. */
const reasonOf = (error: unknown): string => {
  if (!(error instanceof RexdError)) return error instanceof RexdDisconnected ? 'disconnected' : 'aborted'
  const { reason } = error.data
  return typeof reason === 'string' ? reason : error.name
}
