import type { FieldTable as Stated, Kind } from '../protocol/json-table.ts'
import type { Method } from '../protocol/rexd/methods.ts'
import { EVENTS, RESULTS, type Result, type RexdEvent } from '../protocol/rexd/results.ts'
import { RexdError, RexdProtocolError, quote } from './errors.ts'

/** The kind of a message of the server. */
export type IncomingMessage =
  | { readonly kind: 'result'; readonly id: number; readonly result: unknown; readonly content: Uint8Array | null }
  | { readonly kind: 'failure'; readonly id: number; readonly error: RexdError }
  | { readonly kind: 'event'; readonly event: RexdEvent }
  /** An event of a newer server. */
  | { readonly kind: 'unknown_event' }

type Fields = Readonly<Record<string, unknown>>

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value)

/** The JSON type of each kind of field. Absent means any. */
const TYPES: Readonly<Partial<Record<Kind['is'], string>>> = {
  text: 'string',
  one_of: 'string',
  whole: 'number',
  flag: 'boolean',
  list: 'list',
  map: 'object',
  record: 'object',
}

const requireField = (value: unknown, kind: Kind, name: string): void => {
  if (kind.is === 'null_or') return value === null ? undefined : requireField(value, kind.of, name)
  const type = TYPES[kind.is]
  if (type !== undefined && (type === 'list' ? !Array.isArray(value) : typeof value !== type))
    throw new RexdProtocolError(`${name} is not a ${type}`)
}

/** The fields of a message. Throws `RexdProtocolError` if a required one is missing. */
export const fieldsOf = (value: unknown, what: string, stated: Stated = {}, needed: readonly string[] = []): Fields => {
  if (!isFields(value)) throw new RexdProtocolError(`${what}: not an object`)
  for (const name of needed) requireField(value[name], stated[name]!.kind, `${what}: ${name}`)
  return value
}

/** An answer whose required fields are valid. Other servers may omit the rest. */
export const resultOf = <M extends Method>(value: unknown, method: M, needed: readonly (keyof Result<M> & string)[] = []): Result<M> =>
  fieldsOf(value, method, RESULTS[method], needed) as Result<M>

/** The bytes in an event or answer. */
export const bytesOf = (data: string, encoding: unknown, what: string): Uint8Array => {
  if (encoding !== 'utf8' && encoding !== 'base64') throw new RexdProtocolError(`${what}: an unknown encoding`)
  return Buffer.from(data, encoding)
}

const eventOf = (method: string, params: unknown): IncomingMessage => {
  if (!Object.hasOwn(EVENTS, method)) return { kind: 'unknown_event' }
  const stated: Stated = EVENTS[method as RexdEvent['method']]
  const needed = Object.keys(stated).filter((name) => stated[name]!.presence === 'required')
  const fields = fieldsOf(params, method, stated, needed)
  if (fields['cursor'] !== undefined && !Number.isSafeInteger(fields['cursor']))
    throw new RexdProtocolError(`${method}: cursor is not a whole number`)
  return { kind: 'event', event: { method, params: fields } as unknown as RexdEvent }
}

const errorOf = (value: unknown): RexdError => {
  const { code, message, data } = fieldsOf(value, 'an error', EVENTS['exec.error'], ['code', 'message'])
  return new RexdError({ code: code as number, message: message as string, data: isFields(data) ? data : undefined })
}

/** Throws `RexdProtocolError` for an invalid message, and for the report that a message of this client was invalid. */
export const parseIncoming = (text: string, content: Uint8Array | null = null): IncomingMessage => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new RexdProtocolError(`the server does not speak JSON-RPC; it sent ${JSON.stringify(quote(text))}`, { cause: error })
  }
  const { jsonrpc, id, method, params, result, error } = fieldsOf(value, 'a message')
  if (jsonrpc !== '2.0') throw new RexdProtocolError(`a message is not of JSON-RPC 2.0: ${quote(text)}`)
  if (id === undefined && typeof method === 'string') return eventOf(method, params)
  if (id === null && error !== undefined)
    throw new RexdProtocolError(`the server could not read a message: ${quote(errorOf(error).message)}`)
  if (typeof id !== 'number' || method !== undefined || (result === undefined) === (error === undefined))
    throw new RexdProtocolError(`a message is neither an answer nor an event: ${quote(text)}`)
  if (content !== null && !(isFields(result) && result['content'] === ''))
    throw new RexdProtocolError(`a message with bytes of a file is not an answer with an empty content: ${quote(text)}`)
  return error === undefined ? { kind: 'result', id, result, content } : { kind: 'failure', id, error: errorOf(error) }
}
