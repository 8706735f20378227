import { AppError } from '../base/errors.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import type { Reopen } from './resume-contract.ts'
import { ChannelTransport, PortTransport, type RunChannel, type RunTransport } from './transport.ts'

/** Of `Links`. */
export interface ChannelSource {
  /** Whether a link to the agent stands, so that nobody has to be dialled for it. */
  isLinked(agentId: AgentId): boolean
  openChannel(agentId: AgentId, signal: AbortSignal): Promise<RunChannel>
  /** To this agent on this machine and no other. `silent`: what connects us to the machine now is to be given up first. */
  reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<RunChannel>
}

export interface TransportsComponents {
  /** Null where there is no mesh: then only this daemon itself can be asked. */
  readonly links: ChannelSource | null
  readonly executor: Pick<ExecutorClient, 'identity' | 'mintNonces' | 'openRun' | 'drained'>
}

/** The port's link of this daemon to itself. */
export const OWN_LINK = 0

/** Ways to the agents that can be asked: streams to others, and the port to our own executor. */
export class Transports {
  readonly #parts: TransportsComponents

  constructor(components: TransportsComponents) {
    this.#parts = components
  }

  /** Whether a way to the agent has to be made first. */
  mustDial(agentId: AgentId): boolean {
    const { executor, links } = this.#parts
    return agentId !== executor.identity.agentId && links?.isLinked(agentId) === false
  }

  /** Throws what dialling throws: `unknown_agent`, `peer_unreachable`, `peer_rejected`, `timeout`. */
  async open(agentId: AgentId, requestId: RequestId, signal: AbortSignal): Promise<RunTransport> {
    const { executor, links } = this.#parts
    if (agentId !== executor.identity.agentId) {
      if (links === null) throw new AppError('peer_unreachable', 'there is no mesh here: only this agent itself can be asked')
      return new ChannelTransport({ channel: await links.openChannel(agentId, signal) }, { requestId })
    }
    const [streamNonce] = await executor.mintNonces(OWN_LINK, 1)
    if (streamNonce === undefined) throw new AppError('internal', 'the executor minted no nonce')
    return new PortTransport({ executor }, { peer: { number: OWN_LINK, ...executor.identity }, streamNonce })
  }

  /** To this agent on this machine and no other. Throws as `open`. */
  async openAt(to: { agentId: AgentId; machineId: MachineId }, requestId: RequestId, signal: AbortSignal): Promise<RunTransport> {
    const { executor, links } = this.#parts
    const isOwn = to.agentId === executor.identity.agentId && to.machineId === executor.identity.machineId
    if (isOwn || links === null) return this.open(to.agentId, requestId, signal)
    return new ChannelTransport({ channel: await links.reopenChannel(to, false, signal) }, { requestId })
  }

  /** Null for this daemon itself: there is no network in between. */
  reopenerOf({ peer }: RunTransport, requestId: RequestId): Reopen | null {
    const { links } = this.#parts
    if (links === null || peer.number === OWN_LINK) return null
    return async (silent, signal) => new ChannelTransport({ channel: await links.reopenChannel(peer, silent, signal) }, { requestId })
  }
}
