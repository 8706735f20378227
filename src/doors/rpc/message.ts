import { AppError, ERROR_TABLE, type ErrorCode, isAppError } from '../../base/errors.ts'
import type { JsonShape } from '../../protocol/json-shape.ts'
import { MAX_RPC_BATCH, MAX_RPC_ID } from '../../protocol/rexd-limits.ts'

/** JSON-RPC 2.0, 4: a text, a whole number, or null. */
export type RpcId = string | number | null

/** A request that is one. `id` undefined: a notification, which nobody is answered for. */
export interface RpcCall {
  readonly id: RpcId | undefined
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
}

export interface RpcError {
  readonly code: number
  readonly message: string
  readonly data?: Readonly<Record<string, unknown>>
}

export type RpcResponse =
  | { readonly jsonrpc: '2.0'; readonly id: RpcId; readonly result: unknown }
  | { readonly jsonrpc: '2.0'; readonly id: RpcId; readonly error: RpcError }

/** What one message holds, in its order: calls, and answers to what is none. */
export interface RpcMessage {
  readonly batch: boolean
  /** Whoever answers it takes them out: what waits for long keeps none of the others. */
  readonly parts: (RpcCall | RpcResponse)[]
}

const PARSE_ERROR = -32_700
const INVALID_REQUEST = -32_600
export const METHOD_NOT_FOUND = -32_601

const refusal = (id: RpcId, code: number, message: string, data?: Record<string, unknown>): RpcResponse => ({
  jsonrpc: '2.0',
  id,
  error: { code, message, ...(data === undefined ? {} : { data }) },
})

/** A text that is no JSON, or no UTF-8. */
export const parseFailure = (message: string): RpcMessage => ({ batch: false, parts: [refusal(null, PARSE_ERROR, message)] })

export const isParseFailure = ({ parts: [part] }: RpcMessage): boolean =>
  part !== undefined && 'error' in part && part.error.code === PARSE_ERROR

const limited = (message: string, data: Record<string, unknown>, id: RpcId = null): RpcMessage => ({
  batch: false,
  parts: [refusal(id, ERROR_TABLE.resource_limit.rpc, message, { code: 'resource_limit', ...data })],
})

/** A message that is longer than any may be. `id`: of its request, where that could be read. */
export const tooLong = (max: number, id: RpcId = null): RpcMessage =>
  limited(`a message has at most ${max} bytes`, { max }, isId(id) ? id : null)

/** … or is made of more. */
export const tooManyValues = ({ depth, values }: JsonShape): RpcMessage =>
  limited(`a message has at most ${values} values, at most ${depth} deep`, { max: values, max_depth: depth })

export const methodNotFound = (id: RpcId, method: string, known: readonly string[]): RpcResponse =>
  refusal(id, METHOD_NOT_FOUND, `there is no method ${JSON.stringify(method.slice(0, MAX_RPC_ID))}`, { methods: known })

/** The answer that an error is, with its name in the table among the data. */
export const failure = (id: RpcId, error: unknown): RpcResponse => {
  const known = isAppError(error) ? error : new AppError('internal')
  return refusal(id, ERROR_TABLE[known.code].rpc, known.message, { code: known.code satisfies ErrorCode, ...known.data })
}

export const success = (id: RpcId, result: unknown): RpcResponse => ({ jsonrpc: '2.0', id, result })

export const isCall = (part: RpcCall | RpcResponse): part is RpcCall => 'method' in part

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

const isId = (value: unknown): value is RpcId =>
  value === null || (typeof value === 'string' && value.length <= MAX_RPC_ID) || (typeof value === 'number' && Number.isSafeInteger(value))

const MEMBERS = ['jsonrpc', 'id', 'method', 'params']

/** Null: a notification that makes no sense, which nobody is told of (JSON-RPC 2.0, 4.1). */
const partOf = (value: unknown): RpcCall | RpcResponse | null => {
  if (!isObject(value)) return refusal(null, INVALID_REQUEST, 'a request is an object')
  const { jsonrpc, id, method, params = {} } = value
  const named = id !== undefined && isId(id) ? id : null
  const invalid = (message: string): RpcResponse => refusal(named, INVALID_REQUEST, message)
  if (id !== undefined && !isId(id)) return invalid(`id: a text of at most ${MAX_RPC_ID} characters, a whole number, or null`)
  if (jsonrpc !== '2.0') return invalid('jsonrpc: must be "2.0"')
  if (typeof method !== 'string') return invalid('method: must be a text')
  const unknown = Object.keys(value).find((key) => !MEMBERS.includes(key))
  if (unknown !== undefined) return invalid(`${unknown.slice(0, MAX_RPC_ID)}: unknown member of a request`)
  if (isObject(params)) return { id, method, params }
  return id === undefined ? null : failure(named, new AppError('bad_request', 'params: by name, as an object'))
}

/** What a message says; whatever it is, there is an answer to it. */
export const parseMessage = (text: string): RpcMessage => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    return parseFailure(`not valid JSON: ${(error as Error).message.slice(0, MAX_RPC_ID)}`)
  }
  const partsOf = (values: readonly unknown[]): RpcMessage['parts'] => values.map(partOf).filter((part) => part !== null)
  if (!Array.isArray(value)) return { batch: false, parts: partsOf([value]) }
  if (value.length === 0 || value.length > MAX_RPC_BATCH)
    return { batch: false, parts: [refusal(null, INVALID_REQUEST, `a batch has 1 to ${MAX_RPC_BATCH} requests`)] }
  return { batch: true, parts: partsOf(value) }
}
