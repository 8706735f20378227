import { expandNodeSet, parseNodeSet } from '../protocol/hosts/node-set.ts'
import { type AgentId, type MachineId, fromHex, shortId, toHex } from '../protocol/ids.ts'
import { ENROL_CONTACT_MS } from '../protocol/limits/enrolment.ts'
import type { EnrolRefusal } from '../protocol/reasons.ts'
import type { EnrolRequest } from '../protocol/wire/enrolment.ts'
import { type Contact, nameProblem } from '../trust/contact.ts'
import { type EnrolKey, type EnrolledHost, replacedKey } from '../trust/enrolment-keys.ts'
import { isEnrolMac } from '../trust/enrolment-token.ts'

/** A request of a host whose agent and machine the link has proven. */
export interface EnrolArrival {
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly request: Pick<EnrolRequest, 'key_id' | 'step' | 'attempt' | 'name' | 'name_required'>
  /** The exact bytes of the request, and the MAC over them. */
  readonly body: Uint8Array
  readonly mac: Uint8Array
}

export interface EnrolContext {
  readonly keys: readonly EnrolKey[]
  readonly contacts: readonly Pick<Contact, 'name' | 'agent_id' | 'machines'>[]
  readonly nowMs: number
}

export interface EnrolRefused {
  readonly kind: 'refused'
  readonly reason: EnrolRefusal
  readonly message: string
}

export interface EnrolAllowed {
  readonly kind: 'allowed'
  /** The keys with this host. */
  readonly keys: readonly EnrolKey[]
  readonly key: EnrolKey
  readonly host: EnrolledHost
  /** False for a retry, which uses nothing. */
  readonly isNew: boolean
}

export type EnrolVerdict = EnrolRefused | EnrolAllowed

const refused = (reason: EnrolRefusal, message: string): EnrolRefused => ({ kind: 'refused', reason, message })

const iso = (ms: number): string => new Date(ms).toISOString()

/** Decides about a request for enrolment. Pure. Without a valid MAC it says nothing about keys, hosts or names. */
export const judgeEnrolment = (arrival: EnrolArrival, context: EnrolContext): EnrolVerdict => {
  const { request, body, mac } = arrival
  const id = toHex(request.key_id)
  const key = context.keys.find((one) => one.id === id)
  if (key === undefined)
    return refused('unknown_key', `this operator has no enrolment key ${id}: the token is from another operator, or was forgotten`)
  if (!isEnrolMac(fromHex(key.secret), 'request', body, mac)) return refused('wrong_proof', 'the proof of the enrolment token is wrong')
  return request.step === 'ask' ? judgeAsk(arrival, key, context) : judgeDone(arrival, key, context)
}

const isCopy = (name: string): EnrolRefused =>
  refused(
    'already_enrolled',
    `these machine keys were already enrolled as ${name}; a cloned image must be initialised again (delete the data directory)`,
  )

const isSameHost = ({ agentId, machineId }: EnrolArrival, host: EnrolledHost): boolean =>
  host.agent_id === agentId && host.machine_id === machineId

const judgeAsk = (arrival: EnrolArrival, key: EnrolKey, context: EnrolContext): EnrolVerdict => {
  const { agentId, machineId, request } = arrival
  const attempt = toHex(request.attempt)
  const hosts = context.keys.flatMap((one) => one.hosts)
  const known = hosts.find((host) => host.agent_id === agentId || host.machine_id === machineId)
  if (key.revoked) return refused('revoked', `the enrolment key ${key.id} was revoked`)
  if (known !== undefined) {
    const isRetry = key.hosts.includes(known) && isSameHost(arrival, known) && (!known.confirmed || known.attempt === attempt)
    if (!isRetry) return isCopy(known.name)
    return wasRemoved(known, context)
      ? refused('already_enrolled', `the operator has removed ${known.name}: enrol the machine with a new token and new keys`)
      : retried(arrival, key, known, context)
  }
  if (context.nowMs >= key.expires_at_ms)
    return refused(
      'expired',
      `the enrolment key ${key.id} expired at ${iso(key.expires_at_ms)}, and the clock of the operator says ${iso(context.nowMs)}`,
    )
  if (key.hosts.length >= key.uses)
    return refused('used_up', `the enrolment key ${key.id} is used up: ${key.uses} of ${key.uses} hosts have enrolled`)
  const contact = context.contacts.find((one) => one.agent_id === agentId || one.machines.includes(machineId))
  if (contact !== undefined)
    return refused(
      'already_contact',
      `this agent or machine is already the operator's contact ${contact.name}: remove it first, on the operator's machine, with x0x contacts remove ${contact.name}`,
    )
  const name = nameFor(arrival, key, context)
  if (typeof name !== 'string') return name
  const host: EnrolledHost = {
    name,
    agent_id: agentId,
    machine_id: machineId,
    attempt,
    granted_at_ms: context.nowMs,
    confirmed: false,
  }
  const next = { ...key, hosts: [...key.hosts, host] }
  return { kind: 'allowed', keys: replacedKey(context.keys, next), key: next, host, isNew: true }
}

/** The contact is written a moment after the use. Later it is missing only if the operator has removed it. */
const wasRemoved = ({ agent_id, granted_at_ms }: EnrolledHost, { contacts, nowMs }: EnrolContext): boolean =>
  nowMs - granted_at_ms > ENROL_CONTACT_MS && !contacts.some((one) => one.agent_id === agent_id)

/** The host asks again, because it did not get the answer. The newest process of the host takes over. */
const retried = (arrival: EnrolArrival, key: EnrolKey, known: EnrolledHost, context: EnrolContext): EnrolVerdict => {
  const attempt = toHex(arrival.request.attempt)
  const owner = context.contacts.find(({ name }) => name === known.name)
  const isFree = owner === undefined || owner.agent_id === known.agent_id
  // A contact that the operator renamed keeps its new name.
  const hasName = isFree || context.contacts.some(({ agent_id }) => agent_id === known.agent_id)
  const name = hasName ? known.name : nameFor(arrival, key, context)
  if (typeof name !== 'string') return name
  if (known.attempt === attempt && name === known.name) return { kind: 'allowed', keys: context.keys, key, host: known, isNew: false }
  return { ...withHost(context.keys, key, { ...known, attempt, name }), isNew: false }
}

const judgeDone = (arrival: EnrolArrival, key: EnrolKey, { keys }: EnrolContext): EnrolVerdict => {
  const known = key.hosts.find((host) => isSameHost(arrival, host))
  if (known === undefined) return refused('unknown_key', `the enrolment key ${key.id} was not granted to this machine`)
  if (known.attempt !== toHex(arrival.request.attempt)) return isCopy(known.name)
  if (known.confirmed) return { kind: 'allowed', keys, key, host: known, isNew: false }
  return { ...withHost(keys, key, { ...known, confirmed: true }), isNew: false }
}

const withHost = (keys: readonly EnrolKey[], key: EnrolKey, host: EnrolledHost): Omit<EnrolAllowed, 'isNew'> => {
  const next = { ...key, hosts: key.hosts.map((one) => (one.agent_id === host.agent_id ? host : one)) }
  return { kind: 'allowed', keys: replacedKey(keys, next), key: next, host }
}

/** The host's own name if it is in the set and free, else the next free one. */
const nameFor = ({ agentId, request }: EnrolArrival, { names }: EnrolKey, { keys, contacts }: EnrolContext): string | EnrolRefused => {
  const coming = keys.flatMap(({ revoked, hosts }) => (revoked ? [] : hosts.filter(({ confirmed }) => !confirmed)))
  const taken = new Set([...contacts, ...coming].filter((one) => one.agent_id !== agentId).map(({ name }) => name))
  const { name: wish, name_required: isRequired } = request
  const allowed = names === null ? null : expandNodeSet(parseNodeSet(names))
  const fits = nameProblem(wish) === null && (allowed === null || allowed.includes(wish))
  if (isRequired && !fits)
    return refused('name_unknown', `the name ${JSON.stringify(wish)} is not one of ${names ?? 'the names that are possible'}`)
  if (isRequired && taken.has(wish)) return refused('name_taken', `the name ${wish} is taken by another host of the operator`)
  if (fits && !taken.has(wish)) return wish
  const free = (allowed ?? [`agent-${shortId(agentId)}`, `agent-${agentId.slice(0, 16)}`]).find((name) => !taken.has(name))
  return free ?? refused('name_taken', `all names of ${names ?? 'the operator'} are taken`)
}
