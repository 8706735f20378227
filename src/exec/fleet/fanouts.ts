import { type Clock, within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { Startable } from '../../base/startable.ts'
import { Condition } from '../../base/wait-queue.ts'
import type { RequestProof } from '../../executor-api/messages.ts'
import type { FanoutSession } from '../../protocol/api-answers.ts'
import type { FanoutHostJson, FanoutLedgerJson, NotStartedReason } from '../../protocol/api/fanout.ts'
import { FANOUT_LEAST_RUNS, MAX_FANOUTS, MAX_FANOUT_RUNS } from '../../protocol/limits/fleet.ts'
import { SHUTDOWN_MS } from '../../protocol/limits/wire.ts'
import type { ExecClient } from '../client.ts'
import type { RequesterCounters } from '../counters.ts'
import { drainingHere } from '../outgoing-runs.ts'
import { checkSpec } from '../run-spec.ts'
import type { NetworkServices } from '../services.ts'
import { Fanout, type FanoutPlan, type FanoutSlotSource } from './fanout.ts'
import { type FanoutCommand, type HostSink, startHost } from './host-run.ts'

/** Slots that stay free, so that each possible fan-out gets its minimum. A fan-out above its minimum does not take them. */
const KEPT_FREE = MAX_FANOUTS * FANOUT_LEAST_RUNS

/**
 * Slots for the runs of all fan-outs. A fan-out with a paused reader keeps its slots indefinitely. So each takes another only if more slots
 * are free than it holds. A later fan-out then finds as many as the previous one took, or its minimum.
 */
export class FanoutSlots {
  readonly #clock: Clock
  readonly #fewer = new Condition()
  #free = MAX_FANOUT_RUNS

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Slots of one fan-out, of at most `MAX_FANOUTS` at once. */
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

type FanoutsDeps = Pick<NetworkServices, 'clock' | 'counters' | 'executor'> & { readonly runner: Pick<ExecClient, 'run' | 'cancel'> }

export interface FanoutSpec extends FanoutPlan {
  readonly command: FanoutCommand
  /** Proof of an operator over the client's request object, or null without one. */
  readonly proof: RequestProof | null
}

export interface FanoutSink extends HostSink {
  /** The fan-out has started. Every host is reported from now on. */
  asked(spec: FanoutSpec): void
  /** Called once per host. The slot of the host stays taken until the promise resolves. */
  ended(host: FanoutHostJson): void | Promise<void>
  /** The fan-out was stopped. From now on, a reader that does not read delays it by at most `FANOUT_READER_MS`. */
  hurry(): void
}

interface Going {
  readonly fanout: Fanout
  readonly shown: Pick<FanoutSession, 'argv' | 'started_at' | 'asked'>
}

/** The fan-outs of this daemon. Each is one command for many hosts, with one run per host. */
export class Fanouts implements Startable {
  readonly #deps: FanoutsDeps
  readonly #slots: FanoutSlots
  readonly #going = new Map<string, Going>()
  readonly #fewer = new Condition()
  #stopping = false
  /** While true, new fan-outs are refused. */
  isDraining = false

  constructor(deps: FanoutsDeps) {
    this.#deps = deps
    this.#slots = new FanoutSlots(deps)
  }

  /** Throws as `run` if there are too many fan-outs. */
  checkRoom(): void {
    if (this.#stopping) throw new AppError('shutting_down')
    if (this.isDraining) throw drainingHere()
    if (this.#going.size >= MAX_FANOUTS) throw new AppError('rate_limited', `${MAX_FANOUTS} fan-outs are running, which is the limit`)
  }

  /**
   * Runs the command on every host, and resolves with the totals when each has ended and was reported. `left` aborts when the client
   * disconnects. Throws before the first run `bad_request` (argv too large), `rate_limited`, `shutting_down`, `conflict` (a fan-out has
   * this ID), and `operator_proof_required`.
   */
  async run(spec: FanoutSpec, sink: FanoutSink, left: AbortSignal): Promise<FanoutLedgerJson> {
    this.checkRoom()
    const { fanout_id: id, command } = spec
    checkSpec(command)
    if (this.#going.has(id)) throw new AppError('conflict', 'fanout_id: a fan-out with this ID is running')
    const { clock, counters, executor, runner } = this.#deps
    const init = { command, fanoutId: id }
    const fanout = new Fanout(
      {
        clock,
        slots: this.#slots.share(),
        start: (host) => startHost({ runner, sink }, init, host),
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

  /** Cancels a fan-out. Its client still gets the ledger. Throws `unknown_run`. */
  cancel(fanoutId: string): void {
    const going = this.#going.get(fanoutId)
    if (going === undefined)
      throw new AppError('unknown_run', 'no fan-out of this daemon has that id, or it has ended', {
        data: { next: 'See: x0x exec sessions' },
      })
    going.fanout.stop('fanout_cancelled')
  }

  /** Running fan-outs, oldest first. */
  sessions(): FanoutSession[] {
    return [...this.#going].map(([fanout_id, { fanout, shown }]) => ({ fanout_id, ...shown, ...fanout.progress }))
  }

  /** Cancels all fan-outs. Their clients get the ledgers. */
  stopAll(reason: NotStartedReason = 'shutting_down'): void {
    this.#stopping = true
    for (const { fanout } of this.#going.values()) fanout.stop(reason)
  }

  async stop(): Promise<void> {
    this.stopAll()
    const over = async (): Promise<void> => {
      while (this.#going.size > 0) await this.#fewer.wait()
    }
    await within(this.#deps.clock, SHUTDOWN_MS, over())
  }
}

const counted = (counters: RequesterCounters, ledger: FanoutLedgerJson): FanoutLedgerJson => {
  counters.add('fanout_hosts', ledger.asked)
  counters.add('fanout_hosts_not_started', ledger.not_started)
  return ledger
}
