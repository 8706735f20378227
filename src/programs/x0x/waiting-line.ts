import type { Clock } from '../../base/clock.ts'
import { shownLine } from '../../base/visible-text.ts'
import type { RunEventJson } from '../../protocol/run-events.ts'
import { CountdownLine, clockText } from '../../supervision/countdown-line.ts'
import type { Output } from '../../supervision/program-output.ts'

export type WaitingEvent = Extract<RunEventJson, { type: 'waiting_for_approval' }>

/** What is waited for; `agent` as it was typed. A reason that we do not know comes from a newer daemon. */
export const waitingText = (event: WaitingEvent, agent: string, leftMs: number): string => {
  const { reason, approvals_needed, approvals_given } = event
  const human = `a human of ${shownLine(agent)} is asked`
  const others = `${approvals_given} of ${approvals_needed} approvals of other agents given`
  const whom = reason === 'approvers' ? others : reason === 'human_and_approvers' ? `${human}, ${others}` : human
  return `waiting for approval: ${whom}; ${clockText(leftMs)} left, Ctrl-C withdraws it`
}

/** Says on standard error that a run waits, and for whom. */
export class WaitingLine {
  readonly #line: CountdownLine
  readonly #agent: string

  constructor(components: { readonly stderr: Output; readonly clock: Clock }, init: { readonly agent: string }) {
    this.#line = new CountdownLine(components)
    this.#agent = init.agent
  }

  /** False when nobody reads any more. */
  async show(event: WaitingEvent): Promise<boolean> {
    return this.#line.show((left) => `x0x: ${waitingText(event, this.#agent, left)}`, event.expires_in_ms)
  }

  /** What comes next has the line to itself. */
  async end(): Promise<void> {
    await this.#line.end()
  }
}
