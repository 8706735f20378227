import { rm } from 'node:fs/promises'
import type { Timer } from '../../base/clock.ts'
import { AppError, asAppError, errorText } from '../../base/errors.ts'
import { Condition } from '../../base/wait-queue.ts'
import { portError } from '../../executor-api/calls.ts'
import type { EnrolAsk, ToExecutor } from '../../executor-api/messages.ts'
import { equalBytes, randomBytes, sha256 } from '../../identity/hash.ts'
import { verifyAgent } from '../../identity/signing.ts'
import type { LoadedAcl } from '../../policy/mesh/load-acl.ts'
import { type EntryOwner, ownedEntriesProblem } from '../../policy/mesh/enrolled-entries.ts'
import { fromHex, toHex } from '../../protocol/ids.ts'
import {
  ENROL_ATTEMPT_BYTES,
  ENROL_ATTEMPT_MS,
  ENROL_RETRY_MS,
  MAX_ENROL_ADDRESSES,
  MAX_ENROL_RETRY_MS,
  MIN_ENROL_ATTEMPTS,
} from '../../protocol/limits/enrolment.ts'
import {
  ENROL_GRANT_DOMAIN,
  type EnrolFrame,
  type EnrolGrant,
  type EnrolRequest,
  enrolFrame,
  enrolGrant,
  enrolRequest,
} from '../../protocol/wire/enrolment.ts'
import { Backoff } from '../../sdk/backoff.ts'
import { nameProblem } from '../../trust/contact.ts'
import { type EnrolToken, decodeEnrolToken, enrolKeyId, enrolMac, isEnrolMac } from '../../trust/enrolment-token.ts'
import { type PendingEnrolment, saveEnrolment } from '../../trust/pending-enrolment.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { OwnIds } from '../links/trust-evaluator.ts'
import type { ExecutorServices } from '../services.ts'

/** Adds entries to the ACL file of this daemon. */
export interface EnrolledAcl {
  /**
   * Checks the ACL with these entries as the daemon would at its start, writes it, and loads it. A file that has the entries
   * stays as it is. Throws `bad_acl`, and `conflict` for a file that was edited.
   */
  add(entries: string): Promise<LoadedAcl>
}

export interface HostEnrolmentInit {
  readonly pending: PendingEnrolment
  /** Path of `enrolment.json`. */
  readonly path: string
  /** Name that this machine prefers. */
  readonly displayName: string
  readonly acl: EnrolledAcl
  /** Reports progress to the person who started the daemon. One line of text, possibly foreign. */
  say(line: string): void
}

/** A network process that carries requests for enrolment. */
export interface EnrolCarrier {
  enrolAsk(ask: EnrolAsk): void
}

export interface EnrolServices extends Pick<ExecutorServices, 'authority'> {
  /** Puts an ACL into force that allows more to the operator only. Returns false for any other ACL. */
  adopt(loaded: LoadedAcl, operator: EntryOwner): Promise<boolean>
}

type Step = EnrolRequest['step']

/** A request that waits for its answer. `sent` is set when the network process has a stream to the operator. */
interface OpenAsk {
  readonly number: number
  readonly step: Step
  readonly answer: PromiseWithResolvers<EnrolFrame>
  sent: { readonly link: PeerLink; readonly body: Uint8Array; readonly request: EnrolRequest } | null
}

const unfit = (what: string): AppError => new AppError('malformed', `the operator's answer ${what}`)
const refusal = (message: string): AppError => new AppError('enrolment_refused', message)

/** The host's side of an enrolment. It asks the operator of the token, and takes only that operator's signed answer. */
export class HostEnrolment {
  readonly #deps: Pick<ExecutorServices, 'clock' | 'contacts' | 'log'>
  readonly #own: OwnIds
  readonly #init: HostEnrolmentInit
  readonly #token: EnrolToken
  readonly #carriers = new Set<EnrolCarrier>()
  readonly #pauses = new Condition()
  readonly #backoff: Backoff
  #attempt: Uint8Array
  #state: PendingEnrolment
  #open: OpenAsk | null = null
  #asked = 0

  /** Throws `bad_enrolment` for an invalid token. */
  constructor(deps: Pick<ExecutorServices, 'clock' | 'contacts' | 'log'>, init: HostEnrolmentInit, own: OwnIds) {
    this.#deps = deps
    this.#init = init
    this.#own = own
    this.#state = init.pending
    this.#token = decodeEnrolToken(init.pending.token ?? '')
    this.#attempt = init.pending.attempt === null ? randomBytes(ENROL_ATTEMPT_BYTES) : fromHex(init.pending.attempt)
    this.#backoff = new Backoff(
      { random: Math.random },
      { attempts: Number.MAX_SAFE_INTEGER, firstDelayMs: ENROL_RETRY_MS, maxDelayMs: MAX_ENROL_RETRY_MS },
    )
  }

  /** Also sends the open request through this network process. Returns a function that removes it. */
  attach(carrier: EnrolCarrier): () => void {
    this.#carriers.add(carrier)
    if (this.#open !== null) carrier.enrolAsk(this.#askOf(this.#open.number))
    return () => void this.#carriers.delete(carrier)
  }

  /**
   * Asks until the operator has enrolled this machine, and puts the answer into force. Throws `enrolment_refused` if the operator refuses or
   * was not reached in time, or if its entries cannot be used here, and the errors of the files. Returns false if the signal is aborted before.
   */
  async run(services: EnrolServices, signal: AbortSignal): Promise<boolean> {
    try {
      if (this.#state.state === 'pending') await this.#ask(services, signal)
      if (this.#state.state === 'written') await this.#report(signal)
      return this.#state.state === 'done'
    } catch (error) {
      // A refused token must not prevent every later start.
      if (asAppError(error).code === 'enrolment_refused') await rm(this.#init.path, { force: true })
      throw error
    }
  }

  /** Makes the request for a stream to the operator. Throws `peer_rejected` for a link to any other agent or machine. */
  sign(call: Extract<ToExecutor, { type: 'enrol_sign' }>, link: PeerLink): Uint8Array {
    const open = this.#open
    if (open?.number !== call.ask) throw new AppError('not_found', 'the enrolment was cancelled')
    const { agentId, machineId, secret } = this.#token
    if (link.agentId !== agentId || link.machineId !== machineId)
      throw new AppError('peer_rejected', 'another agent answered at the address of the operator')
    const { name } = this.#init.pending
    const request: EnrolRequest = {
      version: 1,
      request_id: call.request_id,
      from_agent: this.#own.agentId,
      from_machine: this.#own.machineId,
      to_agent: agentId,
      to_machine: machineId,
      stream_nonce: call.stream_nonce,
      key_id: fromHex(enrolKeyId(secret)),
      step: open.step,
      attempt: this.#attempt,
      name: name ?? this.#init.displayName,
      name_required: name !== null,
      addresses: call.addresses,
    }
    const body = enrolRequest.encode(request)
    open.sent = { link, body, request }
    return enrolFrame.encode({ type: 'request', body, mac: enrolMac(secret, 'request', body) })
  }

  /** Takes the answer that the network process delivers. One to an earlier request is ignored. */
  answered(ask: number, bytes: Uint8Array): void {
    const open = this.#open
    if (open?.number !== ask) return
    try {
      open.answer.resolve(enrolFrame.decode(bytes))
    } catch (error) {
      open.answer.reject(error)
    }
  }

  failed({ ask, ...failure }: Extract<ToExecutor, { type: 'enrol_failed' }>): void {
    if (this.#open?.number === ask) this.#open.answer.reject(portError(failure))
  }

  #askOf(ask: number): EnrolAsk {
    const { agentId: agent_id, machineId: machine_id, addresses } = this.#token
    return { ask, agent_id, machine_id, addresses: addresses.slice(0, MAX_ENROL_ADDRESSES) }
  }

  async #ask(services: EnrolServices, signal: AbortSignal): Promise<void> {
    const grant = await this.#until('ask', signal, (frame, sent) => this.#readGrant(frame, sent))
    if (grant === null) return
    await this.#apply(grant, services)
    await this.#save({ ...this.#state, state: 'written', attempt: toHex(this.#attempt) })
    this.#init.say(`enrolled as ${grant.name} by ${grant.operator_name} (agent ${this.#token.agentId})`)
  }

  /** Tells the operator that the files are written. Without a confirmation, this machine is enrolled nevertheless. */
  async #report(signal: AbortSignal): Promise<void> {
    try {
      const confirmed = await this.#until('done', signal, (frame, sent) => this.#readConfirmation(frame, sent))
      if (confirmed === null) return
    } catch (error) {
      if (asAppError(error).code !== 'enrolment_refused') throw error
      this.#init.say(`this machine is enrolled, but the operator did not confirm it: ${errorText(error)}`)
    }
    await this.#save({ ...this.#state, state: 'done', token: null })
  }

  async #save(state: PendingEnrolment): Promise<void> {
    await saveEnrolment(this.#init.path, state)
    this.#state = state
  }

  /** Repeats the step until it has a valid answer, or null when the signal is aborted. Throws `enrolment_refused`. */
  async #until<T>(step: Step, signal: AbortSignal, read: (frame: EnrolFrame, sent: NonNullable<OpenAsk['sent']>) => T): Promise<T | null> {
    const { clock } = this.#deps
    this.#backoff.reset()
    this.#backoff.next()
    for (let attempts = 1; !signal.aborted; attempts++) {
      let problem: string
      try {
        const { frame, sent } = await this.#once(step, signal)
        if (frame.type !== 'refused') return read(frame, sent)
        if (frame.reason !== 'busy' && frame.reason !== 'failed') throw refusal(frame.message)
        problem = frame.message
      } catch (error) {
        if (asAppError(error).code === 'enrolment_refused') throw error
        problem = errorText(error)
      }
      if (signal.aborted) break
      if (attempts >= MIN_ENROL_ATTEMPTS && clock.now() >= this.#token.expiresAtMs)
        throw refusal(
          `the operator was not reached before the token expired at ${new Date(this.#token.expiresAtMs).toISOString()}: ${problem}`,
        )
      const pause = this.#backoff.next() ?? MAX_ENROL_RETRY_MS
      this.#init.say(`waiting for the operator: ${problem}; next try in ${Math.ceil(pause / 1000)} s`)
      await this.#pauses.waitAtMost({ clock, timeoutMs: pause, signal })
    }
    return null
  }

  /** Sends one request and waits for its answer. */
  async #once(step: Step, signal: AbortSignal): Promise<{ frame: EnrolFrame; sent: NonNullable<OpenAsk['sent']> }> {
    const open: OpenAsk = { number: ++this.#asked, step, answer: Promise.withResolvers(), sent: null }
    const giveUp = (): void => open.answer.reject(new AppError('timeout', 'the operator gave no answer'))
    const timer: Timer = this.#deps.clock.setTimeout(giveUp, ENROL_ATTEMPT_MS)
    signal.addEventListener('abort', giveUp)
    this.#open = open
    try {
      for (const carrier of this.#carriers) carrier.enrolAsk(this.#askOf(open.number))
      const frame = await open.answer.promise
      if (open.sent === null) throw unfit('came before the request')
      return { frame, sent: open.sent }
    } finally {
      this.#open = null
      timer.cancel()
      signal.removeEventListener('abort', giveUp)
    }
  }

  /** Throws `malformed` unless the operator of the token signed this grant for this request, and knows the secret. */
  #readGrant(frame: EnrolFrame, { link, body: asked, request }: NonNullable<OpenAsk['sent']>): EnrolGrant {
    if (frame.type !== 'granted') throw unfit('is not a grant')
    const { body, signature, mac } = frame
    if (!isEnrolMac(this.#token.secret, 'grant', body, mac)) throw unfit('does not prove the secret of the token')
    if (!verifyAgent(link.agentPublicKey, ENROL_GRANT_DOMAIN, body, signature)) throw unfit('is not signed by the operator')
    const grant = enrolGrant.decode(body)
    const isOurs =
      grant.request_id === request.request_id &&
      grant.from_agent === request.to_agent &&
      grant.from_machine === request.to_machine &&
      grant.to_agent === request.from_agent &&
      grant.to_machine === request.from_machine &&
      equalBytes(grant.request_sha256, sha256(asked)) &&
      equalBytes(grant.key_id, request.key_id) &&
      equalBytes(grant.attempt, request.attempt)
    if (!isOurs) throw unfit('belongs to another request')
    return grant
  }

  #readConfirmation(frame: EnrolFrame, { body }: NonNullable<OpenAsk['sent']>): true {
    if (frame.type !== 'confirmed') throw unfit('is not a confirmation')
    const digest = sha256(body)
    if (!equalBytes(frame.request_sha256, digest)) throw unfit('belongs to another request')
    if (!isEnrolMac(this.#token.secret, 'confirmed', digest, frame.mac)) throw unfit('does not prove the secret of the token')
    return true
  }

  /** Shows the grant, logs it, and puts contact and entries into force. */
  async #apply({ name, operator_name, acl: entries }: EnrolGrant, { authority, adopt }: EnrolServices): Promise<void> {
    const { agentId: agent_id, machineId: machine_id, addresses, hasAcl } = this.#token
    const owner = { agent_id, machine_id }
    if (entries !== '') {
      if (!hasAcl) throw refusal('the operator sent ACL entries, and the token announces none')
      const problem = ownedEntriesProblem(entries, owner)
      if (problem !== null) throw refusal(`the ACL entries of the operator are not valid: ${problem}`)
      this.#init.say(`the operator gives itself these ACL entries on this machine:`)
      for (const line of entries.trimEnd().split('\n')) this.#init.say(`  ${line}`)
    }
    const contact = this.#operatorName(operator_name)
    try {
      this.#deps.contacts.assertMeetable(contact, agent_id)
    } catch (error) {
      throw refusal(`the operator cannot become a contact of this machine: ${errorText(error)}`)
    }
    const detail = `as ${name}${entries === '' ? '' : ', with ACL entries'}`
    await authority.announce({ operation: 'enrolled', agent: agent_id, machine: machine_id, level: 'trusted', detail }, { widens: true })
    // Without the contact, the entries allow nothing yet.
    const loaded = entries === '' ? null : await this.#write(entries, authority)
    await this.#deps.contacts.meet({ name: contact, agent_id, machine_id, addresses })
    if (loaded !== null && !(await adopt(loaded, owner)))
      this.#init.say('the ACL was changed in more than these entries: restart x0xd to put it into force')
  }

  /** Throws `enrolment_refused` for entries that cannot be used on this machine, because the next start would find the same. */
  async #write(entries: string, authority: EnrolServices['authority']): Promise<LoadedAcl> {
    try {
      return await this.#init.acl.add(entries)
    } catch (error) {
      if (asAppError(error).code !== 'bad_acl') throw error
      const refused = refusal(`the ACL entries of the token cannot be used on this machine: ${errorText(error)}`)
      const { agentId: agent, machineId: machine } = this.#token
      await authority.refused('enrolled', refused, { agent, machine })
      throw refused
    }
  }

  /** The operator's name if it is valid and free here. */
  #operatorName(wish: string): string {
    const { contacts } = this.#deps
    const known = contacts.byAgent(this.#token.agentId)
    if (known !== null) return known.name
    const taken = new Set(contacts.list().map(({ name }) => name))
    const names = [wish, 'operator', `agent-${this.#token.agentId.slice(0, 16)}`]
    return names.find((name) => nameProblem(name) === null && !taken.has(name)) ?? wish
  }
}
