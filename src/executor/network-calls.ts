import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { type ASKED_ANSWERS, type NetworkSettings, PORT_VERSION, type ToExecutor, type ToNetwork } from '../executor-api/messages.ts'
import { signCard } from '../identity/card.ts'
import { cutOf } from '../journal/refusals.ts'
import type { MachineId } from '../protocol/ids.ts'
import { CARD_TTL_MS, RECORD_TTL_MS } from '../protocol/limits/wire.ts'
import { ANNOUNCE_DOMAIN, CARD_DOMAIN } from '../protocol/wire/card.ts'
import { isSuccession } from '../protocol/wire/dm.ts'
import type { HostEnrolment } from './enrolment/host-enrolment.ts'
import type { Registrar } from './enrolment/registrar.ts'
import type { ExecutorLinks, PeerLink } from './links/executor-links.ts'
import type { Nonces } from './links/nonces.ts'
import type { PeerRevocations, PeerSuccessions } from './links/statements.ts'
import type { Operations } from './operations.ts'
import type { DetachedRequestStore } from './requested-detached.ts'
import type { ApproverAsks } from './runs/agent-approvals.ts'
import type { Requests } from './runs/requests.ts'
import type { ExecutorServices } from './services.ts'
import type { Views } from './views.ts'

export type DetachedRequestCall = Extract<ToExecutor, { type: keyof typeof ASKED_ANSWERS }>

/** Answers calls about the detached runs that this daemon requested. Throws what the store throws. */
export const answerAsked = async (runs: DetachedRequestStore, clock: Clock, call: DetachedRequestCall): Promise<unknown> => {
  switch (call.type) {
    case 'asked_add': {
      const { type: _type, id: _id, argv: all, ...asked } = call
      const { argv, argv_cut = null } = cutOf(all)
      return runs.ask({ ...asked, argv, argv_cut, asked_at_ms: clock.now() })
    }
    case 'asked_page':
      return runs.page(call.after)
    case 'asked_get':
      return runs.get(call.request_id)
    case 'asked_note': {
      const { state, code, signal, denial_reason } = call
      return runs.record(call.request_id, { state, code, signal, denial_reason })
    }
    case 'asked_forget':
      return runs.forget(call.request_id)
  }
}

export type Call = Extract<ToExecutor, { id: number }>

export interface NetworkCallsDeps extends Pick<ExecutorServices, 'clock' | 'signatures'> {
  readonly approvers: ApproverAsks
  readonly asked: DetachedRequestStore
  /** The pending enrolment of this machine, or null. */
  readonly enrolment: HostEnrolment | null
  readonly links: ExecutorLinks
  readonly nonces: Nonces
  readonly operations: Operations
  readonly registrar: Registrar
  readonly requests: Requests
  readonly revocations: PeerRevocations
  readonly successions: PeerSuccessions
  readonly views: Views
}

/** Answers the calls of one network process. Throws `AppError`s. */
export class NetworkCalls {
  readonly #deps: NetworkCallsDeps
  readonly #machineId: MachineId
  readonly #networkSettings: NetworkSettings | null

  constructor(deps: NetworkCallsDeps, init: { machineId: MachineId; networkSettings: NetworkSettings | null }) {
    this.#deps = deps
    this.#machineId = init.machineId
    this.#networkSettings = init.networkSettings
  }

  async answer(call: Call): Promise<ToNetwork> {
    const { approvers, asked, clock, links, nonces, operations, requests, views } = this.#deps
    const { id } = call
    switch (call.type) {
      case 'hello':
        return this.#welcome(call)
      case 'link_open':
        return { type: 'link_opened', id, ...links.open(call.peer_machine, call.kem_public_key) }
      case 'link_confirm':
        return links.confirm(call.handle, call.m2).then(({ link, agentSignature }) => ready(id, link, agentSignature))
      case 'link_accept': {
        const { handle, core, agentSignature } = await links.accept(call.peer_machine, call.m1, call.kem_ciphertext)
        return { type: 'link_accepted', id, handle, m2_core: core, agent_signature: agentSignature }
      }
      case 'link_finish':
        return ready(id, links.finish(call.handle, call.m2, call.m3), new Uint8Array(0))
      case 'mint_nonces':
        return { type: 'nonces', id, nonces: nonces.mint(links.get(call.link).pair, call.count) }
      case 'sign_request':
        return { type: 'signed', id, ...(await requests.sign(call, links.get(call.link))) }
      case 'prove_fanout':
        return result(id, await requests.proveFanout(call))
      case 'fanout_over':
        return result(id, requests.fanoutOver(call.fanout))
      case 'sign_detach_request':
        return { type: 'signed', id, ...(await requests.signDetach(call, links.get(call.link))) }
      case 'sign_detached_ask':
        return { type: 'signed', id, ...(await requests.signDetachedAsk(call, links.get(call.link))) }
      case 'sign_terminal_request':
        return { type: 'signed', id, ...(await requests.signTerminal(call, links.get(call.link))) }
      case 'sign_terminal_input':
        return { type: 'signed', id, ...(await requests.terminals.sign(call)) }
      case 'sign_rules_request':
        return { type: 'signed', id, ...(await requests.signRules(call, links.get(call.link))) }
      case 'sign_approval_request':
        return { type: 'signed', id, ...(await approvers.sign(call, links.get(call.link))) }
      case 'sign_card':
        return this.#signCard(call)
      case 'operate':
        return result(id, await operations.run(call.operation, call.body, call.proof))
      case 'query':
        return result(id, await views.query(call.what))
      case 'evaluate_trust':
        return result(id, views.evaluate(call.agent, call.machine))
      case 'settings':
        return { type: 'settings', id, ...this.#settings() }
      case 'enrol_sign':
      case 'enrol_request':
        return { type: 'enrol_frame', id, frame: await this.#enrol(call) }
      case 'asked_add':
      case 'asked_page':
      case 'asked_get':
      case 'asked_note':
      case 'asked_forget':
        return result(id, await answerAsked(asked, clock, call))
      case 'revocations':
        return result(id, { accepted: await this.#takeStatements(links.get(call.link), call.items) })
    }
  }

  #welcome(call: Extract<Call, { type: 'hello' }>): ToNetwork {
    if (call.version !== PORT_VERSION)
      throw new AppError(
        'conflict',
        `the network process uses version ${call.version} of the executor socket, and the executor version ${PORT_VERSION}: install the same release for both, and restart both`,
      )
    const { agentId: agent_id, publicKey: agent_public_key } = this.#deps.signatures
    return { type: 'welcome', id: call.id, version: PORT_VERSION, agent_id, machine_id: this.#machineId, agent_public_key }
  }

  /** Revocations come first, because a revoked key cannot name a successor. */
  async #takeStatements(link: PeerLink, items: readonly Uint8Array[]): Promise<number> {
    const { revocations, successions } = this.#deps
    const taking = revocations.take(
      link,
      items.filter((item) => !isSuccession(item)),
    )
    await successions.take(link, items.filter(isSuccession))
    return taking
  }

  /** The request of this machine for its enrolment, or the answer to that of another. */
  async #enrol(call: Extract<Call, { type: 'enrol_sign' | 'enrol_request' }>): Promise<Uint8Array> {
    const { enrolment, links, nonces, registrar } = this.#deps
    const link = links.get(call.link)
    if (call.type === 'enrol_request') return registrar.answer({ link, nonces, streamNonce: call.stream_nonce, frame: call.frame })
    if (enrolment === null) throw new AppError('not_found', 'no enrolment is pending')
    return enrolment.sign(call, link)
  }

  #settings(): NetworkSettings {
    if (this.#networkSettings === null) throw new AppError('not_found', 'this network process received no settings')
    return this.#networkSettings
  }

  async #signCard(call: Extract<Call, { type: 'sign_card' }>): Promise<ToNetwork> {
    const { clock, signatures, views } = this.#deps
    if (views.selfRevoked) throw revokedSelf()
    const isCard = call.kind === 'card'
    const now = clock.now()
    const body = {
      version: 1 as const,
      agent_public_key: signatures.publicKey,
      machine_id: this.#machineId,
      name: call.name,
      addresses: call.addresses,
      issued_at_ms: now,
      expires_at_ms: now + Math.min(call.ttl_ms, isCard ? CARD_TTL_MS : RECORD_TTL_MS),
    }
    const signed = await signCard(signatures.limited, body, isCard ? CARD_DOMAIN : ANNOUNCE_DOMAIN)
    return { type: 'signed', id: call.id, body: signed.body, signature: signed.signature }
  }
}

/** Signing is refused, because no peer accepts a card of a revoked agent. */
const revokedSelf = (): AppError =>
  new AppError(
    'conflict',
    'this agent has been revoked for ever, everywhere or on this machine; start x0xd on a new data directory for a new identity',
  )

const ready = (id: number, link: PeerLink, agentSignature: Uint8Array): ToNetwork => ({
  type: 'link_ready',
  id,
  link: link.number,
  agent_id: link.agentId,
  decision: link.decision,
  agent_signature: agentSignature,
})

const result = (id: number, value: unknown): ToNetwork => ({ type: 'result', id, json: JSON.stringify(value) })
