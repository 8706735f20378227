import type { ExecutorClient } from '../executor-api/client.ts'
import { type StreamKeys, linkIdOf, streamKeys } from '../identity/link-crypto.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import { type AgentId, type MachineId, toHex } from '../protocol/ids.ts'
import type { TrustDecision } from '../protocol/reasons.ts'

export interface LinkPath {
  /** Address of the peer, as text. */
  readonly address: string
  /** True if the peer dialled. */
  readonly inbound: boolean
  /** The relay that carries the connection, or null if it is direct. */
  readonly relay: MachineId | null
}

/** Two agents that proved their keys on a connection of two proven machines. */
export interface Link {
  readonly agentId: AgentId
  readonly machineId: MachineId
  /** Public key of the peer's agent, with which its signatures are verified. */
  readonly agentPublicKey: Uint8Array
  /** Number of the link in the executor API. */
  readonly number: number
  readonly path: LinkPath
  /** Decision of the executor's trust rules about the peer, for display. The executor itself decides about runs. */
  readonly decision: TrustDecision
  /** Changes with every message from the peer on this link's connection. */
  readonly heard: number
}

export const isAccepted = (decision: TrustDecision): boolean => decision === 'accept' || decision === 'accept_with_flag'
export const isRejected = (decision: TrustDecision): boolean => decision.startsWith('reject_')

/** Result of a finished handshake. */
export interface LinkFacts {
  readonly agentId: AgentId
  readonly agentPublicKey: Uint8Array
  readonly number: number
  readonly decision: TrustDecision
  readonly initiator: boolean
  readonly secret: Uint8Array
  /** Hash of the final transcript. */
  readonly transcript: Uint8Array
}

/** A link with its keys and state, until its connection ends. */
export class OpenLink implements Link {
  readonly connection: MeshConnection
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly agentPublicKey: Uint8Array
  readonly number: number
  readonly initiator: boolean
  /** ID of the link on the wire, in hex. */
  readonly id: string
  readonly openedAtMs: number
  decision: TrustDecision
  /** No new channel may start. The link ends with its last one. */
  retired = false
  closed = false
  /** This side has opened a channel, so the peer may send all output of a run. */
  asked = false
  readonly #secret: Uint8Array
  readonly #transcript: Uint8Array

  constructor(components: { connection: MeshConnection }, init: LinkFacts & { openedAtMs: number }) {
    this.connection = components.connection
    this.machineId = components.connection.machineId
    this.agentId = init.agentId
    this.agentPublicKey = init.agentPublicKey
    this.number = init.number
    this.decision = init.decision
    this.initiator = init.initiator
    this.openedAtMs = init.openedAtMs
    this.#secret = init.secret
    this.#transcript = init.transcript
    this.id = toHex(linkIdOf(init.transcript))
  }

  get path(): LinkPath {
    const { address, inbound, relay } = this.connection
    return { address, inbound, relay }
  }

  get heard(): number {
    return this.connection.heard
  }

  get usable(): boolean {
    return !this.closed && !this.retired && this.connection.open && !isRejected(this.decision)
  }

  streamKeys(responderNonce: Uint8Array, openerNonce: Uint8Array): StreamKeys {
    return streamKeys(this.#secret, this.#transcript, responderNonce, openerNonce)
  }
}

/** The methods of the executor API that links and messages need. */
export type LinkExecutor = Pick<
  ExecutorClient,
  | 'identity'
  | 'onLinkDecision'
  | 'onLinkRevocations'
  | 'linkOpen'
  | 'linkConfirm'
  | 'linkAccept'
  | 'linkFinish'
  | 'linkDropped'
  | 'linkClosed'
  | 'mintNonces'
  | 'dropNonces'
  | 'revocations'
>
