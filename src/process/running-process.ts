import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Clock, type Timer, within } from '../base/clock.ts'
import type { TerminalSize } from '../executor-api/local.ts'
import type { Permit } from '../policy/permit.ts'
import { MAX_LEFT_IN_PIPES } from '../protocol/limits/daemon.ts'
import { DRAIN_MS, DURATION_TERM_LEAD_MS, FRAME_COST, KILL_GRACE_MS } from '../protocol/limits/wire.ts'
import type { Containment, WarningKind } from '../protocol/reasons.ts'
import type { ExitStatus, ProcessSignal } from './signals.ts'
import { type SpawnedProgram, type SpawnDeps, type SpawnFailure, spawnPermitted } from './spawn.ts'
import { type OutputLimits, OutputPump, type OutputTotals, StdinSink } from './streams.ts'

/** All in milliseconds from the start. */
export interface DurationLimits {
  /** What the requester asked for, or the cap. */
  readonly timeout_ms: number
  /** The operator's: nothing runs longer. */
  readonly cap_ms: number
  /** When `onApproaching` is called, if that is before the end begins. */
  readonly warn_ms: number
}

export interface DurationHandlers {
  onApproaching(): void
  /** Time for SIGTERM. */
  onTerminate(): void
  /** Time for SIGKILL. */
  onKill(): void
}

/** SIGTERM comes 5 s before SIGKILL, or half way where that would be too early. */
const leadBefore = (kill: number): number => (kill < 2 * DURATION_TERM_LEAD_MS ? Math.floor(kill / 2) : kill - DURATION_TERM_LEAD_MS)

/**
 * When the signals are due. The cap is hard: SIGKILL at it, SIGTERM before. A timeout below it is the
 * requester's own: SIGTERM at it, and the grace after it as far as the cap leaves room.
 */
export const endsOf = ({ timeout_ms, cap_ms }: Omit<DurationLimits, 'warn_ms'>): { terminate: number; kill: number } => {
  const kill = Math.min(timeout_ms + DURATION_TERM_LEAD_MS, cap_ms)
  return { terminate: Math.min(timeout_ms, leadBefore(cap_ms)), kill }
}

/** The three moments of a run's time. Starts counting when it is made. */
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

/** From SIGKILL to the moment when a program that lives, and is another user's by now, is given up. */
const KILL_REFUSED_MS = 1_000
/** The same for one that the kernel itself holds, or takes this long to take apart. */
const KILL_DEAF_MS = 10_000
/** After exit, all the time that pipes may still be read while a descendant writes to them. */
export const DRAIN_TOTAL_MS = 2_000

export interface ProcessHandlers {
  /** Bytes to forward, in order per stream, at most MAX_FRAME_DATA each; may call `pause`. */
  onOutput(stream: 'stdout' | 'stderr', data: Uint8Array): void
  /** Each kind at most once. `amount`: total bytes for a stream's warning, the number of processes for `descendants_ended`, null for all others. */
  onWarning(kind: WarningKind, amount: number | null): void
}

/**
 * How the reading of the pipes came to its end after the process had exited: `ended` = end of file;
 * `held` = a descendant keeps them open and is silent; `cut` = a descendant went on writing, and what it wrote is lost.
 */
type DrainOutcome = 'ended' | 'held' | 'cut'

/** How a run ended, with everything that its Exit says. Neither code nor signal: it could not be killed, and lives. */
export interface ProcessEnd extends ExitStatus {
  readonly duration_ms: number
  readonly stdout: OutputTotals
  readonly stderr: OutputTotals
  /** Bytes were dropped or lost, or the duration cap ended the run. */
  readonly truncated: boolean
}

export type ProcessDeps = SpawnDeps & { readonly clock: Clock; readonly handlers: ProcessHandlers }

export type StartResult = { readonly kind: 'started'; readonly process: RunningProcess } | SpawnFailure

/** Starts what was permitted, within its caps. Output is not read before the first `resume`, or the end of the program. */
export const startProcess = async (permit: Permit, deps: ProcessDeps, options: { stdin: boolean }): Promise<StartResult> => {
  const spawned = await spawnPermitted(permit, deps, options)
  if (spawned.kind === 'spawn_failed') return spawned
  return { kind: 'started', process: new RunningProcess(deps, { child: spawned.child, caps: permit.caps }) }
}

/** One running program: its output, its time, its end. */
export class RunningProcess {
  readonly pid: number
  /** Null: the program reads /dev/null. */
  readonly stdin: StdinSink | null
  /** Settles once, when the program has exited and its output was read; the pipes are closed then. */
  readonly ended: Promise<ProcessEnd>
  readonly #clock: Clock
  readonly #handlers: ProcessHandlers
  readonly #child: SpawnedProgram
  readonly #stdout: OutputPump
  readonly #stderr: OutputPump
  readonly #duration: DurationLimit
  #paused = true
  #terminating = false
  #exited = false
  /** What came after the exit, as the limits count it. */
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
    this.#handlers = deps.handlers
    this.#child = child
    const budget = caps.max_output_bytes === null ? null : { left: caps.max_output_bytes }
    this.#stdout = this.#pump('stdout', { cap: caps.max_stdout_bytes, warn: caps.warn_stdout_bytes, budget })
    this.#stderr = this.#pump('stderr', { cap: caps.max_stderr_bytes, warn: caps.warn_stderr_bytes, budget })
    this.#duration = this.#limitDuration({ timeout_ms: caps.timeout_ms, cap_ms: caps.max_duration_ms, warn_ms: caps.warn_duration_ms })
    this.ended = this.#watch(this.#clock.monotonic())
  }

  /**
   * Stops reading both streams; the program blocks when its pipes are full. What a program that has ended left in them
   * is read all the same: it is no more than a pipe holds, and it would be lost.
   */
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
    // A handler of the first may have paused again.
    if (!this.#paused) this.#stderr.resume()
  }

  /** Null, but for a program that has outlived its run because nothing could kill it, and counts among those that run: settles when it is dead at last. */
  get dead(): Promise<unknown> | null {
    return this.#outlived ? this.#child.exited : null
  }

  /** What holds its processes together. */
  get containment(): Containment {
    return this.#child.tree.containment
  }

  /** SIGTERM to everything that runs, SIGKILL after KILL_GRACE_MS. A second call changes nothing. */
  terminate(): void {
    this.#askToEnd('SIGTERM')
  }

  /** The same as when somebody closes the window of a terminal: SIGHUP to everything that runs. */
  hangUp(): void {
    this.#askToEnd('SIGHUP')
  }

  /** Does nothing where there is no terminal. */
  resize(size: TerminalSize): void {
    if (!this.#exited) this.#child.resize?.(size)
  }

  #askToEnd(signal: ProcessSignal): void {
    if (this.#terminating || this.#exited) return
    this.#terminating = true
    this.#child.signal(signal)
    this.#killTimer = this.#clock.setTimeout(() => this.kill(), KILL_GRACE_MS)
  }

  /** Signals everything that runs. SIGKILL goes by `kill`; no other signal is followed by a second. */
  signal(signal: ProcessSignal): void {
    if (signal === 'SIGKILL') this.kill()
    else if (!this.#exited) this.#child.signal(signal)
  }

  /** SIGKILL to everything that runs, now. */
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
    return new OutputPump({ source: this.#child[stream], handlers }, limits)
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

  /** A process that holds its output, outside of any control group or namespace, was not found and not killed. */
  #maySurvive(outcome: DrainOutcome): boolean {
    const { containment, mayLeak } = this.#child.tree
    return mayLeak || (containment === 'group' && outcome !== 'ended')
  }

  /** The program has survived SIGKILL: the run ends without it, and warns. */
  #abandon(duration_ms: number): ProcessEnd {
    this.#outlived = true
    this.#handlers.onWarning('descendants_may_survive', null)
    this.#closePipes()
    const [stdout, stderr] = [this.#stdout.finish(), this.#stderr.finish()]
    return { code: null, signal: null, duration_ms, stdout, stderr, truncated: true }
  }

  /** Looks whether the program has died of SIGKILL, `waited` ms ago. */
  #afterKill(waited: number): void {
    const { leaderLives, refusesSignals } = this.#child.tree
    if (this.#exited || !leaderLives) return
    if (refusesSignals || waited >= KILL_DEAF_MS) return this.#abandoned.resolve(null)
    this.#lookTimer = this.#clock.setTimeout(() => this.#afterKill(KILL_DEAF_MS), KILL_DEAF_MS - waited)
  }

  /**
   * Waits, after the exit, until everything that the program wrote has been read. Pipes that stay open are given up after
   * DRAIN_MS without a byte, and after DRAIN_TOTAL_MS whatever comes.
   */
  async #drain(): Promise<DrainOutcome> {
    const [stdout, stderr] = [this.#stdout, this.#stderr]
    const ended = Promise.all([stdout.ended, stderr.ended])
    const began = this.#clock.monotonic()
    while (!stdout.isEnded || !stderr.isEnded) {
      const before = stdout.total + stderr.total
      await within(this.#clock, DRAIN_MS, ended)
      // A timer that fires late on a busy machine fires before bytes that have long arrived: let those come first.
      await nextTurn()
      if (stdout.isEnded && stderr.isEnded) break
      // More has come than the pipes of the ended process can have held.
      if (this.#paused || this.#clock.monotonic() - began >= DRAIN_TOTAL_MS) return 'cut'
      if (stdout.total + stderr.total === before) return 'held'
    }
    return 'ended'
  }

  #closePipes(): void {
    this.stdin?.destroy()
    // Bytes that come between here and the close must not reach anyone: the totals stand.
    this.#stop()
    this.#stdout.destroy()
    this.#stderr.destroy()
  }
}
