import { randomUUID } from 'node:crypto'
import { giveBack } from '../../base/buffers.ts'
import { AppError, ERROR_TABLE, type ErrorCode, isAppError } from '../../base/errors.ts'
import { type JsonShape, hasShape } from '../../protocol/json-shape.ts'
import { MAX_RPC_BATCH, MAX_RPC_ID, MAX_RPC_SHAPE } from '../../protocol/limits/rexd.ts'
import { jsonText } from '../../protocol/lines.ts'
import { type ContentMessage, contentHead, splitContent } from '../../protocol/rexd/binary-message.ts'
import { fromBase64, toBase64, utf8Text } from '../../protocol/text.ts'

/** A string, an integer or null (JSON-RPC 2.0, 4). */
export type RpcId = string | number | null

/** A valid request. A notification has no `id`. */
export interface RpcCall {
  readonly id: RpcId | undefined
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
  /** Content of a file that a binary message carries instead of `params.content`. */
  readonly content?: Uint8Array
}

export interface RpcError {
  readonly code: number
  readonly message: string
  readonly data?: Readonly<Record<string, unknown>>
}

export type RpcResponse =
  | { readonly jsonrpc: '2.0'; readonly id: RpcId; readonly result: unknown }
  | { readonly jsonrpc: '2.0'; readonly id: RpcId; readonly error: RpcError }

/** The parts of one message, in order. They are valid calls, and error responses to invalid ones. */
export interface RpcMessage {
  readonly batch: boolean
  /** The receiver removes the parts, so that a call that waits does not retain the others. */
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

/** For input that is not JSON or not UTF-8. */
export const parseFailure = (message: string): RpcMessage => ({ batch: false, parts: [refusal(null, PARSE_ERROR, message)] })

export const isParseFailure = ({ parts: [part] }: RpcMessage): boolean =>
  part !== undefined && 'error' in part && part.error.code === PARSE_ERROR

const limited = (message: string, data: Record<string, unknown>, id: RpcId = null): RpcMessage => ({
  batch: false,
  parts: [refusal(id, ERROR_TABLE.resource_limit.rpc, message, { code: 'resource_limit', ...data })],
})

/** For a message that exceeds the size limit. `id` is that of its request, if it could be read. */
export const tooLong = (max: number, id: RpcId = null): RpcMessage =>
  limited(`a message has at most ${max} bytes`, { max }, isId(id) ? id : null)

/** For a message that exceeds the limits of depth or values. */
export const tooManyValues = ({ depth, values }: JsonShape): RpcMessage =>
  limited(`a message has at most ${values} values, at most ${depth} deep`, { max: values, max_depth: depth })

export const methodNotFound = (id: RpcId, method: string, known: readonly string[]): RpcResponse =>
  refusal(id, METHOD_NOT_FOUND, `unknown method ${JSON.stringify(method.slice(0, MAX_RPC_ID))}`, { methods: known })

/** The error response, with the name of the error code in its data. */
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

/** Null means an invalid notification, which gets no answer (JSON-RPC 2.0, 4.1). */
const partOf = (value: unknown): RpcCall | RpcResponse | null => {
  if (!isObject(value)) return refusal(null, INVALID_REQUEST, 'a request must be an object')
  const { jsonrpc, id, method, params = {} } = value
  const named = id !== undefined && isId(id) ? id : null
  const invalid = (message: string): RpcResponse => refusal(named, INVALID_REQUEST, message)
  if (id !== undefined && !isId(id)) return invalid(`id: expected a text of at most ${MAX_RPC_ID} characters, a whole number, or null`)
  if (jsonrpc !== '2.0') return invalid('jsonrpc: must be "2.0"')
  if (typeof method !== 'string') return invalid('method: must be a text')
  const unknown = Object.keys(value).find((key) => !MEMBERS.includes(key))
  if (unknown !== undefined) return invalid(`${unknown.slice(0, MAX_RPC_ID)}: unknown member of a request`)
  if (isObject(params)) return { id, method, params }
  return id === undefined ? null : failure(named, new AppError('bad_request', 'params: expected an object with named parameters'))
}

/** Parses any text. Invalid text becomes an error response. */
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

/** Below this size, parsing the whole message is faster. */
const LONG = 64 * 1024
const CONTENT_BYTES = Buffer.from('"content":"')
const QUOTE = 0x22
const BEGINNING = 64

/**
 * Refuses too many values before they are created. A message that is only nested too deeply may be invalid JSON, which the parser reports.
 */
const parseWhole = (message: Buffer): RpcMessage => {
  const fits = hasShape(message, MAX_RPC_SHAPE)
  if (!fits && !hasShape(message, { ...MAX_RPC_SHAPE, depth: Infinity })) return tooManyValues(MAX_RPC_SHAPE)
  const text = utf8Text(message)
  const said = text === null ? parseFailure('not valid UTF-8') : parseMessage(text)
  return fits || isParseFailure(said) ? said : tooManyValues(MAX_RPC_SHAPE)
}

/**
 * Parses a request with a file in base64 quickly: a random token replaces the content during parsing. If the token then is the content of
 * the only request, the text between those quotes was the content, and base64 needs no unescaping. Null means parse the whole message instead.
 */
const parseAround = (message: Buffer): RpcMessage | null => {
  const start = message.indexOf(CONTENT_BYTES) + CONTENT_BYTES.length
  const end = start < CONTENT_BYTES.length ? -1 : message.indexOf(QUOTE, start)
  if (end === -1 || (end - start) % 4 !== 0) return null
  // The beginning of most UTF-8 files is not base64.
  if (!/^[A-Za-z0-9+/=]*$/.test(message.toString('latin1', start, Math.min(end, start + BEGINNING)))) return null
  const content = message.toString('latin1', start, end)
  // The decoder is the fastest check of each character. The method decodes the content again.
  const bytes = fromBase64(content)
  if (bytes === null) return null
  giveBack(bytes)
  const token = randomUUID()
  const { batch, parts } = parseWhole(Buffer.concat([message.subarray(0, start), Buffer.from(token), message.subarray(end)]))
  const [call] = parts
  if (batch || call === undefined || !isCall(call) || call.params['content'] !== token) return null
  return { batch, parts: [{ ...call, params: { ...call.params, content } }] }
}

/** Parses any bytes. Invalid bytes become an error response. Releases the memory of the bytes. */
export const parseBytes = (bytes: Buffer): RpcMessage => {
  const message = (bytes.length < LONG ? null : parseAround(bytes)) ?? parseWhole(bytes)
  giveBack(bytes)
  return message
}

const NO_CONTENT = 'a binary message must have exactly one request, an fs.write with encoding base64 and empty content'

/** Parses a binary message. Invalid bytes become an error response. Releases the memory of the bytes. */
export const parseBinary = (message: Buffer): RpcMessage => {
  const split = splitContent(message)
  const said = split === null ? parseFailure('the JSON of the binary message is incomplete') : parseSplit(split)
  giveBack(message)
  return said
}

const parseSplit = ({ json, content: bytes }: ContentMessage): RpcMessage => {
  const { batch, parts } = parseWhole(json)
  const [call] = parts
  if (batch) return { batch: false, parts: [refusal(null, INVALID_REQUEST, NO_CONTENT)] }
  if (call === undefined || !isCall(call)) return { batch, parts }
  const { encoding, content } = call.params
  if (call.method === 'fs.write' && encoding === 'base64' && content === '')
    return { batch, parts: [{ ...call, content: new Uint8Array(bytes) }] }
  return { batch, parts: call.id === undefined ? [] : [failure(call.id, new AppError('bad_request', NO_CONTENT))] }
}

/** Bytes that are serialized as base64, without a search for characters to escape. */
export class Base64 {
  readonly #bytes: Uint8Array

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  /** Nothing else reads them. */
  get bytes(): Uint8Array {
    return this.#bytes
  }

  toJSON(): string {
    return toBase64(this.#bytes)
  }
}

const hasContent = (message: object): message is { readonly result: { readonly content: Base64 } } =>
  'result' in message &&
  typeof message.result === 'object' &&
  message.result !== null &&
  'content' in message.result &&
  message.result.content instanceof Base64

/** Inside a JSON string the quotes would be escaped, so this is the member. */
const CONTENT_TEXT = '"content":"'

/** The parts of the binary message that carries an answer with a file in base64. Null means that the message is sent as text. */
export const writtenAsBinary = (message: object | string): { readonly head: Uint8Array; readonly content: Uint8Array } | null => {
  if (typeof message === 'string' || !hasContent(message)) return null
  const { result } = message
  return { head: contentHead(jsonText({ ...message, result: { ...result, content: '' } })), content: result.content.bytes }
}

/** Serializes a message to a string, or to bytes if it contains a file in base64. A string is already serialized. `end` is appended. */
export const written = (message: object | string, end = ''): string | Buffer => {
  if (typeof message === 'string') return `${message}${end}`
  if (!hasContent(message)) return `${jsonText(message)}${end}`
  const text = jsonText({ ...message, result: { ...message.result, content: '' } })
  const at = text.indexOf(CONTENT_TEXT) + CONTENT_TEXT.length
  const [head, content, tail] = [text.slice(0, at), message.result.content.toJSON(), `${text.slice(at)}${end}`]
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(head) + content.length + Buffer.byteLength(tail))
  const from = bytes.write(head)
  bytes.write(tail, from + bytes.write(content, from, 'latin1'))
  return bytes
}
