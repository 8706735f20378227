import type { ConsoleError } from '../../protocol/console/messages.ts'

/** A run as its host shows it. `n`: its place in the order of arrival, from 1. */
export interface ShownRun {
  readonly n: number
  readonly whoami: string
  readonly dir: string
  readonly argv: readonly string[]
  /** Milliseconds; null: none. */
  readonly timeout_ms: number | null
  /** ISO 8601. */
  readonly started_at: string
}

export interface ShownEnd {
  /** As the client is told: 128+N where signal N ended it. */
  readonly exit: number
  /** Null: it ended by itself. */
  readonly error: ConsoleError | null
  readonly duration_ms: number
}

/** What the host says to its screen, which never holds up a run: nothing here waits, and what the screen keeps of output is its own to bound. */
export interface ConsoleScreen {
  start(run: ShownRun): void
  /** Bytes of the run's terminal as they came; nothing after its `end`. */
  output(n: number, data: Uint8Array): void
  end(n: number, end: ShownEnd): void
  /** A line of the host's own. */
  record(text: string): void
  /** Settles when everything that was given is shown. */
  close(): Promise<void>
}

/** What a human at the screen asks of the host. */
export interface ConsoleControls {
  /** Does nothing where the run is over. */
  abort(n: number): void
  /** Names of agents whose new commands wait, the earliest first. */
  readonly paused: ReadonlySet<string>
  /** Does nothing where as many are paused as may be. */
  pause(whoami: string): void
  resume(whoami: string): void
  /** Ends the host and its runs. */
  stop(): void
  /** Does what a line says, `/exec …` or `/elevated …`, for the commands of this agent; settles with what is told of it. */
  setModes?(whoami: string, line: string): Promise<string>
}
