import type { Clock, Timer } from '../../base/clock.ts'
import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { TerminalFilter } from '../../base/terminal-text.ts'
import type { LocalExecutor, LocalOutcome, LocalRunHandle, LocalRunEvent, LocalRunRequest, RunWaiting } from '../../executor-api/local.ts'
import type { RanOnJson } from '../../protocol/api/exec-target.ts'
import { CONSOLE_GRACE_MS, CONSOLE_TERMINAL, type ConsoleRequest } from '../../protocol/console/messages.ts'
import { type RecordedOutput, TranscriptOutput } from '../../protocol/console/transcript.ts'
import { leftBehindText } from '../../protocol/reasons.ts'
import type { ExecutorSessions } from '../executor-sessions.ts'
import { nameText, wordsText } from './transcript-text.ts'
import type { ConsoleScreen, ShownEnd } from './screen.ts'

/** The bounded output of a run, with and without terminal control sequences. */
export class ConsoleRunOutput {
  readonly #clock: Clock
  readonly #began: number
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  readonly #filter = new TerminalFilter()
  readonly #plain = new TranscriptOutput()
  readonly #raw = new TranscriptOutput()

  constructor(deps: { clock: Clock }) {
    this.#clock = deps.clock
    this.#began = this.#clock.monotonic()
  }

  push(data: Uint8Array): void {
    const text = this.#decoder.decode(data, { stream: true })
    this.#add(text, this.#filter.push(text))
  }

  end(): void {
    const text = this.#decoder.decode()
    this.#add(text, this.#filter.push(text) + this.#filter.end())
  }

  /** Without terminal control sequences. */
  plain(): RecordedOutput {
    return this.#plain.recorded()
  }

  /** As the program wrote it. */
  raw(): RecordedOutput {
    return this.#raw.recorded()
  }

  #add(raw: string, plain: string): void {
    const ms = this.#clock.monotonic() - this.#began
    this.#raw.push(raw, ms)
    this.#plain.push(plain, ms)
  }
}

/** The end of a command, as its client sees it. */
export interface ConsoleRunEnd extends ShownEnd {
  /** Text about `error` for a person. */
  readonly message: string | null
  /** Null means that the command did not run, or the configuration does not choose among hosts. */
  readonly ranOn: RanOnJson | null
}

export interface ConsoleRunComponents {
  readonly executor: Pick<LocalExecutor, 'start'>
  readonly sessions: ExecutorSessions
  readonly clock: Clock
  readonly screen: Pick<ConsoleScreen, 'output' | 'record'>
}

const TERMINAL = { ...CONSOLE_TERMINAL, raw: true } as const
const NO_BYTES = new Uint8Array(0)
const EXIT_NOT_RUN = 127
/** As timeout(1). */
const EXIT_TIMEOUT = 124
const SIGTERM = 15

/** One command of an AI agent. */
export class ConsoleRun {
  readonly output: ConsoleRunOutput
  readonly #deps: ConsoleRunComponents
  readonly #n: number
  readonly #request: ConsoleRequest
  #run: LocalRunHandle | null = null
  #aborted = false
  /** Withdraws a pending approval request. */
  readonly #leaving = new AbortController()
  #timedOut = false
  #descendantsEnded: number | null = null
  #ranOn: RanOnJson | null = null
  #killTimer: Timer | null = null

  constructor(deps: ConsoleRunComponents, init: { readonly n: number; readonly request: ConsoleRequest }) {
    this.#deps = deps
    this.#n = init.n
    this.#request = init.request
    this.output = new ConsoleRunOutput(deps)
  }

  /** Number of processes that the command left running and that were ended with it, or null. */
  get descendantsEnded(): number | null {
    return this.#descendantsEnded
  }

  /** Sends SIGTERM to all processes, and SIGKILL after the grace period. Repeated calls have no effect. */
  abort(): void {
    if (this.#aborted) return
    this.#aborted = true
    this.#leaving.abort(new AppError('shutting_down', 'it was aborted before it started'))
    this.#end()
  }

  /** Never throws. */
  async run(): Promise<ConsoleRunEnd> {
    const began = this.#deps.clock.monotonic()
    const took = (): number => Math.max(0, Math.round(this.#deps.clock.monotonic() - began))
    try {
      const outcome = await this.#deps.sessions.use(this.#request.whoami, async ({ id }) => this.#execute(id))
      return this.#endOf(outcome, took())
    } catch (error) {
      if (this.#aborted && isAppError(error, 'shutting_down')) return this.#endOf(null, took())
      return { ...notRun(error, this.#request), duration_ms: took() }
    } finally {
      this.#killTimer?.cancel()
      this.#run = null
      this.output.end()
    }
  }

  /** Null means that it was aborted before the program started, or that its end is not known. */
  async #execute(session: string): Promise<LocalOutcome | null> {
    if (this.#aborted) return null
    const sink = {
      event: (event: LocalRunEvent) => this.#take(event),
      waiting: ({ question_id }: RunWaiting) => void (question_id !== null && this.#waits(question_id)),
      gone: this.#leaving.signal,
    }
    const run = await this.#deps.executor.start(this.#start(session), sink)
    this.#run = run
    this.#ranOn = run.ranOn ?? null
    if (this.#request.stdin === '') run.input(NO_BYTES, true)
    // The client may have disconnected, and its grace period may have passed, before the program started.
    void run.begun.then(() => this.#aborted && this.#endNow())
    return run.ended
  }

  #start(session: string): LocalRunRequest {
    const { exec, dir, envs, stdin, timeout_ms, clear_env, whoami, wish } = this.#request
    return {
      session,
      argv: exec,
      shell: false,
      cwd: dir,
      // Last, so that a client cannot set another name.
      env: { ...envs, REXEC_WHOAMI: whoami },
      clear_env,
      stdin: stdin === null ? NO_BYTES : Buffer.from(stdin),
      // An empty stdin is a pipe that ends at once, not /dev/null.
      input: stdin === '',
      timeout_ms,
      max_output_bytes: null,
      fail_on_limit: false,
      detach: false,
      terminal: TERMINAL,
      ...(wish && { wish }),
    }
  }

  #waits(question: string): void {
    const { whoami, exec } = this.#request
    this.#deps.screen.record(`${nameText(whoami)} needs approval for ${wordsText(exec)}: x0x approvals approve ${question}`)
  }

  #take(event: LocalRunEvent): void {
    if (event.type === 'warning') {
      if (event.kind === 'descendants_ended') this.#left(event.amount ?? null)
      if (event.kind !== 'duration_cap_hit') return
      this.#timedOut = true
      this.#killLater()
      return
    }
    this.output.push(event.data)
    this.#deps.screen.output(this.#n, event.data)
  }

  #left(count: number | null): void {
    this.#descendantsEnded = count
    if (count !== null) this.#deps.screen.record(leftBehindText(count))
  }

  #end(): void {
    if (this.#run === null) return
    this.#run.signal('TERM')
    this.#killLater()
  }

  #endNow(): void {
    this.#killTimer?.cancel()
    this.#killTimer = null
    this.#end()
  }

  #killLater(): void {
    this.#killTimer ??= this.#deps.clock.setTimeout(() => this.#run?.signal('KILL'), CONSOLE_GRACE_MS)
  }

  #endOf(outcome: LocalOutcome | null, duration_ms: number): ConsoleRunEnd {
    const aborted = this.#aborted ? ('aborted' as const) : null
    const ranOn = this.#ranOn
    if (outcome === null) {
      const message = aborted === null ? 'its end is unknown' : null
      return { exit: aborted === null ? EXIT_NOT_RUN : 128 + SIGTERM, error: aborted ?? 'spawn_failed', message, duration_ms, ranOn }
    }
    const { code, signal, denial_reason, detail } = outcome
    if (denial_reason !== null)
      return { exit: EXIT_NOT_RUN, error: 'spawn_failed', message: detail ?? denial_reason, duration_ms, ranOn: null }
    const exit = code ?? 128 + (signal ?? SIGTERM)
    if (this.#timedOut && !this.#aborted) return { exit: EXIT_TIMEOUT, error: 'timeout', message: null, duration_ms, ranOn }
    return { exit, error: aborted, message: null, duration_ms, ranOn }
  }
}

/** The end of a command that was refused. A missing program has a separate error, but a missing directory has not. */
const notRun = (error: unknown, { exec: [name = ''] }: ConsoleRequest): Omit<ConsoleRunEnd, 'duration_ms'> => {
  const missing = isAppError(error, 'file_not_found') && error.data['argv0'] === name && error.data['why'] !== 'not_executable'
  return {
    exit: EXIT_NOT_RUN,
    ranOn: null,
    error: missing ? 'not_found' : 'spawn_failed',
    message: error instanceof AppError ? error.message : `internal error: ${errorText(error)}`,
  }
}
