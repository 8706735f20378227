import { AppError } from '../base/errors.ts'

/** SHA-256 of a domain prefix and the agent's public key, as 64 lower-case hex digits. */
export type AgentId = string
/** The machine's Ed25519 public key, which the Noise handshake proves, as 64 lower-case hex digits. */
export type MachineId = string
/** A UUIDv7 as canonical lower-case text. */
export type RequestId = string

const HEX_64 = /^[0-9a-f]{64}$/
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

export const isHexId = (text: string): boolean => HEX_64.test(text)
export const isRequestId = (text: string): boolean => UUID.test(text)

export const toHex = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')

/** Throws `malformed` unless the text has an even number of lower-case hex digits. */
export const fromHex = (text: string): Uint8Array => {
  if (text.length % 2 !== 0 || !/^[0-9a-f]*$/.test(text)) throw new AppError('malformed', 'not lower-case hex')
  return new Uint8Array(Buffer.from(text, 'hex'))
}

export const requestIdToBytes = (id: RequestId): Uint8Array => {
  if (!isRequestId(id)) throw new AppError('malformed', 'not a request ID')
  return fromHex(id.replaceAll('-', ''))
}

export const requestIdFromBytes = (bytes: Uint8Array): RequestId =>
  toHex(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')

/** The first eight characters, for display only. */
export const shortId = (id: string): string => id.slice(0, 8)

/** An agent on a machine, in one text that is a key of maps. It differs for each pair. */
export const pairKey = ({ agent_id, machine_id }: { readonly agent_id: AgentId; readonly machine_id: MachineId }): string =>
  `${agent_id}:${machine_id}`
