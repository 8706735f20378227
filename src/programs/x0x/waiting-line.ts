import type { Clock, Timer } from '../../base/clock.ts'
import { shownLine } from '../../base/visible-text.ts'
import type { RunEventJson } from '../../protocol/run-events.ts'
import { write, type Output } from '../../supervision/program-output.ts'

export type WaitingEvent = Extract<RunEventJson, { type: 'waiting_for_approval' }>

/** Goes back to the beginning of the line and empties it. */
const EMPTY_LINE = '\r\u001b[K'

/** "1:05" for 65 seconds, rounded up, so that the last thing it says is not 0. */
const clockText = (ms: number): string => {
  const seconds = Math.max(0, Math.ceil(ms / 1_000))
  return `${Math.floor(seconds / 60)}:${`${seconds % 60}`.padStart(2, '0')}`
}

/** What is waited for; `agent` as it was typed. A reason that we do not know comes from a newer daemon. */
export const waitingText = (event: WaitingEvent, agent: string, leftMs: number): string => {
  const { reason, approvals_needed, approvals_given } = event
  const human = `a human of ${shownLine(agent)} is asked`
  const others = `${approvals_given} of ${approvals_needed} approvals of other agents given`
  const whom = reason === 'approvers' ? others : reason === 'human_and_approvers' ? `${human}, ${others}` : human
  return `waiting for approval: ${whom}; ${clockText(leftMs)} left, Ctrl-C withdraws it`
}

/** Says on standard error that a run waits: one line that counts down on a terminal, a plain one for each change elsewhere. */
export class WaitingLine {
  readonly #components: { readonly stderr: Output; readonly clock: Clock }
  readonly #agent: string
  #timer: Timer | null = null
  #shown = false

  constructor(components: { readonly stderr: Output; readonly clock: Clock }, init: { readonly agent: string }) {
    this.#components = components
    this.#agent = init.agent
  }

  /** False when nobody reads any more. */
  async show(event: WaitingEvent): Promise<boolean> {
    const { stderr, clock } = this.#components
    this.#timer?.cancel()
    if (stderr.isTTY !== true) return write(stderr, `x0x: ${waitingText(event, this.#agent, event.expires_in_ms)}\n`)
    const until = clock.monotonic() + event.expires_in_ms
    return this.#count(event, until)
  }

  /** What comes next has the line to itself. */
  async end(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    if (!this.#shown) return
    this.#shown = false
    await write(this.#components.stderr, EMPTY_LINE)
  }

  async #count(event: WaitingEvent, until: number): Promise<boolean> {
    const { stderr, clock } = this.#components
    const left = until - clock.monotonic()
    this.#shown = true
    const text = `x0x: ${waitingText(event, this.#agent, left)}`
    // A line that wraps could not be taken back.
    const fitting = text.slice(0, Math.max(1, (stderr.columns ?? 80) - 1))
    if (left > 0) this.#timer = clock.setTimeout(() => void this.#count(event, until), left % 1_000 || 1_000, { unref: true })
    return write(stderr, `${EMPTY_LINE}${fitting}`)
  }
}
