import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { reach } from '../base/stages.ts'
import type { ExecutorClient } from '../executor/port/client.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import type { Reopen } from './attachment.ts'
import { ClientRun, type SignedRequest } from './client-run.ts'
import type { RequesterCounters } from './counters.ts'
import type { RunOutcome, RunSink, RunSpec } from './run-spec.ts'
import { ChannelWire, PortWire, type RunChannel, type RunWire } from './wire.ts'

/** Of `Links`. */
export interface ChannelSource {
  openChannel(agentId: AgentId, signal: AbortSignal): Promise<RunChannel>
  /** To this agent on this machine and no other. `silent`: what connects us to the machine now is to be given up first. */
  reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<RunChannel>
}

export interface ExecClientComponents {
  /** Null where there is no mesh: then only this daemon itself can be asked. */
  readonly links: ChannelSource | null
  readonly executor: Pick<ExecutorClient, 'identity' | 'mintNonces' | 'signRequest' | 'openRun' | 'drained'>
  readonly clock: Clock
  readonly counters: RequesterCounters
}

/** What a run tells its session as it goes. */
export interface RunProgress {
  requested(machineId: MachineId): void
  running(): void
}

/** Opens a wire, has the request signed for it, and sees the run through. */
export class ExecClient {
  readonly #components: ExecClientComponents

  constructor(components: ExecClientComponents) {
    this.#components = components
  }

  /**
   * `stop` is the caller leaving: before the Request is sent it throws the signal's reason, afterwards it
   * cancels. `cancelled` is a wish to end the run: its caller still gets the outcome.
   * Errors: what opening the link or signing throws, and what the caller's own sink or stdin throws.
   */
  async run(
    spec: RunSpec,
    requestId: RequestId,
    sink: RunSink,
    progress: RunProgress,
    signals: { cancelled: AbortSignal; stop: AbortSignal },
  ): Promise<RunOutcome> {
    const early = AbortSignal.any([signals.cancelled, signals.stop])
    early.throwIfAborted()
    reach('asked', requestId)
    const wire = await this.#open(spec.agent_id, requestId, early)
    reach('connected', requestId)
    try {
      const sign = async (on: RunWire): Promise<SignedRequest> => this.#sign(on, spec, requestId)
      const request = await sign(wire)
      early.throwIfAborted()
      const expected = { requestId, from: wire.peer, to: this.#components.executor.identity }
      const { clock, counters } = this.#components
      const reopen = this.#reopenerOf(wire, requestId)
      const onStarted = (): void => progress.running()
      const run = new ClientRun({ wire, reopen, clock, counters, sink, onStarted, sign }, { spec, expected, request })
      progress.requested(wire.peer.machineId)
      return await withSignals(run, signals)
    } catch (error) {
      wire.abort()
      throw error
    }
  }

  async #open(agentId: AgentId, requestId: RequestId, signal: AbortSignal): Promise<RunWire> {
    const { executor, links } = this.#components
    if (agentId !== executor.identity.agentId) {
      if (links === null) throw new AppError('peer_unreachable', 'there is no mesh here: only this agent itself can be asked')
      return new ChannelWire({ channel: await links.openChannel(agentId, signal) }, { requestId })
    }
    const [streamNonce] = await executor.mintNonces(OWN_LINK, 1)
    if (streamNonce === undefined) throw new AppError('internal', 'the executor minted no nonce')
    return new PortWire({ executor }, { peer: { number: OWN_LINK, ...executor.identity }, streamNonce })
  }

  /** Null for a run of our own, which has no network in between. */
  #reopenerOf({ peer }: RunWire, requestId: RequestId): Reopen | null {
    const { links } = this.#components
    if (links === null || peer.number === OWN_LINK) return null
    return async (silent, signal) => new ChannelWire({ channel: await links.reopenChannel(peer, silent, signal) }, { requestId })
  }

  async #sign(wire: RunWire, spec: RunSpec, requestId: RequestId): Promise<SignedRequest> {
    const { argv, stdin, timeout_ms, cwd, clamp, proof } = spec
    const request = {
      link: wire.peer.number,
      request_id: requestId,
      stream_nonce: wire.streamNonce,
      argv: [...argv],
      stdin: stdin === null ? null : { len: stdin.len, pieces: [...stdin.pieces] },
      timeout_ms,
      cwd,
      clamp,
    }
    return this.#components.executor.signRequest(request, proof)
  }
}

/** The port's link of this daemon to itself. */
const OWN_LINK = 0

const withSignals = async (run: ClientRun, signals: { cancelled: AbortSignal; stop: AbortSignal }): Promise<RunOutcome> => {
  const cancel = (): void => run.cancel()
  const abandon = (): void => run.abandon()
  signals.cancelled.addEventListener('abort', cancel, { once: true })
  signals.stop.addEventListener('abort', abandon, { once: true })
  try {
    return await run.run()
  } finally {
    signals.cancelled.removeEventListener('abort', cancel)
    signals.stop.removeEventListener('abort', abandon)
  }
}
