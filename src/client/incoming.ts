import { quote, RexdError, RexdProtocolError } from './errors.ts'
import type { Events, RexdEvent } from './protocol-sessions.ts'

/** What a message of the server is. */
export type Incoming =
  | { readonly kind: 'result'; readonly id: number; readonly result: unknown }
  | { readonly kind: 'failure'; readonly id: number; readonly error: RexdError }
  | { readonly kind: 'event'; readonly event: RexdEvent }
  /** An event that a newer server may have. */
  | { readonly kind: 'unknown_event' }

type Fields = Readonly<Record<string, unknown>>
type Kind = 'string' | 'string?' | 'number' | 'number?' | 'boolean' | 'list'
export type Needed = Readonly<Record<string, Kind>>

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value)

/** The fields of something that the server said, when those that are needed are there; `?`: it may be null. Throws `RexdProtocolError`. */
export const fieldsOf = (value: unknown, what: string, needed: Needed): Fields => {
  if (!isFields(value)) throw new RexdProtocolError(`${what}: not an object`)
  for (const [name, kind] of Object.entries(needed)) {
    const mayBeNull = kind.endsWith('?')
    const type = mayBeNull ? kind.slice(0, -1) : kind
    const field = value[name]
    const fits = type === 'list' ? Array.isArray(field) : typeof field === type || (mayBeNull && field === null)
    if (!fits) throw new RexdProtocolError(`${what}: ${name} is no ${type}`)
  }
  return value
}

/** Bytes as an event or an answer has them. */
export const bytesOf = (data: string, encoding: unknown, what: string): Uint8Array => {
  if (encoding !== 'utf8' && encoding !== 'base64') throw new RexdProtocolError(`${what}: an unknown encoding`)
  return Buffer.from(data, encoding)
}

const OF_PROCESS = { session_id: 'string', process_id: 'string' } as const
const OUTPUT = { ...OF_PROCESS, seq: 'number', data: 'string', encoding: 'string' } as const
const EXIT = {
  ...OF_PROCESS,
  exit_code: 'number?',
  signal: 'string?',
  timed_out: 'boolean',
  duration_ms: 'number',
  bytes_stdout: 'number',
  bytes_stderr: 'number',
  truncated: 'boolean',
} as const
const NEEDED: Readonly<Record<keyof Events, Needed>> = {
  'exec.stdout': OUTPUT,
  'exec.stderr': OUTPUT,
  'exec.exit': EXIT,
  'exec.error': { ...OF_PROCESS, code: 'number', message: 'string' },
  'pty.output': { ...OUTPUT, pty_id: 'string' },
  'pty.exit': { ...EXIT, pty_id: 'string' },
  'session.gap': { session_id: 'string', from: 'number', to: 'number' },
}

const eventOf = (method: string, params: unknown): Incoming => {
  if (!Object.hasOwn(NEEDED, method)) return { kind: 'unknown_event' }
  const fields = fieldsOf(params, method, NEEDED[method as keyof Events])
  if (fields['cursor'] !== undefined && !Number.isSafeInteger(fields['cursor']))
    throw new RexdProtocolError(`${method}: cursor is no whole number`)
  return { kind: 'event', event: { method, params: fields } as unknown as RexdEvent }
}

const errorOf = (value: unknown): RexdError => {
  const { code, message, data } = fieldsOf(value, 'an error', { code: 'number', message: 'string' })
  return new RexdError({ code: code as number, message: message as string, data: isFields(data) ? data : undefined })
}

/** Throws `RexdProtocolError` for what is no message of a server, and for the word that a message of ours was none. */
export const parseIncoming = (text: string): Incoming => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new RexdProtocolError(`the other side does not speak JSON-RPC; it says ${JSON.stringify(quote(text))}`, { cause: error })
  }
  const { jsonrpc, id, method, params, result, error } = fieldsOf(value, 'a message', {})
  if (jsonrpc !== '2.0') throw new RexdProtocolError(`a message is not of JSON-RPC 2.0: ${quote(text)}`)
  if (id === undefined && typeof method === 'string') return eventOf(method, params)
  if (id === null && error !== undefined)
    throw new RexdProtocolError(`the other side could not read a message: ${quote(errorOf(error).message)}`)
  if (typeof id !== 'number' || method !== undefined || (result === undefined) === (error === undefined))
    throw new RexdProtocolError(`a message is neither an answer nor an event: ${quote(text)}`)
  return error === undefined ? { kind: 'result', id, result } : { kind: 'failure', id, error: errorOf(error) }
}
