import type { ExecutorClient } from '../executor-api/client.ts'
import { type StreamKeys, linkIdOf, streamKeys } from '../identity/link-crypto.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import { type AgentId, type MachineId, toHex } from '../protocol/ids.ts'
import type { TrustDecision } from '../protocol/reasons.ts'

export interface LinkPath {
  /** The peer's, as text. */
  readonly address: string
  /** The peer dialled us. */
  readonly inbound: boolean
  /** The machine that carries it; null: it is direct. */
  readonly relay: MachineId | null
}

/** A proven pair of agents over a proven pair of machines. */
export interface Link {
  readonly agentId: AgentId
  readonly machineId: MachineId
  /** The peer's, as its signature of the link proved it: to check what it signs. */
  readonly agentPublicKey: Uint8Array
  /** Its number on the executor's port. */
  readonly number: number
  /** How its connection leads there. */
  readonly path: LinkPath
  /** What our executor's trust rules say of the peer now: for display and messages; the executor itself decides about runs. */
  readonly decision: TrustDecision
  /** Grows with whatever comes from the peer on the connection of this link. */
  readonly heard: number
}

export const isAccepted = (decision: TrustDecision): boolean => decision === 'accept' || decision === 'accept_with_flag'
export const isRejected = (decision: TrustDecision): boolean => decision.startsWith('reject_')

/** What a finished handshake leaves behind. */
export interface LinkFacts {
  readonly agentId: AgentId
  readonly agentPublicKey: Uint8Array
  readonly number: number
  readonly decision: TrustDecision
  readonly initiator: boolean
  readonly secret: Uint8Array
  /** The final transcript's hash. */
  readonly transcript: Uint8Array
}

/** A link while its connection lives: its keys and its state. */
export class OpenLink implements Link {
  readonly connection: MeshConnection
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly agentPublicKey: Uint8Array
  readonly number: number
  readonly initiator: boolean
  /** Its name on the wire, as hex. */
  readonly id: string
  readonly openedAtMs: number
  decision: TrustDecision
  /** No new channel starts on it; it ends with its last one. */
  retired = false
  closed = false
  /** We have opened a channel on it: what answers there may be all the output of a run. */
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

/** The part of the executor's port that links and messages need. */
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
