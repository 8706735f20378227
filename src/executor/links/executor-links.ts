import { AppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { agentIdOf, verifyAgent, verifyMachine } from '../../identity/signing.ts'
import { equalBytes } from '../../identity/hash.ts'
import { type LinkMachines, initiatorTranscript, responderTranscript } from '../../identity/link-crypto.ts'
import { type AgentId, type MachineId, pairKey } from '../../protocol/ids.ts'
import { MAX_CONNECTIONS_PER_AGENT, MAX_UNPROVEN_CONNECTIONS } from '../../protocol/limits/mesh.ts'
import { LINK_HANDSHAKE_MS, LINK_VERSION, MAX_CONNECTIONS } from '../../protocol/limits/wire.ts'
import type { TrustDecision } from '../../protocol/reasons.ts'
import { LINK_DOMAINS, demandLinkVersion, linkM1, linkM2, linkM2Core, linkM3 } from '../../protocol/wire/link.ts'
import type { ExecutorServices } from '../services.ts'
import type { Nonces } from './nonces.ts'
import type { OwnIds } from './trust-evaluator.ts'

/** Handshakes at once: all that peers may begin (`HANDSHAKE_PLACES`) and as many of our own. */
export const MAX_HANDSHAKES = 256
/** Links of one connection (`MAX_LINKS_PER_CONNECTION`), and one more until the network process closes the oldest. */
const LINKS_PER_CONNECTION = 4 + 1
/** Links at once: more than the connections of the network process carry. */
const MAX_LINKS = LINKS_PER_CONNECTION * (MAX_CONNECTIONS + MAX_UNPROVEN_CONNECTIONS)
/** Links of one agent: more than its connections carry, one of which may be about to be closed. */
export const MAX_LINKS_PER_AGENT = LINKS_PER_CONNECTION * (MAX_CONNECTIONS_PER_AGENT + 1)
/** Requests answered on one link to a peer that is not accepted. Each denial costs a signature and a line in the audit log. */
export const UNACCEPTED_REQUEST_BURST = 32
const UNACCEPTED_REQUESTS_PER_SECOND = 4

/** A peer whose agent key and machine key both signed a transcript that contains our nonce. */
export interface PeerLink {
  readonly number: number
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly agentPublicKey: Uint8Array
  /** The peer has sent the statements of its earlier keys over this link. */
  heardSuccessions: boolean
  /** `pairKey` of agent and machine. */
  readonly pair: string
  /** Rate limit of its requests while the peer is not accepted. */
  readonly unacceptedRequests: TokenBucket
  /** Revocations and successions sent over this link, or null until the network process knows the link. */
  sentRevocations: Set<object> | null
  decision: TrustDecision
}

interface Handshake {
  readonly role: 'initiator' | 'responder'
  readonly peerMachine: MachineId
  readonly m1: Uint8Array
  readonly begunAt: number
  /** Set for the responder only. */
  readonly reply: { readonly core: Uint8Array; readonly nonce: Uint8Array; readonly agentPublicKey: Uint8Array } | null
}

type ExecutorLinksDeps = Pick<ExecutorServices, 'clock' | 'trustEvaluator' | 'signatures'> & { readonly nonces: Nonces }

type OwnKeys = OwnIds & { readonly agentPublicKey: Uint8Array }

/** Number of the daemon's link to itself. */
export const OWN_LINK = 0

const rejected = (message: string): AppError => new AppError('peer_rejected', message)
const badSignature = (whose: 'agent' | 'machine'): AppError =>
  new AppError('peer_rejected', `the ${whose}'s signature is wrong`, { data: { offence: 'bad_signature' } })

/**
 * Handshakes and the links that they create. All signatures cover bytes that the executor wrote or holds, so the network process can break
 * a link but not forge one.
 */
export class ExecutorLinks {
  readonly #deps: ExecutorLinksDeps
  readonly #own: OwnKeys
  readonly #handshakes = new Map<number, Handshake>()
  readonly #links = new Map<number, PeerLink>()
  #lastHandle = 0
  #lastLink = OWN_LINK

  constructor(deps: ExecutorLinksDeps, own: OwnKeys) {
    this.#deps = deps
    this.#own = own
    this.#add(OWN_LINK, own.machineId, own.agentPublicKey)
  }

  /** Throws `not_found` for an unknown link. */
  get(number: number): PeerLink {
    const link = this.#links.get(number)
    if (link === undefined) throw new AppError('not_found', `there is no link ${number}`)
    return link
  }

  all(): readonly PeerLink[] {
    return [...this.#links.values()]
  }

  /** Initiator: returns M1 of a new link. */
  open(peerMachine: MachineId, kemPublicKey: Uint8Array): { handle: number; m1: Uint8Array } {
    const m1 = linkM1.encode({
      versions: [LINK_VERSION],
      agent_public_key: this.#own.agentPublicKey,
      kem_public_key: kemPublicKey,
      nonce: this.#deps.nonces.make(),
    })
    return { handle: this.#start({ role: 'initiator', peerMachine, m1, reply: null }), m1 }
  }

  /** Initiator: verifies M2 and signs M3. */
  async confirm(handle: number, m2: Uint8Array): Promise<{ link: PeerLink; agentSignature: Uint8Array }> {
    const { peerMachine, m1 } = this.#take(handle, 'initiator')
    const { core, agent_signature, machine_signature } = linkM2.decode(m2)
    const { versions, agent_public_key } = linkM2Core.decode(core)
    demandLinkVersion(versions)
    const machines: LinkMachines = { machine_initiator: this.#own.machineId, machine_responder: peerMachine }
    const theirs = responderTranscript(machines, m1, core)
    if (!verifyAgent(agent_public_key, LINK_DOMAINS.responder_agent, theirs, agent_signature)) throw badSignature('agent')
    if (!verifyMachine(peerMachine, LINK_DOMAINS.responder_machine, theirs, machine_signature)) throw badSignature('machine')
    this.#checkNotOurselves(peerMachine)
    const agentSignature = await this.#deps.signatures.sign(LINK_DOMAINS.initiator_agent, initiatorTranscript(machines, m1, m2))
    return { link: this.#admit(peerMachine, agent_public_key), agentSignature }
  }

  /** Responder: writes and signs M2. */
  async accept(
    peerMachine: MachineId,
    m1: Uint8Array,
    kemCiphertext: Uint8Array,
  ): Promise<{ handle: number; core: Uint8Array; agentSignature: Uint8Array }> {
    const { agent_public_key: agentPublicKey } = linkM1.decode(m1)
    this.#checkNotOurselves(peerMachine)
    const nonce = this.#deps.nonces.make()
    const core = linkM2Core.encode({
      versions: [LINK_VERSION],
      agent_public_key: this.#own.agentPublicKey,
      kem_ciphertext: kemCiphertext,
      nonce,
    })
    const handle = this.#start({ role: 'responder', peerMachine, m1, reply: { core, nonce, agentPublicKey } })
    const machines: LinkMachines = { machine_initiator: peerMachine, machine_responder: this.#own.machineId }
    const agentSignature = await this.#deps.signatures.sign(LINK_DOMAINS.responder_agent, responderTranscript(machines, m1, core))
    return { handle, core, agentSignature }
  }

  /** Responder: verifies M3. From now on the nonce of M2 is also the nonce of the handshake's own stream. */
  finish(handle: number, m2: Uint8Array, m3: Uint8Array): PeerLink {
    const { peerMachine, m1, reply } = this.#take(handle, 'responder')
    if (reply === null || !equalBytes(linkM2.decode(m2).core, reply.core)) throw rejected('M2 differs from the one that was sent')
    const { agent_signature, machine_signature } = linkM3.decode(m3)
    const machines: LinkMachines = { machine_initiator: peerMachine, machine_responder: this.#own.machineId }
    const theirs = initiatorTranscript(machines, m1, m2)
    if (!verifyAgent(reply.agentPublicKey, LINK_DOMAINS.initiator_agent, theirs, agent_signature)) throw badSignature('agent')
    if (!verifyMachine(peerMachine, LINK_DOMAINS.initiator_machine, theirs, machine_signature)) throw badSignature('machine')
    demandLinkVersion(linkM1.decode(m1).versions)
    const link = this.#admit(peerMachine, reply.agentPublicKey)
    this.#deps.nonces.add(link.pair, reply.nonce)
    return link
  }

  dropped(handle: number): void {
    this.#handshakes.delete(handle)
  }

  /** The connection was closed. Nonces of a pair become void with its last link. */
  closed(number: number): void {
    const link = this.#links.get(number)
    if (link === undefined || number === OWN_LINK) return
    this.#links.delete(number)
    if (![...this.#links.values()].some((other) => other.pair === link.pair))
      this.#deps.nonces.forget(link.pair, link.decision === 'accept')
  }

  /** Evaluates trust again and returns the links whose decision changed. */
  rejudge(): PeerLink[] {
    return [...this.#links.values()].filter((link) => {
      const before = link.decision
      link.decision = this.#deps.trustEvaluator.decide(link.agentId, link.machineId)
      return link.decision !== before
    })
  }

  #start(handshake: Omit<Handshake, 'begunAt'>): number {
    const [oldest] = this.#handshakes
    if (oldest !== undefined && this.#handshakes.size >= MAX_HANDSHAKES) {
      // The network process drops a handshake after LINK_HANDSHAKE_MS, so this one was forgotten.
      if (this.#deps.clock.monotonic() - oldest[1].begunAt < LINK_HANDSHAKE_MS)
        throw new AppError('rate_limited', 'too many handshakes at once')
      this.#handshakes.delete(oldest[0])
    }
    const handle = ++this.#lastHandle
    this.#handshakes.set(handle, { ...handshake, begunAt: this.#deps.clock.monotonic() })
    return handle
  }

  /** Removes the handshake: each can be completed only once. */
  #take(handle: number, role: Handshake['role']): Handshake {
    const handshake = this.#handshakes.get(handle)
    if (handshake === undefined || handshake.role !== role) throw new AppError('conflict', `there is no handshake ${handle} as ${role}`)
    this.#handshakes.delete(handle)
    return handshake
  }

  #checkNotOurselves(machineId: MachineId): void {
    if (machineId === this.#own.machineId) throw rejected('the peer has the machine key of this machine')
  }

  #admit(machineId: MachineId, agentPublicKey: Uint8Array): PeerLink {
    if (this.#links.size >= MAX_LINKS) throw new AppError('rate_limited', 'too many links')
    const agentId = agentIdOf(agentPublicKey)
    if (this.all().filter((link) => link.agentId === agentId).length >= MAX_LINKS_PER_AGENT)
      throw new AppError('rate_limited', 'too many links of one agent')
    return this.#add(++this.#lastLink, machineId, agentPublicKey)
  }

  #add(number: number, machineId: MachineId, agentPublicKey: Uint8Array): PeerLink {
    const agentId = agentIdOf(agentPublicKey)
    const decision = this.#deps.trustEvaluator.decide(agentId, machineId)
    const unacceptedRequests = new TokenBucket(this.#deps, { burst: UNACCEPTED_REQUEST_BURST, perSecond: UNACCEPTED_REQUESTS_PER_SECOND })
    const pair = pairKey({ agent_id: agentId, machine_id: machineId })
    const link: PeerLink = {
      number,
      agentId,
      machineId,
      agentPublicKey,
      heardSuccessions: false,
      pair,
      unacceptedRequests,
      sentRevocations: null,
      decision,
    }
    this.#links.set(number, link)
    return link
  }
}
