import { type Clock, within } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { Condition } from '../../base/wait-queue.ts'
import type { LocalExecutor } from '../../executor-api/local.ts'
import {
  type ConsoleReply,
  type ConsoleRequest,
  MAX_CONSOLE_ATTACHED,
  MAX_CONSOLE_RUNS,
  TRANSCRIPT_WAIT_MS,
} from '../../protocol/console/messages.ts'
import { type EndedCommand, HIDDEN_VALUE, type TranscriptEntry } from '../../protocol/console/transcript.ts'
import { ExecutorSessions } from '../executor-sessions.ts'
import { ConsoleRun, type ConsoleRunEnd } from './console-run.ts'
import { nameText } from './transcript-text.ts'
import type { ConsoleControls, ConsoleScreen } from './screen.ts'

/** Writes commands in the order in which they began. */
export interface Transcript {
  /** Registers a command and returns its place in the order. */
  arrive(): number
  /** Resolves with true when the entry is written, or with false if it cannot be, which the transcript reports itself. */
  end(place: number, command: EndedCommand): Promise<boolean>
}

export interface ConsoleHostComponents {
  readonly executor: LocalExecutor
  readonly clock: Clock
  /** Commands wait for it. Null means the host does not start. */
  readonly transcript: Transcript | Promise<Transcript | null>
  /** Sets the execution mode of an agent. Returns the new setting. Absent means that the configuration does not choose among hosts. */
  readonly setModes?: (whoami: string, line: string) => Promise<string>
}

/** An attached client, which receives commands as they end. */
export interface ConsoleSubscriber {
  /** Whether it receives output with terminal control sequences. */
  readonly ansi: boolean
  emit(entry: TranscriptEntry): void
}

/** To the second, as in transcripts and banners. */
const timeOf = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19)}Z`

const MAX_PAUSED = 256
/** Maximum number of idle sessions of agents. */
const MAX_RESTING = 16
/** Capabilities of the console. */
const AVAILABLE = ['exec', 'exec.input', 'pty', 'events'] as const

const openingFor = (whoami: string | null) => ({ door: 'console' as const, client_name: whoami ?? '', available: AVAILABLE, target: null })

const ABORTED: ConsoleRunEnd = { exit: 143, error: 'aborted', message: null, duration_ms: 0, ranOn: null }

/** Runs the commands of all AI agents of one user, and reports them to client, screen, transcript and attached clients. */
export class ConsoleHost implements ConsoleControls {
  readonly #deps: ConsoleHostComponents
  /** One session per agent name, so that the audit log shows the name. */
  readonly #sessions: ExecutorSessions
  readonly #turns = new Semaphore({ limit: MAX_CONSOLE_RUNS })
  readonly #paused = new Set<string>()
  readonly #resumed = new Condition()
  readonly #running = new Map<number, ConsoleRun>()
  readonly #attached = new Set<ConsoleSubscriber>()
  readonly #stopping = new AbortController()
  readonly #working = new Set<Promise<unknown>>()
  #screen!: ConsoleScreen
  #last = 0

  constructor(deps: ConsoleHostComponents) {
    this.#deps = deps
    this.#sessions = new ExecutorSessions(deps, { opening: openingFor, maxIdle: MAX_RESTING })
  }

  /** Called before the first command, because the screen needs the host's controls. */
  show(screen: ConsoleScreen): void {
    this.#screen = screen
  }

  /** Aborts when the host should stop. */
  get stopped(): AbortSignal {
    return this.#stopping.signal
  }

  abort(n: number): void {
    this.#running.get(n)?.abort()
  }

  get paused(): ReadonlySet<string> {
    return this.#paused
  }

  pause(whoami: string): void {
    if (this.#paused.size < MAX_PAUSED) this.#paused.add(whoami)
  }

  resume(whoami: string): void {
    this.#paused.delete(whoami)
    this.#resumed.notifyAll()
  }

  stop(): void {
    this.#stopping.abort()
  }

  async setModes(whoami: string, line: string): Promise<string> {
    const { setModes } = this.#deps
    if (setModes === undefined) return 'this console cannot choose a host: start it with --config FILE, with [tools.exec] in the file'
    return setModes(whoami, line).catch(errorText)
  }

  /** Returns a function that detaches, or null if too many clients are attached. */
  attach(one: ConsoleSubscriber): (() => void) | null {
    if (this.#attached.size >= MAX_CONSOLE_ATTACHED) return null
    this.#attached.add(one)
    return () => this.#attached.delete(one)
  }

  /**
   * Runs one command when a slot is free; `gone` aborts it. Resolves after the transcript entry was written, or after `TRANSCRIPT_WAIT_MS`;
   * the screen is not awaited.
   */
  async run(request: ConsoleRequest, gone: AbortSignal): Promise<ConsoleReply> {
    const signal = AbortSignal.any([gone, this.#stopping.signal])
    const leave = await this.#enter(request.whoami, signal).catch(() => null)
    if (leave === null) return replyOf(ABORTED, '')
    try {
      return await this.#execute(request, signal)
    } finally {
      leave()
    }
  }

  /** Aborts all commands. Resolves when their entries are written. */
  async end(): Promise<void> {
    this.stop()
    while (this.#working.size > 0) await Promise.allSettled(this.#working)
  }

  /** If the agent was paused while it waited for a slot, the slot is released. Throws the signal's reason. */
  async #enter(whoami: string, signal: AbortSignal): Promise<() => void> {
    for (;;) {
      if (this.#paused.has(whoami)) this.#screen.record(`${nameText(whoami)} is paused, and a command of this agent is waiting`)
      while (this.#paused.has(whoami)) {
        await this.#resumed.waitAtMost({ clock: this.#deps.clock, timeoutMs: null, signal })
        signal.throwIfAborted()
      }
      const leave = await this.#turns.acquire(signal)
      if (!this.#paused.has(whoami)) return leave
      leave()
    }
  }

  async #execute(request: ConsoleRequest, signal: AbortSignal): Promise<ConsoleReply> {
    const { clock } = this.#deps
    const transcript = await this.#deps.transcript
    if (transcript === null) return replyOf(ABORTED, '')
    this.#last += 1
    const [n, startedAt, place] = [this.#last, clock.now(), transcript.arrive()]
    const run = new ConsoleRun({ ...this.#deps, sessions: this.#sessions, screen: this.#screen }, { n, request })
    const abort = (): void => run.abort()
    signal.addEventListener('abort', abort)
    this.#running.set(n, run)
    const { whoami, dir, exec: argv, timeout_ms } = request
    if (signal.aborted) abort()
    this.#screen.start({ n, whoami, dir, argv, timeout_ms, started_at: timeOf(startedAt) })
    const work = run.run()
    this.#hold(work)
    const end = await work
    signal.removeEventListener('abort', abort)
    this.#running.delete(n)
    this.#screen.end(n, end)
    const output = run.output.plain()
    const left = run.descendantsEnded === null ? {} : { descendants_ended: run.descendantsEnded }
    const command = {
      whoami,
      dir,
      envs: request.envs,
      exec: argv,
      exit: end.exit,
      error: end.error,
      startedAt,
      duration_ms: end.duration_ms,
      output,
      ...(end.ranOn && { ran_on: end.ranOn }),
      ...left,
    }
    this.#emit(command, run)
    const written = transcript.end(place, command)
    this.#hold(written)
    await within(clock, TRANSCRIPT_WAIT_MS, written)
    return { ...replyOf(end, output.text), ...left }
  }

  #hold(work: Promise<unknown>): void {
    this.#working.add(work)
    void work.finally(() => this.#working.delete(work))
  }

  /** Sends the entry to attached clients. */
  #emit({ startedAt, error, output, ...command }: EndedCommand, run: ConsoleRun): void {
    const envs = Object.fromEntries(Object.keys(command.envs).map((name) => [name, HIDDEN_VALUE]))
    const entry = { ...command, envs, ...(error === null ? {} : { error }), time: timeOf(startedAt) }
    for (const one of this.#attached) one.emit({ ...entry, output: one.ansi ? run.output.raw().text : output.text })
  }
}

const replyOf = ({ exit, error, message, ranOn }: ConsoleRunEnd, output: string): ConsoleReply => ({
  exit,
  output,
  ...(error === null ? {} : { error }),
  ...(message === null ? {} : { message }),
  ...(ranOn === null ? {} : { ran_on: ranOn }),
})
