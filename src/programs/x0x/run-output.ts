import { type Clock, systemClock } from '../../base/clock.ts'
import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { shown, shownLine, visibleJson } from '../../base/visible-text.ts'
import { type Output, write } from '../../cli/output.ts'
import type { OutputPart, RunEventJson, RunResultJson } from '../../protocol/api/run-events.ts'
import { DRAIN_WAIT_MS } from '../../protocol/limits/daemon.ts'
import { CountdownLine, clockText } from '../../supervision/countdown-line.ts'
import type { CliContext } from './context.ts'
import { CUT_WARNINGS, type ExitEvent, KILLED_BY } from './outcome.ts'

/** Decodes a stream of foreign bytes for a terminal. Chunks may split characters. */
export class TerminalText {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #held = ''

  push(bytes: Uint8Array): string {
    return this.#show(this.#held + this.#decoder.decode(bytes, { stream: true }))
  }

  /** Returns the held-back text at the end. */
  end(): string {
    const rest = shown(this.#held + this.#decoder.decode())
    this.#held = ''
    return rest
  }

  #show(text: string): string {
    this.#held = text.endsWith('\r') ? '\r' : ''
    return shown(this.#held === '' ? text : text.slice(0, -1))
  }
}

/**
 * Handles the events of a run until `handle` returns an exit status. Throws `daemon_unreachable` if they stop before. `closing` is aborted
 * when the command itself ends the connection.
 */
export const followEvents = async <E>(
  events: AsyncIterable<E>,
  closing: AbortSignal,
  handle: (event: E) => Promise<number | null>,
): Promise<number> => {
  let brokeOff = ''
  try {
    for await (const event of events) {
      const status = await handle(event)
      if (status !== null) return status
    }
  } catch (error) {
    if (isAppError(error) || closing.aborted) throw error
    brokeOff = ` (${errorText(error)})`
  }
  throw new AppError('daemon_unreachable', `incomplete: the local daemon stopped before the command ended${brokeOff}; it cancels the run`)
}

export type WaitingEventJson = Extract<RunEventJson, { type: 'waiting_for_approval' }>

/** Text about a waiting run. `agent` is as typed. An unknown reason comes from a newer daemon. */
export const waitingText = (event: WaitingEventJson, agent: string, leftMs: number): string => {
  const { reason, approvals_needed, approvals_given } = event
  const human = `an approver of ${shownLine(agent)}`
  const others = `${approvals_given} of ${approvals_needed} approvals of other agents given`
  const whom = reason === 'approvers' ? others : reason === 'human_and_approvers' ? `${human}, ${others}` : human
  return `waiting for approval: ${whom}; ${clockText(leftMs)} left, Ctrl-C withdraws it`
}

/** Shows on standard error that a run waits, with its agent. */
export class WaitingLine {
  readonly #line: CountdownLine
  readonly #agent: string

  constructor(components: { readonly stderr: Output; readonly clock: Clock }, init: { readonly agent: string }) {
    this.#line = new CountdownLine(components)
    this.#agent = init.agent
  }

  /** False if the output has no reader. */
  async show(event: WaitingEventJson): Promise<boolean> {
    return this.#line.show((left) => `x0x: ${waitingText(event, this.#agent, left)}`, event.expires_in_ms)
  }

  /** Leaves the line for other output. */
  async end(): Promise<void> {
    await this.#line.end()
  }
}

export type WarningEvent = Extract<RunEventJson, { type: 'warning' }>

/** Receives the events of a run. Methods resolve to false if the output has no reader. */
export interface RunEventSink {
  data(part: OutputPart): Promise<boolean>
  warning(event: WarningEvent): Promise<boolean>
  /** The run waits for an approver on the target. */
  waiting(event: WaitingEventJson): Promise<boolean>
  /** Called before any other event, also if the run never waited. */
  waitedEnough(): Promise<void>
  exit(event: ExitEvent): Promise<void>
}

export const warningText = ({ kind, message }: WarningEvent): string => `x0x: warning: ${kind}: ${shownLine(message)}\n`

/** `who` in a sentence, such as "bob". */
export const drainingText = (who: string): string =>
  `x0x: ${shownLine(who)} is draining (restarting); asking again for up to ${DRAIN_WAIT_MS / 60_000} minutes, Ctrl-C stops\n`

/** Copies output as it comes. On a terminal, control characters are escaped. */
export class LiveOutput implements RunEventSink {
  readonly #context: CliContext
  readonly #agent: string
  readonly #waiting: WaitingLine
  readonly #terminal: { readonly stdout: TerminalText | null; readonly stderr: TerminalText | null }

  constructor(context: CliContext, init: { readonly raw: boolean; readonly agent: string }) {
    const safe = (output: Output): TerminalText | null => (output.isTTY === true && !init.raw ? new TerminalText() : null)
    this.#context = context
    this.#agent = init.agent
    this.#waiting = new WaitingLine({ stderr: context.stderr, clock: systemClock }, init)
    this.#terminal = { stdout: safe(context.stdout), stderr: safe(context.stderr) }
  }

  async data({ type, data }: OutputPart): Promise<boolean> {
    return write(this.#context[type], this.#terminal[type]?.push(data) ?? data)
  }

  async warning(event: WarningEvent): Promise<boolean> {
    // The reason for an end is printed once, at the end.
    if (event.kind === 'cancelled' || KILLED_BY.includes(event.kind)) return true
    if (this.#context.quiet && !CUT_WARNINGS.includes(event.kind)) return true
    if (event.kind === 'target_draining') return write(this.#context.stderr, drainingText(this.#agent))
    return write(this.#context.stderr, warningText(event))
  }

  async waiting(event: WaitingEventJson): Promise<boolean> {
    return this.#context.quiet || this.#waiting.show(event)
  }

  async waitedEnough(): Promise<void> {
    return this.#waiting.end()
  }

  async exit(): Promise<void> {
    for (const stream of ['stdout', 'stderr'] as const) {
      const rest = this.#terminal[stream]?.end() ?? ''
      if (rest !== '') await write(this.#context[stream], rest)
    }
  }
}

/** `--json` prints everything at the end, in the form of `POST /exec/run`. */
export class CollectedOutput implements RunEventSink {
  readonly #context: CliContext
  readonly #chunks = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] }

  constructor(context: CliContext) {
    this.#context = context
  }

  async data({ type, data }: OutputPart): Promise<boolean> {
    this.#chunks[type].push(data)
    return true
  }

  async warning(event: WarningEvent): Promise<boolean> {
    return !CUT_WARNINGS.includes(event.kind) || write(this.#context.stderr, warningText(event))
  }

  async waiting(): Promise<boolean> {
    return true
  }

  async waitedEnough(): Promise<void> {}

  async exit({ type: _, ...outcome }: ExitEvent): Promise<void> {
    const { stdout, stderr } = this.#chunks
    const result: RunResultJson = {
      ...outcome,
      stdout_b64: Buffer.concat(stdout).toString('base64'),
      stderr_b64: Buffer.concat(stderr).toString('base64'),
    }
    await write(this.#context.stdout, `${visibleJson(JSON.stringify(result))}\n`)
  }
}
