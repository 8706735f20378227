import { randomUUID } from 'node:crypto'
import { giveBack } from '../../base/give-back.ts'
import { hasShape } from '../../protocol/json-shape.ts'
import { MAX_RPC_SHAPE } from '../../protocol/rexd-limits.ts'
import { fromBase64, utf8Text } from '../../protocol/text.ts'
import { type RpcMessage, isCall, isParseFailure, parseFailure, parseMessage, tooManyValues } from './message.ts'

/** A shorter message is parsed whole sooner than anything is looked for in it. */
const LONG = 64 * 1024
const CONTENT = Buffer.from('"content":"')
const QUOTE = 0x22
const BEGINNING = 64

/** Too many values are refused before they are made. Few that are nested too deeply may be no JSON, which only a parser can tell. */
const parseWhole = (message: Buffer): RpcMessage => {
  const fits = hasShape(message, MAX_RPC_SHAPE)
  if (!fits && !hasShape(message, { ...MAX_RPC_SHAPE, depth: Infinity })) return tooManyValues(MAX_RPC_SHAPE)
  const text = utf8Text(message)
  const said = text === null ? parseFailure('not valid UTF-8') : parseMessage(text)
  return fits || isParseFailure(said) ? said : tooManyValues(MAX_RPC_SHAPE)
}

/**
 * A request with a file in base64, which nobody looks at character by character for what is escaped: it is parsed with a token
 * that nobody can know in place of the content. Where the token is the content of the one request, the text between those
 * quotes stood in that very place, and base64 means in JSON what it is. Null: parse all of it.
 */
const parseAround = (message: Buffer): RpcMessage | null => {
  const start = message.indexOf(CONTENT) + CONTENT.length
  const end = start < CONTENT.length ? -1 : message.indexOf(QUOTE, start)
  if (end === -1 || (end - start) % 4 !== 0) return null
  // Any other text, as most files in UTF-8 are, is known by its beginning.
  if (!/^[A-Za-z0-9+/=]*$/.test(message.toString('latin1', start, Math.min(end, start + BEGINNING)))) return null
  const content = message.toString('latin1', start, end)
  // Nothing looks at each character sooner than the decoder. The method, which knows what the content is, decodes it again.
  const bytes = fromBase64(content)
  if (bytes === null) return null
  giveBack(bytes)
  const token = randomUUID()
  const { batch, parts } = parseWhole(Buffer.concat([message.subarray(0, start), Buffer.from(token), message.subarray(end)]))
  const [call] = parts
  if (batch || call === undefined || !isCall(call) || call.params['content'] !== token) return null
  return { batch, parts: [{ ...call, params: { ...call.params, content } }] }
}

/** What the bytes of a message say; whatever they are, there is an answer to them. Their memory is given back: nobody reads them afterwards. */
export const parseBytes = (bytes: Buffer): RpcMessage => {
  const message = (bytes.length < LONG ? null : parseAround(bytes)) ?? parseWhole(bytes)
  giveBack(bytes)
  return message
}
