import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { plainText } from '../../base/visible-text.ts'
import { addressProblem, dialProblem } from '../../identity/address.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import { peerIdOf } from '../../identity/machine-key.ts'
import { type EnrolArrival, type EnrolAllowed, type EnrolRefused, type EnrolVerdict, judgeEnrolment } from '../../policy/enrolment.ts'
import { labelsText } from '../../protocol/hosts/labels.ts'
import { fromHex } from '../../protocol/ids.ts'
import { ENROL_GUESSES_PER_SECOND, ENROL_GUESS_BURST, MAX_ENROL_MESSAGE } from '../../protocol/limits/enrolment.ts'
import {
  ENROL_GRANT_DOMAIN,
  type EnrolFrame,
  type EnrolRequest,
  enrolFrame,
  enrolGrant,
  enrolRequest,
} from '../../protocol/wire/enrolment.ts'
import type { EnrolmentKeys } from '../../trust/enrolment-keys.ts'
import { enrolMac } from '../../trust/enrolment-token.ts'
import { OWN_LINK, type PeerLink } from '../links/executor-links.ts'
import type { Nonces } from '../links/nonces.ts'
import type { OwnIds } from '../links/trust-evaluator.ts'
import type { ExecutorServices } from '../services.ts'

export interface RegistrarDeps extends Pick<ExecutorServices, 'authority' | 'clock' | 'contacts' | 'log' | 'revocations' | 'signatures'> {
  readonly keys: EnrolmentKeys
}

/** A request for enrolment on a stream of a link. */
export interface EnrolStream {
  readonly link: PeerLink
  readonly nonces: Nonces
  /** Nonce that this executor issued for the stream. */
  readonly streamNonce: Uint8Array
  readonly frame: Uint8Array
}

const GUESSES: readonly string[] = ['unknown_key', 'wrong_proof']

/** Decides about hosts that want to become contacts of this operator. The network process never has the secret of a key. */
export class Registrar {
  readonly #deps: RegistrarDeps
  readonly #own: OwnIds
  /** Limit on answers to peers without a valid token, for all of them together. A bearer of a token needs none of it. */
  readonly #guesses: TokenBucket

  constructor(deps: RegistrarDeps, own: OwnIds) {
    this.#deps = deps
    this.#own = own
    this.#guesses = new TokenBucket(deps, { burst: ENROL_GUESS_BURST, perSecond: ENROL_GUESSES_PER_SECOND })
  }

  /** Returns the encoded answer. Throws `malformed` and `rate_limited`, which get no answer. */
  async answer(stream: EnrolStream): Promise<Uint8Array> {
    const { link } = stream
    if (link.number === OWN_LINK) throw new AppError('malformed', 'an enrolment of this daemon by itself')
    if (!link.unacceptedRequests.take()) throw new AppError('rate_limited', 'too many requests for enrolment on one link')
    const arrival = this.#read(stream)
    const verdict = await this.#decide(arrival)
    if (verdict.kind === 'refused') return this.#refuse(arrival, verdict)
    try {
      return enrolFrame.encode(arrival.request.step === 'ask' ? await this.#grant(arrival, verdict) : this.#confirm(arrival, verdict))
    } catch (error) {
      this.#deps.log.error({ agent: arrival.agentId, error: errorText(error) }, 'an enrolment failed')
      const why = isAppError(error) ? errorText(error) : 'internal error'
      return this.#refuse(arrival, {
        kind: 'refused',
        reason: 'failed',
        message: `the operator's daemon could not enrol this machine: ${why}`,
      })
    }
  }

  /** Throws `malformed` unless the request names the parties of the link and quotes the unused nonce of its stream. */
  #read({ link, nonces, streamNonce, frame: bytes }: EnrolStream): EnrolArrival & { readonly request: EnrolRequest } {
    const frame = enrolFrame.decode(bytes)
    if (frame.type !== 'request') throw new AppError('malformed', `a stream of an enrolment begins with ${frame.type}`)
    const request = enrolRequest.decode(frame.body)
    const isFromLink = request.from_agent === link.agentId && request.from_machine === link.machineId
    const isForUs = request.to_agent === this.#own.agentId && request.to_machine === this.#own.machineId
    if (!isFromLink || !isForUs) throw new AppError('malformed', 'a request for enrolment between other parties')
    if (!equalBytes(request.stream_nonce, streamNonce) || !nonces.consume(link.pair, streamNonce))
      throw new AppError('malformed', 'a request for enrolment of another stream')
    const { agentId, machineId } = link
    return { agentId, machineId, request, body: frame.body, mac: frame.mac }
  }

  async #decide(arrival: EnrolArrival): Promise<EnrolVerdict> {
    const { clock, contacts, keys, revocations } = this.#deps
    const judge = (all = keys.list()): EnrolVerdict => judgeEnrolment(arrival, { keys: all, contacts: contacts.list(), nowMs: clock.now() })
    const first = judge()
    if (first.kind === 'refused' && GUESSES.includes(first.reason)) return first
    if (revocations.isRevoked(arrival.agentId, arrival.machineId))
      return {
        kind: 'refused',
        reason: 'agent_revoked',
        message: 'this agent was revoked: delete the data directory, and initialise the machine again',
      }
    try {
      return await keys.change((all) => {
        const verdict = judge(all)
        return { keys: verdict.kind === 'allowed' ? verdict.keys : all, result: verdict }
      })
    } catch (error) {
      this.#deps.log.error({ error: errorText(error) }, 'the use of an enrolment key could not be saved')
      return { kind: 'refused', reason: 'failed', message: "the operator's daemon could not save the use of the enrolment key" }
    }
  }

  async #refuse({ agentId: agent, machineId: machine }: EnrolArrival, { reason, message }: EnrolRefused): Promise<Uint8Array> {
    if (GUESSES.includes(reason) && !this.#guesses.take()) throw new AppError('rate_limited', 'too many wrong enrolment tokens')
    await this.#deps.authority.refused('enrol', new AppError('enrolment_refused', `${reason}: ${message}`), { agent, machine })
    return enrolFrame.encode({ type: 'refused', reason, message: plainText(message).slice(0, MAX_ENROL_MESSAGE / 4) })
  }

  /** The use is on disk already. The log line follows, then the contact, then the answer. */
  async #grant(arrival: EnrolArrival & { readonly request: EnrolRequest }, { key, host }: EnrolAllowed): Promise<EnrolFrame> {
    const { contacts, signatures } = this.#deps
    // The contact of a host that asks again is the operator's to change.
    if (!host.confirmed && contacts.byAgent(arrival.agentId) === null) await this.#admit(arrival, { key, host })
    const { request_id, key_id, attempt, from_agent, from_machine } = arrival.request
    const body = enrolGrant.encode({
      version: 1,
      request_id,
      from_agent: this.#own.agentId,
      from_machine: this.#own.machineId,
      to_agent: from_agent,
      to_machine: from_machine,
      request_sha256: sha256(arrival.body),
      key_id,
      attempt,
      name: contacts.byAgent(from_agent)?.name ?? host.name,
      operator_name: key.operator_name,
      acl: key.acl,
    })
    const signature = await signatures.sign(ENROL_GRANT_DOMAIN, body)
    return { type: 'granted', body, signature, mac: enrolMac(fromHex(key.secret), 'grant', body) }
  }

  async #admit(
    { agentId, machineId, request }: EnrolArrival & { readonly request: EnrolRequest },
    allowed: Pick<EnrolAllowed, 'key' | 'host'>,
  ): Promise<void> {
    const { authority, contacts } = this.#deps
    const { key, host } = allowed
    const peerId = peerIdOf(machineId)
    const addresses = request.addresses.filter((one) => addressProblem(one, peerId) === null && dialProblem(one) === null)
    const labels = Object.keys(key.labels).length === 0 ? '' : `, ${labelsText(key.labels)}`
    const detail = `key ${key.id}, use ${key.hosts.length} of ${key.uses}: ${host.name}${labels}`
    await authority.announce({ operation: 'enrol', agent: agentId, machine: machineId, level: 'trusted', detail }, { widens: true })
    await contacts.meet({ name: host.name, agent_id: agentId, machine_id: machineId, addresses, labels: key.labels })
  }

  #confirm({ body }: EnrolArrival, { key }: EnrolAllowed): EnrolFrame {
    const request_sha256 = sha256(body)
    return { type: 'confirmed', request_sha256, mac: enrolMac(fromHex(key.secret), 'confirmed', request_sha256) }
  }
}
