import { jsonText } from '../../protocol/lines.ts'
import { toBase64 } from '../../protocol/text.ts'

/** Bytes that an answer has as base64. In JSON that is what it is: nobody has to look at each character for what must be escaped. */
export class Base64 {
  readonly #bytes: Uint8Array

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
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

/** Inside a text a quote stands behind a backslash: this can only be the member. */
const CONTENT = '"content":"'

/** A message as it goes out: a text, or bytes where it holds a file in base64. Text is written already. `end`: what stands behind it. */
export const written = (message: object | string, end = ''): string | Buffer => {
  if (typeof message === 'string') return `${message}${end}`
  if (!hasContent(message)) return `${jsonText(message)}${end}`
  const text = jsonText({ ...message, result: { ...message.result, content: '' } })
  const at = text.indexOf(CONTENT) + CONTENT.length
  const [head, content, tail] = [text.slice(0, at), message.result.content.toJSON(), `${text.slice(at)}${end}`]
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(head) + content.length + Buffer.byteLength(tail))
  const from = bytes.write(head)
  bytes.write(tail, from + bytes.write(content, from, 'latin1'))
  return bytes
}
