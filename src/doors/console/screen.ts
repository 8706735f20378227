import type { ConsoleError } from '../../protocol/console/messages.ts'

/** A run as the screen shows it. `n` is its number in the order of arrival, from 1. */
export interface ShownRun {
  readonly n: number
  readonly whoami: string
  readonly dir: string
  readonly argv: readonly string[]
  /** Milliseconds, or null. */
  readonly timeout_ms: number | null
  /** ISO 8601. */
  readonly started_at: string
}

export interface ShownEnd {
  /** Exit status as the client sees it, 128+N after signal N. */
  readonly exit: number
  /** Null means that the command ended by itself. */
  readonly error: ConsoleError | null
  readonly duration_ms: number
}

/** The screen of a host. No method blocks a run, and the screen bounds the output that it retains. */
export interface ConsoleScreen {
  start(run: ShownRun): void
  /** Bytes of the run's terminal. None follow its `end`. */
  output(n: number, data: Uint8Array): void
  end(n: number, end: ShownEnd): void
  /** Shows a line of the host itself. */
  record(text: string): void
  /** Settles when everything is shown. */
  close(): Promise<void>
}

/** Actions of the user at the screen. */
export interface ConsoleControls {
  /** No effect if the run has ended. */
  abort(n: number): void
  /** Names of paused agents, the earliest first. Their new commands wait. */
  readonly paused: ReadonlySet<string>
  /** No effect if too many agents are paused. */
  pause(whoami: string): void
  resume(whoami: string): void
  /** Stops the host and its runs. */
  stop(): void
  /** Executes `/exec …` or `/elevated …` for an agent. Resolves with the reply. */
  setModes?(whoami: string, line: string): Promise<string>
}
