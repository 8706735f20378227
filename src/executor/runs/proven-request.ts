import { AppError } from '../../base/errors.ts'
import { equalBytes } from '../../identity/hash.ts'
import { pieceHashes } from '../../identity/piece-hashes.ts'
import { stdinPieces, type ExecRequest } from '../../protocol/exec.ts'
import { fromHex, isHexId, type AgentId } from '../../protocol/ids.ts'
import { MIN_ID_PREFIX } from '../../protocol/limits.ts'
import { fromBase64 } from '../../protocol/text.ts'
import type { Contact } from '../../trust/contact.ts'
import { JsonBody } from '../json-body.ts'

/** What is to be signed, as far as a request object can say it. */
export interface RequestToSign extends Pick<ExecRequest, 'request_id' | 'to_agent' | 'argv' | 'stdin' | 'timeout_ms' | 'cwd' | 'clamp'> {
  /** It is to outlive its caller; null: it is not. */
  readonly detach: { readonly lifetime_ms: number | null; readonly keep_bytes: number | null } | null
}

/** Whom the object's `agent` may mean. */
export interface KnownAgents {
  readonly own: AgentId
  readonly contacts: readonly Pick<Contact, 'name' | 'agent_id'>[]
}

/** The keys of a request object: those of `POST /exec/run`. */
export const REQUEST_KEYS = [
  'agent_id',
  'agent',
  'argv',
  'stdin_b64',
  'stdin_len',
  'stdin_sha256',
  'timeout_ms',
  'cwd',
  'clamp',
  'request_id',
  'detach',
  // Only this daemon hears of it: nothing of it is signed.
  'session',
] as const

/**
 * Compares every field of a request object that an operator proved with what the network's half asks to
 * have signed, so that it can change nothing on the way. Throws `operator_proof_required` for any
 * difference, `bad_request` for what is no request object.
 */
export const checkProvenRequest = (proven: Uint8Array, toSign: RequestToSign, known: KnownAgents): void => {
  const json = new JsonBody(proven).only(...REQUEST_KEYS)
  const different = [
    ...(agentOf(json, known) === toSign.to_agent ? [] : ['agent']),
    ...differencesOf(commandOf(json), toSign),
    ...([undefined, toSign.request_id].includes(json.optionalText('request_id')) ? [] : ['request_id']),
  ]
  if (different.length > 0) throw refused(`the operator proved another request: ${different.join(', ')} differ`)
}

/** Whom the object's `agent` or `agent_id` names. */
const agentOf = (json: JsonBody, known: KnownAgents): AgentId => {
  const named = [json.optionalText('agent_id'), json.optionalText('agent')].filter((text) => text !== undefined)
  const [text] = named
  if (text === undefined || named.length > 1)
    throw new AppError('bad_request', 'agent_id, agent: name the agent with exactly one of the two')
  if (json.has('agent_id') && !isHexId(text)) throw new AppError('bad_request', 'agent_id: expected 64 lower-case hex digits')
  return agentNamed(text, known)
}

/** As a person names an agent, but of strangers only the whole id: anybody can make one that begins as another does. */
export const agentNamed = (text: string, { own, contacts }: KnownAgents): AgentId => {
  if (isHexId(text)) return text
  const byName = contacts.filter((contact) => contact.name === text).map(({ agent_id }) => agent_id)
  const [agentId, ...others] = byName.length > 0 ? byName : byPrefix(text, [own, ...contacts.map(({ agent_id }) => agent_id)])
  if (agentId !== undefined && others.length === 0) return agentId
  const found = agentId === undefined ? 'is neither a contact nor the beginning of the id of one' : 'could be more than one contact'
  throw refused(`the operator proved a request to ${JSON.stringify(text)}, which ${found}: give the whole id of the agent`)
}

const byPrefix = (prefix: string, ids: readonly AgentId[]): AgentId[] =>
  prefix.length < MIN_ID_PREFIX ? [] : [...new Set(ids)].filter((id) => id.startsWith(prefix))

/** What is to run, whoever is to run it. */
export type ProvenCommand = Omit<RequestToSign, 'request_id' | 'to_agent' | 'argv'> & { readonly argv: readonly string[] }

export const commandOf = (json: JsonBody): ProvenCommand => ({
  argv: json.texts('argv'),
  stdin: stdinOf(json),
  timeout_ms: json.optionalCount('timeout_ms') ?? null,
  cwd: json.optionalText('cwd') ?? null,
  clamp: json.optionalFlag('clamp') ?? false,
  detach: detachOf(json),
})

const detachOf = (json: JsonBody): RequestToSign['detach'] => {
  if (json.isFlag('detach')) return json.optionalFlag('detach') === true ? { lifetime_ms: null, keep_bytes: null } : null
  const detach = json.optionalObject('detach')?.only('lifetime_ms', 'keep_bytes')
  if (detach === undefined) return null
  return { lifetime_ms: detach.optionalCount('lifetime_ms') ?? null, keep_bytes: detach.optionalCount('keep_bytes') ?? null }
}

/** The keys in which the two differ. */
export const differencesOf = (proven: ProvenCommand, toSign: ProvenCommand): string[] => {
  const { argv } = toSign
  const same: Record<string, boolean> = {
    argv: proven.argv.length === argv.length && proven.argv.every((token, index) => token === argv[index]),
    stdin: isSameStdin(proven.stdin, toSign.stdin),
    timeout_ms: proven.timeout_ms === toSign.timeout_ms,
    cwd: proven.cwd === toSign.cwd,
    clamp: proven.clamp === toSign.clamp,
    detach: isSameDetach(proven.detach, toSign.detach),
  }
  return Object.keys(same).filter((key) => !same[key])
}

const isSameDetach = (proven: RequestToSign['detach'], toSign: RequestToSign['detach']): boolean =>
  proven === null || toSign === null
    ? proven === toSign
    : proven.lifetime_ms === toSign.lifetime_ms && proven.keep_bytes === toSign.keep_bytes

/** The stdin that the object pins; null where it names none. */
const stdinOf = (json: JsonBody): RequestToSign['stdin'] => {
  const whole = json.optionalText('stdin_b64')
  const len = json.optionalCount('stdin_len')
  const hashes = json.has('stdin_sha256') ? json.texts('stdin_sha256') : undefined
  if (whole === undefined && len === undefined && hashes === undefined) return null
  if (whole !== undefined && len === undefined && hashes === undefined) {
    const bytes = fromBase64(whole)
    if (bytes === null) throw new AppError('bad_request', 'stdin_b64: not base64')
    return { len: bytes.length, pieces: pieceHashes(bytes) }
  }
  if (whole !== undefined || len === undefined || hashes?.length !== stdinPieces(len) || !hashes.every(isHexId))
    throw new AppError(
      'bad_request',
      'stdin_b64 alone, or stdin_len together with stdin_sha256: 64 lower-case hex digits for each MiB of it or part of one',
    )
  return { len, pieces: hashes.map(fromHex) }
}

const isSameStdin = (proven: RequestToSign['stdin'], toSign: RequestToSign['stdin']): boolean => {
  if (proven === null && toSign !== null)
    throw refused('the operator proved a request without stdin, or that does not say which: give stdin_len and stdin_sha256 in it')
  if (proven === null || toSign === null) return proven === toSign
  return proven.len === toSign.len && proven.pieces.every((piece, index) => equalBytes(piece, toSign.pieces[index]!))
}

export const refused = (message: string): AppError => new AppError('operator_proof_required', message)
