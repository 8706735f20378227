import { AppError } from '../base/errors.ts'
import type { Operation } from '../executor-api/messages.ts'
import { addressProblem, dialProblem } from '../identity/address.ts'
import { decodeCardLink, dialableCard, verifyCard } from '../identity/card.ts'
import { peerIdOf } from '../identity/machine-key.ts'
import { signAcl } from '../policy/mesh/acl-bundle.ts'
import type { ContactRecord } from '../protocol/api-answers.ts'
import { labelChangesProblem, labelsText } from '../protocol/hosts/labels.ts'
import { type AgentId, type MachineId, fromHex, isHexId, isRequestId } from '../protocol/ids.ts'
import { type Sent, flag, map, matching, optional, orNull, positive, text, texts } from '../protocol/json-table.ts'
import { MAX_CARD_ADDRESSES } from '../protocol/limits/wire.ts'
import { TRUST_LEVELS, type TrustLevel } from '../protocol/reasons.ts'
import { CARD_DOMAIN } from '../protocol/wire/card.ts'
import type { Contact } from '../trust/contact.ts'
import { type Revocations, signRevocation } from '../trust/revocations.ts'
import type { EnrolOperations } from './enrolment/enrol-operations.ts'
import type { IncomingRuns } from './incoming-runs.ts'
import { parseBody } from './json-body.ts'
import type { ClientSecrets } from './operator-auth.ts'
import type { ExecutorServices } from './services.ts'

export interface OperationsDeps extends Pick<ExecutorServices, 'authority' | 'clock' | 'contacts' | 'gate' | 'revocations' | 'signatures'> {
  readonly enrolment: EnrolOperations
  readonly incoming: IncomingRuns
  readonly secrets: ClientSecrets
}

export interface OperationsInit {
  /** Called in the same turn in which our own revocation takes effect. */
  onRevoked(): void
}

const CARD_IMPORT = { card: text, name: optional(text), rename: optional(flag), trust_level: optional(text) }
const CONTACT_MEET = { name: text, agent_id: text, machine_id: text, addresses: texts }
const CONTACT_PIN = { contact: text, machine_id: text }
const CONTACT_LABEL = { contact: text, labels: map(text, orNull(text)) }
const ACL_SIGN = { acl_version: positive, acl_sha256: matching(/^[0-9a-f]{64}$/, '64 lower-case hex digits') }
const INCOMING_CANCEL = { request_id: text, agent_id: optional(text) }
const RUN_CANCEL = { request_id: optional(text), fanout_id: optional(text) }

/** What the network process may know of a contact. */
export const contactRecord = (
  { name, agent_id, trust, machines, addresses, formerly, labels }: Contact,
  revocations: Revocations,
): ContactRecord => {
  const { revoked, machines: revoked_machines } = revocations.of(agent_id)
  const lists = { machines: [...machines], addresses: [...addresses], formerly: [...formerly] }
  return { name, agent_id, trust, ...lists, labels, revoked, revoked_machines }
}

/** Operations that need an operator proof. Unknown keys in a body are errors. */
export class Operations {
  readonly #deps: OperationsDeps
  readonly #onRevoked: () => void

  constructor(deps: OperationsDeps, init: OperationsInit) {
    this.#deps = deps
    this.#onRevoked = init.onRevoked
  }

  /** Returns the JSON answer. Throws `operator_proof_required`, `bad_request` and the operation's own errors. */
  async run(operation: Operation, body: Uint8Array, proof: string): Promise<unknown> {
    const { authority, contacts, gate, incoming } = this.#deps
    try {
      gate.check(operation, body, proof)
    } catch (error) {
      await authority.refused(operation, error)
      throw error
    }
    switch (operation) {
      case 'card_import':
        return this.#import(parseBody(body, CARD_IMPORT))
      case 'contact_meet':
        return this.#meet(parseBody(body, CONTACT_MEET))
      case 'contact_trust': {
        const { contact, level } = parseBody(body, { contact: text, level: text })
        const { agent_id: agent } = contacts.find(contact)
        if (levelOf(level) !== 'blocked') this.#refuseRevoked(agent)
        await authority.announce({ operation, agent, machine: null, level: levelOf(level) }, { widens: level !== 'blocked' })
        return this.#shown(await contacts.setTrust(contact, levelOf(level)))
      }
      case 'contact_pin': {
        const { contact, machine_id } = parseBody(body, CONTACT_PIN)
        const { agent_id: agent } = contacts.find(contact)
        this.#refuseRevoked(agent, machine_id)
        if (isHexId(machine_id)) await authority.announce({ operation, agent, machine: machine_id, level: null }, { widens: true })
        return this.#shown(await contacts.pin(contact, machine_id))
      }
      case 'contact_unpin': {
        const { contact, machine_id } = parseBody(body, CONTACT_PIN)
        const { agent_id: agent } = contacts.find(contact)
        if (isHexId(machine_id)) await authority.announce({ operation, agent, machine: machine_id, level: null }, { widens: false })
        return this.#shown(await contacts.unpin(contact, machine_id))
      }
      case 'contact_label':
        return this.#label(parseBody(body, CONTACT_LABEL))
      case 'contact_remove': {
        const { contact } = parseBody(body, { contact: text })
        const { agent_id: agent } = contacts.find(contact)
        await authority.announce({ operation, agent, machine: null, level: null }, { widens: false })
        return this.#shown(await contacts.remove(contact))
      }
      case 'identity_revoke':
        return this.#revoke(parseBody(body, { machine_id: orNull(text) }).machine_id)
      case 'exec_incoming':
        parseBody(body, {})
        return { ok: true, sessions: incoming.list() }
      case 'exec_incoming_cancel':
        return this.#endRun(parseBody(body, INCOMING_CANCEL))
      case 'exec_cancel':
        return this.#logCancel(parseBody(body, RUN_CANCEL))
      case 'token_rotate':
        return this.#rotate(parseBody(body, { token: text }).token)
      case 'acl_sign':
        return this.#signAcl(parseBody(body, ACL_SIGN))
      case 'enrol_create':
      case 'enrol_list':
      case 'enrol_revoke':
        return this.#deps.enrolment.run(operation, body)
    }
  }

  async #import({ card: link, name, trust_level: level, rename = false }: Sent<typeof CARD_IMPORT>): Promise<unknown> {
    const { authority, clock, contacts, signatures } = this.#deps
    const card = dialableCard(verifyCard(decodeCardLink(link), CARD_DOMAIN, clock.now()))
    if (card.agentId === signatures.agentId) throw new AppError('bad_request', 'this is the card of this agent')
    const wish = { rename, ...(name !== undefined && { name }), ...(level !== undefined && { trust: levelOf(level) }) }
    this.#refuseRevoked(card.agentId, card.machineId)
    const { agentId: agent, machineId: machine } = card
    await authority.announce({ operation: 'card_import', agent, machine, level: wish.trust ?? null }, { widens: true })
    return this.#shown(await contacts.importCard(card, wish))
  }

  /** Adds a contact after two operators compared codes. */
  async #meet({ name, agent_id: agent, machine_id: machine, addresses }: Sent<typeof CONTACT_MEET>): Promise<unknown> {
    const { authority, contacts, signatures } = this.#deps
    for (const id of [agent, machine]) if (!isHexId(id)) throw new AppError('bad_request', 'an id has 64 lower-case hex digits')
    for (const address of addresses) {
      const problem = addressProblem(address, peerIdOf(machine)) ?? dialProblem(address)
      if (problem !== null) throw new AppError('bad_request', `the address ${JSON.stringify(address)} ${problem}`)
    }
    if (addresses.length > MAX_CARD_ADDRESSES) throw new AppError('bad_request', `addresses: at most ${MAX_CARD_ADDRESSES}`)
    if (agent === signatures.agentId) throw new AppError('bad_request', 'this is the line of this agent: use the line of the other machine')
    this.#refuseRevoked(agent, machine)
    contacts.assertMeetable(name, agent)
    await authority.announce({ operation: 'contact_meet', agent, machine, level: 'trusted' }, { widens: true })
    return this.#shown(await contacts.meet({ name, agent_id: agent, machine_id: machine, addresses }))
  }

  /** Labels give no trust but select the hosts of a command, so they change only after the log line. */
  async #label({ contact, labels: changes }: Sent<typeof CONTACT_LABEL>): Promise<unknown> {
    const { authority, contacts } = this.#deps
    const { agent_id: agent, name } = contacts.find(contact)
    const problem = labelChangesProblem(changes)
    if (problem !== null) throw new AppError('bad_request', problem)
    const detail = `${name}: ${labelsText(changes)}`
    await authority.announce({ operation: 'contact_label', agent, machine: null, level: null, detail }, { widens: true })
    return this.#shown(await contacts.label(agent, changes))
  }

  /** Ends the run first, then logs it. */
  async #endRun({ request_id, agent_id }: Sent<typeof INCOMING_CANCEL>): Promise<unknown> {
    const { authority, incoming } = this.#deps
    if (!isRequestId(request_id)) throw new AppError('bad_request', 'request_id: not a UUID')
    const run = incoming.end(request_id, agent_id ?? null)
    const { agent_id: agent, machine_id: machine } = run
    await authority.announce({ operation: 'exec_incoming_cancel', agent, machine, level: null, request_id }, { widens: false })
    return { ok: true, session: run }
  }

  /** Logs that the operator ends a run or fan-out of this agent. The network process, which has it, ends it after the answer. */
  async #logCancel({ request_id, fanout_id }: Sent<typeof RUN_CANCEL>): Promise<unknown> {
    for (const id of [request_id, fanout_id])
      if (id !== undefined && !isRequestId(id)) throw new AppError('bad_request', 'request_id, fanout_id: not a UUID')
    const change = { operation: 'exec_cancel', agent: null, machine: null, level: null }
    await this.#deps.authority.announce(
      { ...change, ...(request_id !== undefined && { request_id }), ...(fanout_id !== undefined && { detail: `fan-out ${fanout_id}` }) },
      { widens: false },
    )
    return { ok: true }
  }

  /** Renews a token even if the log cannot be written, because that takes access away. */
  async #rotate(token: string): Promise<unknown> {
    const { authority, secrets } = this.#deps
    const renewing = secrets.renewalOf(token)
    const change = { operation: 'token_rotate', agent: null, machine: null, level: null, detail: token }
    await authority.announce(change, { widens: false })
    return { ok: true, token, file: await renewing() }
  }

  /** Signs an ACL for hosts that name this agent as a signer. */
  async #signAcl({ acl_version: version, acl_sha256: sha256 }: Sent<typeof ACL_SIGN>): Promise<unknown> {
    const { authority, signatures } = this.#deps
    this.#refuseRevoked(signatures.agentId)
    const detail = `version ${version}, SHA-256 ${sha256}`
    await authority.announce({ operation: 'acl_sign', agent: null, machine: null, level: null, detail }, { widens: true })
    const signature = await signAcl(signatures, version, fromHex(sha256))
    const [public_key, signed] = [signatures.publicKey, signature].map((bytes) => Buffer.from(bytes).toString('base64url'))
    return { ok: true, agent_id: signatures.agentId, public_key, signature: signed }
  }

  /** Explains the refusal to the operator. Every request checks revocation again. */
  #refuseRevoked(agentId: AgentId, machineId?: MachineId): void {
    const { revoked, machines } = this.#deps.revocations.of(agentId)
    const remedy = 'it has to make a new identity; import the card of that'
    if (revoked) throw new AppError('conflict', `agent ${agentId} has revoked its key for ever: ${remedy}`)
    if (machineId !== undefined && machines.includes(machineId))
      throw new AppError('conflict', `agent ${agentId} has revoked its presence on machine ${machineId} for ever`)
  }

  #shown(contact: Contact): unknown {
    return { ok: true, contact: contactRecord(contact, this.#deps.revocations) }
  }

  async #revoke(machineId: MachineId | null): Promise<unknown> {
    if (machineId !== null && !isHexId(machineId))
      throw new AppError('bad_request', 'machine_id: expected 64 lower-case hex digits or null')
    const { authority, clock, revocations, signatures } = this.#deps
    const [agent, machine] = [signatures.agentId, machineId]
    await authority.announce({ operation: 'identity_revoke', agent, machine, level: null }, { widens: false })
    const added = revocations.add(await signRevocation(signatures, machineId, clock.now()), () => true)
    this.#onRevoked()
    await added
    return { ok: true, agent_id: signatures.agentId, machine_id: machineId }
  }
}

const levelOf = (text: string): TrustLevel => {
  const level = TRUST_LEVELS.find((one) => one === text)
  if (level === undefined) throw new AppError('bad_request', `a trust level is one of ${TRUST_LEVELS.join(', ')}`)
  return level
}
