import { type Clock, within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { Startable } from '../../base/startable.ts'
import { Condition } from '../../base/wait-queue.ts'
import type { ExecutorClient } from '../../executor-api/client.ts'
import type { RequestProof } from '../../executor-api/messages.ts'
import type { FanoutSession } from '../../protocol/api-answers.ts'
import type { FanoutHostJson, FanoutLedgerJson, NotStartedReason } from '../../protocol/api/fanout.ts'
import { FANOUT_LEAST_RUNS, MAX_FANOUTS, MAX_FANOUT_RUNS } from '../../protocol/limits/fleet.ts'
import { SHUTDOWN_MS } from '../../protocol/limits/wire.ts'
import type { ExecClient } from '../client.ts'
import type { RequesterCounters } from '../counters.ts'
import { checkSpec } from '../run-spec.ts'
import { Fanout, type FanoutPlan, type FanoutSlotSource } from './fanout.ts'
import { type FanoutCommand, type HostSink, beginHost } from './host-run.ts'

/** What all that may go on need to have their least: who has its least takes none of these. */
const KEPT_FREE = MAX_FANOUTS * FANOUT_LEAST_RUNS

/**
 * Places of the runs of all fan-outs. One whose reader pauses keeps its places for as long as it likes: so each takes its next only while more
 * are free than it has, and whoever comes later finds as many as the one before it took, or its least.
 */
export class FanoutSlots {
  readonly #clock: Clock
  readonly #fewer = new Condition()
  #free = MAX_FANOUT_RUNS

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Of one fan-out; of at most `MAX_FANOUTS` at once. */
  share(): FanoutSlotSource {
    let mine = 0
    const leave = (): void => {
      mine -= 1
      this.#free += 1
      this.#fewer.notifyAll()
    }
    const mayEnter = (): boolean => mine < FANOUT_LEAST_RUNS || this.#free > Math.max(mine, KEPT_FREE)
    const enter = async (signal: AbortSignal): Promise<() => void> => {
      signal.throwIfAborted()
      while (!mayEnter()) {
        await this.#fewer.waitAtMost({ clock: this.#clock, timeoutMs: null, signal })
        signal.throwIfAborted()
      }
      mine += 1
      this.#free -= 1
      return leave
    }
    return { acquire: enter }
  }
}

export interface FanoutsComponents {
  readonly clock: Clock
  readonly counters: RequesterCounters
  readonly executor: Pick<ExecutorClient, 'proveFanout' | 'fanoutOver'>
  readonly runner: Pick<ExecClient, 'run' | 'cancel'>
}

export interface FanoutSpec extends FanoutPlan {
  readonly command: FanoutCommand
  /** An operator's, over the object that this was made from; null: there is none. */
  readonly proof: RequestProof | null
}

export interface FanoutSink extends HostSink {
  /** It goes on: every host is told of from now on. */
  asked(spec: FanoutSpec): void
  /** Once for each host. A promise holds the place of that host. */
  ended(host: FanoutHostJson): void | Promise<void>
  /** It was stopped: from now on a reader that takes nothing is waited for no longer than `FANOUT_READER_MS`. */
  hurry(): void
}

interface Going {
  readonly fanout: Fanout
  readonly shown: Pick<FanoutSession, 'argv' | 'started_at' | 'asked'>
}

/** The fan-outs of this daemon: one command each for many hosts, every host a run of its own. */
export class Fanouts implements Startable {
  readonly #parts: FanoutsComponents
  readonly #places: FanoutSlots
  readonly #going = new Map<string, Going>()
  readonly #fewer = new Condition()
  #stopping = false

  constructor(components: FanoutsComponents) {
    this.#parts = components
    this.#places = new FanoutSlots(components)
  }

  /** Throws what `run` would throw for want of room. */
  checkRoom(): void {
    if (this.#stopping) throw new AppError('shutting_down')
    if (this.#going.size >= MAX_FANOUTS) throw new AppError('rate_limited', `${MAX_FANOUTS} fan-outs are going on`)
  }

  /**
   * Asks every host, and resolves with the sums when each has ended and the sink was told. `left`: the caller is gone. Throws, with
   * no host asked, `bad_request` (argv too large), `rate_limited`, `shutting_down`, `conflict` (one with this id goes on), and
   * `operator_proof_required`.
   */
  async run(spec: FanoutSpec, sink: FanoutSink, left: AbortSignal): Promise<FanoutLedgerJson> {
    this.checkRoom()
    const { fanout_id: id, command } = spec
    checkSpec(command)
    if (this.#going.has(id)) throw new AppError('conflict', 'fanout_id: a fan-out with this id goes on')
    const { clock, counters, executor, runner } = this.#parts
    const init = { command, fanoutId: id }
    const fanout = new Fanout(
      {
        clock,
        slots: this.#places.share(),
        start: (host) => beginHost({ runner, sink }, init, host),
        ended: (host) => sink.ended(host),
      },
      spec,
    )
    const shown = { argv: command.argv, started_at: new Date(clock.now()).toISOString(), asked: spec.hosts.length }
    this.#going.set(id, { fanout, shown })
    const leave = (): void => fanout.stop('caller_left')
    fanout.stopped.addEventListener('abort', () => sink.hurry())
    try {
      if (spec.proof !== null) await executor.proveFanout(id, spec.proof)
      counters.add('fanouts')
      sink.asked(spec)
      left.addEventListener('abort', leave, { once: true })
      if (left.aborted) leave()
      return counted(counters, await fanout.run())
    } finally {
      left.removeEventListener('abort', leave)
      this.#going.delete(id)
      this.#fewer.notifyAll()
      if (spec.proof !== null) executor.fanoutOver(id).catch(() => undefined)
    }
  }

  /** Its caller still gets the ledger. Throws `unknown_run`. */
  cancel(fanoutId: string): void {
    const going = this.#going.get(fanoutId)
    if (going === undefined)
      throw new AppError('unknown_run', 'no fan-out of this daemon has that id, or it has ended', {
        data: { next: 'what goes on: x0x exec sessions' },
      })
    going.fanout.stop('fanout_cancelled')
  }

  /** Those that go on, oldest first. */
  sessions(): FanoutSession[] {
    return [...this.#going].map(([fanout_id, { fanout, shown }]) => ({ fanout_id, ...shown, ...fanout.progress }))
  }

  /** Begins nothing more and cancels all; those who wait get their ledgers. */
  stopAll(reason: NotStartedReason = 'shutting_down'): void {
    this.#stopping = true
    for (const { fanout } of this.#going.values()) fanout.stop(reason)
  }

  async stop(): Promise<void> {
    this.stopAll()
    const over = async (): Promise<void> => {
      while (this.#going.size > 0) await this.#fewer.wait()
    }
    await within(this.#parts.clock, SHUTDOWN_MS, over())
  }
}

const counted = (counters: RequesterCounters, ledger: FanoutLedgerJson): FanoutLedgerJson => {
  counters.add('fanout_hosts', ledger.asked)
  counters.add('fanout_hosts_not_started', ledger.not_started)
  return ledger
}
