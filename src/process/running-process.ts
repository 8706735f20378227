import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Clock, type Timer, within } from '../base/clock.ts'
import type { TerminalSize } from '../executor-api/local.ts'
import type { Permit } from '../policy/permit.ts'
import { MAX_LEFT_IN_PIPES } from '../protocol/limits/daemon.ts'
import { DRAIN_MS, DURATION_TERM_LEAD_MS, FRAME_COST, KILL_GRACE_MS } from '../protocol/limits/wire.ts'
import type { Containment, WarningKind } from '../protocol/reasons.ts'
import type { ExitStatus, ProcessSignal } from './signals.ts'
import { type SpawnedProgram, type SpawnDeps, type SpawnFailure, spawnPermitted } from './spawn.ts'
import { type OutputLimits, OutputPump, type OutputPumpDeps, type OutputTotals, StdinSink } from './streams.ts'

/** All in milliseconds from the start. */
export interface DurationLimits {
  /** The requester's timeout, or the limit. */
  readonly timeout_ms: number
  /** The operator's limit. No run lasts longer. */
  readonly cap_ms: number
  /** When `onApproaching` is called, if that is before SIGTERM. */
  readonly warn_ms: number
}

export interface DurationHandlers {
  onApproaching(): void
  /** Send SIGTERM. */
  onTerminate(): void
  /** Send SIGKILL. */
  onKill(): void
}

/** SIGTERM precedes SIGKILL by 5 s. If that is too early, it comes in the middle of the time. */
const leadBefore = (kill: number): number => (kill < 2 * DURATION_TERM_LEAD_MS ? Math.floor(kill / 2) : kill - DURATION_TERM_LEAD_MS)

/**
 * When the signals are due. At the limit SIGKILL is sent, and SIGTERM before it. A shorter timeout sends SIGTERM itself, and SIGKILL after
 * the grace period as far as the limit allows.
 */
export const endsOf = ({ timeout_ms, cap_ms }: Omit<DurationLimits, 'warn_ms'>): { terminate: number; kill: number } => {
  const kill = Math.min(timeout_ms + DURATION_TERM_LEAD_MS, cap_ms)
  return { terminate: Math.min(timeout_ms, leadBefore(cap_ms)), kill }
}

/** Timers of a run. They start at construction. */
export class DurationLimit {
  readonly #timers: Timer[]

  constructor(deps: { clock: Clock; handlers: DurationHandlers }, limits: DurationLimits) {
    const { clock, handlers } = deps
    const { terminate, kill } = endsOf(limits)
    this.#timers = [clock.setTimeout(() => handlers.onTerminate(), terminate), clock.setTimeout(() => handlers.onKill(), kill)]
    if (limits.warn_ms < terminate) this.#timers.push(clock.setTimeout(() => handlers.onApproaching(), limits.warn_ms))
  }

  stop(): void {
    for (const timer of this.#timers) timer.cancel()
  }
}

/** How long to wait after SIGKILL for a process that has changed user, before the run is reported as ended without it. */
const KILL_REFUSED_MS = 1_000
/** The same for a process that the kernel holds. */
const KILL_DEAF_MS = 10_000
/** How long pipes are read after the exit while a descendant writes to them. */
export const DRAIN_TOTAL_MS = 2_000

export interface ProcessHandlers {
  /** Output in order per stream, at most MAX_FRAME_DATA bytes each. It may call `pause`. */
  onOutput(stream: 'stdout' | 'stderr', data: Uint8Array): void
  /** Called at most once per kind. `amount` is the total bytes for a stream, the number of processes for `descendants_ended`, else null. */
  onWarning(kind: WarningKind, amount: number | null): void
}

/**
 * How reading ended after the exit. `ended` is the end of file. With `held`, a descendant keeps the pipes open without writing. With `cut`,
 * a descendant kept writing, and output is lost.
 */
type DrainOutcome = 'ended' | 'held' | 'cut'

/** How a run ended, with all facts of its Exit. Without code and signal the program could not be killed and lives. */
export interface ProcessEnd extends ExitStatus {
  readonly duration_ms: number
  readonly stdout: OutputTotals
  readonly stderr: OutputTotals
  /** Bytes were dropped or lost, or the time limit ended the run. */
  readonly truncated: boolean
}

export type ProcessDeps = SpawnDeps & { readonly clock: Clock; readonly handlers: ProcessHandlers } & Pick<OutputPumpDeps, 'frames'>

export type StartResult = { readonly kind: 'started'; readonly process: RunningProcess } | SpawnFailure

/** Starts a permitted program within its limits. Output is read from the first `resume` or the exit. */
export const startProcess = async (permit: Permit, deps: ProcessDeps, options: { stdin: boolean }): Promise<StartResult> => {
  const spawned = await spawnPermitted(permit, deps, options)
  if (spawned.kind === 'spawn_failed') return spawned
  return { kind: 'started', process: new RunningProcess(deps, { child: spawned.child, caps: permit.caps }) }
}

export class RunningProcess {
  readonly pid: number
  /** Null means the program reads /dev/null. */
  readonly stdin: StdinSink | null
  /** Resolves when the program has exited, its output was read and the pipes are closed. */
  readonly ended: Promise<ProcessEnd>
  readonly #clock: Clock
  readonly #deps: Pick<ProcessDeps, 'frames'>
  readonly #handlers: ProcessHandlers
  readonly #child: SpawnedProgram
  readonly #stdout: OutputPump
  readonly #stderr: OutputPump
  readonly #duration: DurationLimit
  #paused = true
  #terminating = false
  #exited = false
  /** Cost of output that came after the exit. */
  #leftover = 0
  #outOfTime = false
  #killTimer: Timer | null = null
  #lookTimer: Timer | null = null
  readonly #abandoned = Promise.withResolvers<null>()
  #outlived = false

  constructor(deps: ProcessDeps, init: { child: SpawnedProgram; caps: Permit['caps'] }) {
    const { child, caps } = init
    this.pid = child.pid
    this.stdin = child.stdin && new StdinSink(child.stdin)
    this.#clock = deps.clock
    this.#deps = deps
    this.#handlers = deps.handlers
    this.#child = child
    const budget = caps.max_output_bytes === null ? null : { left: caps.max_output_bytes }
    this.#stdout = this.#pump('stdout', { cap: caps.max_stdout_bytes, warn: caps.warn_stdout_bytes, budget })
    this.#stderr = this.#pump('stderr', { cap: caps.max_stderr_bytes, warn: caps.warn_stderr_bytes, budget })
    this.#duration = this.#limitDuration({ timeout_ms: caps.timeout_ms, cap_ms: caps.max_duration_ms, warn_ms: caps.warn_duration_ms })
    this.ended = this.#watch(this.#clock.monotonic())
  }

  /** Stops reading. The program blocks when its pipes are full. After the exit, the small rest in the pipes is still read, or it would be lost. */
  pause(): void {
    if (this.#exited && this.#leftover < MAX_LEFT_IN_PIPES) return
    this.#stop()
  }

  #stop(): void {
    this.#paused = true
    this.#stdout.pause()
    this.#stderr.pause()
  }

  resume(): void {
    this.#paused = false
    this.#stdout.resume()
    // A handler of stdout may have paused again.
    if (!this.#paused) this.#stderr.resume()
  }

  /** For a program that could not be killed and outlived its run, resolves when it is dead. Otherwise null. */
  get dead(): Promise<unknown> | null {
    return this.#outlived ? this.#child.exited : null
  }

  get containment(): Containment {
    return this.#child.tree.containment
  }

  /** SIGTERM to the process tree, SIGKILL after KILL_GRACE_MS. A second call has no effect. */
  terminate(): void {
    this.#askToEnd('SIGTERM')
  }

  /** SIGHUP to the process tree, like the closing of a terminal window, and SIGKILL after KILL_GRACE_MS. */
  hangUp(): void {
    this.#askToEnd('SIGHUP')
  }

  /** Has no effect without a terminal. */
  resize(size: TerminalSize): void {
    if (!this.#exited) this.#child.resize?.(size)
  }

  #askToEnd(signal: ProcessSignal): void {
    if (this.#terminating || this.#exited) return
    this.#terminating = true
    this.#child.signal(signal)
    this.#killTimer = this.#clock.setTimeout(() => this.kill(), KILL_GRACE_MS)
  }

  /** Signals the process tree. SIGKILL goes through `kill`. No second signal follows the others. */
  signal(signal: ProcessSignal): void {
    if (signal === 'SIGKILL') this.kill()
    else if (!this.#exited) this.#child.signal(signal)
  }

  /** Sends SIGKILL to the process tree. */
  kill(): void {
    if (this.#exited) return
    this.#terminating = true
    this.#child.signal('SIGKILL')
    this.#lookTimer ??= this.#clock.setTimeout(() => this.#afterKill(KILL_REFUSED_MS), KILL_REFUSED_MS)
  }

  #pump(stream: 'stdout' | 'stderr', limits: OutputLimits): OutputPump {
    const handlers = {
      onData: (data: Uint8Array) => {
        if (this.#exited) this.#leftover += data.length + FRAME_COST
        this.#handlers.onOutput(stream, data)
      },
      onApproaching: (total: number) => this.#handlers.onWarning(`${stream}_approaching_cap`, total),
      onCapHit: (total: number) => this.#handlers.onWarning(`${stream}_cap_hit`, total),
    }
    return new OutputPump({ ...this.#deps, source: this.#child[stream], handlers }, limits)
  }

  #limitDuration(limits: DurationLimits): DurationLimit {
    const handlers = {
      onApproaching: () => this.#handlers.onWarning('duration_approaching_cap', null),
      onTerminate: () => {
        if (this.#terminating || this.#exited) return
        this.#outOfTime = true
        this.terminate()
        this.#handlers.onWarning('duration_cap_hit', null)
      },
      onKill: () => this.kill(),
    }
    return new DurationLimit({ clock: this.#clock, handlers }, limits)
  }

  async #watch(began: number): Promise<ProcessEnd> {
    const exit = await Promise.race([this.#child.exited, this.#abandoned.promise])
    const duration = Math.max(0, Math.round(this.#clock.monotonic() - began))
    this.#exited = true
    this.#duration.stop()
    this.#killTimer?.cancel()
    this.#lookTimer?.cancel()
    if (exit === null) return this.#abandon(duration)
    // The caller of `startProcess` reports the start before output comes.
    if (this.#paused) await nextTurn()
    this.resume()
    const outcome = await this.#drain()
    if (outcome !== 'ended') this.#handlers.onWarning('descendant_held_output', null)
    if (outcome === 'cut') this.#handlers.onWarning('output_lost', null)
    const { leftBehind } = this.#child.tree
    if (leftBehind > 0) this.#handlers.onWarning('descendants_ended', leftBehind)
    if (this.#maySurvive(outcome)) this.#handlers.onWarning('descendants_may_survive', null)
    this.#closePipes()
    const [stdout, stderr] = [this.#stdout.finish(), this.#stderr.finish()]
    const truncated = stdout.truncated || stderr.truncated || outcome === 'cut' || this.#outOfTime
    return { ...exit, duration_ms: duration, stdout, stderr, truncated }
  }

  /** True if a process may hold the output without being found or killed, for lack of a control group or namespace. */
  #maySurvive(outcome: DrainOutcome): boolean {
    const { containment, mayLeak } = this.#child.tree
    return mayLeak || (containment === 'group' && outcome !== 'ended')
  }

  /** The program survived SIGKILL, so the run ends without it and warns. */
  #abandon(duration_ms: number): ProcessEnd {
    this.#outlived = true
    this.#handlers.onWarning('descendants_may_survive', null)
    this.#closePipes()
    const [stdout, stderr] = [this.#stdout.finish(), this.#stderr.finish()]
    return { code: null, signal: null, duration_ms, stdout, stderr, truncated: true }
  }

  /** Checks whether the program has died, `waited` ms after SIGKILL. */
  #afterKill(waited: number): void {
    const { leaderLives, refusesSignals } = this.#child.tree
    if (this.#exited || !leaderLives) return
    if (refusesSignals || waited >= KILL_DEAF_MS) return this.#abandoned.resolve(null)
    this.#lookTimer = this.#clock.setTimeout(() => this.#afterKill(KILL_DEAF_MS), KILL_DEAF_MS - waited)
  }

  /**
   * Reads the rest of the output after the exit. Abandons open pipes after DRAIN_MS without a byte, and after DRAIN_TOTAL_MS in any case.
   */
  async #drain(): Promise<DrainOutcome> {
    const [stdout, stderr] = [this.#stdout, this.#stderr]
    const ended = Promise.all([stdout.ended, stderr.ended])
    const began = this.#clock.monotonic()
    while (!stdout.isEnded || !stderr.isEnded) {
      const before = stdout.total + stderr.total
      await within(this.#clock, DRAIN_MS, ended)
      // On a busy machine a late timer fires before bytes that have arrived, so those are read first.
      await nextTurn()
      if (stdout.isEnded && stderr.isEnded) break
      // More has come than the pipes of the ended program can have held.
      if (this.#paused || this.#clock.monotonic() - began >= DRAIN_TOTAL_MS) return 'cut'
      if (stdout.total + stderr.total === before) return 'held'
    }
    return 'ended'
  }

  #closePipes(): void {
    this.stdin?.destroy()
    // The totals are final, so later bytes must be ignored.
    this.#stop()
    this.#stdout.destroy()
    this.#stderr.destroy()
  }
}
