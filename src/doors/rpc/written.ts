import { AppError } from '../../base/errors.ts'
import { MAX_RPC_BATCH_ANSWER } from '../../protocol/rexd-limits.ts'
import { failure, type RpcResponse } from './message.ts'
import { base64Of } from './output-text.ts'

/** Bytes that an answer has as base64. In JSON that is what it is: nobody has to look at each character for what must be escaped. */
export class Base64 {
  readonly #bytes: Uint8Array

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  toJSON(): string {
    return base64Of(this.#bytes)
  }
}

interface ContentAnswer {
  readonly result: { readonly content: Base64 }
}

const hasContent = (message: object): message is ContentAnswer =>
  'result' in message &&
  typeof message.result === 'object' &&
  message.result !== null &&
  'content' in message.result &&
  message.result.content instanceof Base64

/** Inside a text a quote stands behind a backslash: this can only be the member. */
const CONTENT = '"content":"'

/** Answers of one batch: what does not fit any more is refused in its place, so that all of them are told something. */
const writtenBatch = (answers: readonly RpcResponse[]): string => {
  let size = 0
  const texts = answers.map((answer) => {
    const text = JSON.stringify(answer)
    const fits = size + text.length <= MAX_RPC_BATCH_ANSWER
    const told = fits ? text : JSON.stringify(failure(answer.id, tooMuchTogether()))
    size += told.length
    return told
  })
  return `[${texts.join(',')}]`
}

const tooMuchTogether = (): AppError =>
  new AppError(
    'resource_limit',
    `the answers of a batch have at most ${MAX_RPC_BATCH_ANSWER} characters together; ask for this one alone`,
    {
      data: { limit: 'batch_answer', max: MAX_RPC_BATCH_ANSWER },
    },
  )

/** A message as it goes out: a text, or bytes where it holds a file in base64. `end`: what stands behind it. */
export const written = (message: object, end = ''): string | Buffer => {
  if (Array.isArray(message)) return `${writtenBatch(message as RpcResponse[])}${end}`
  if (!hasContent(message)) return `${JSON.stringify(message)}${end}`
  const text = JSON.stringify({ ...message, result: { ...message.result, content: '' } })
  const at = text.indexOf(CONTENT) + CONTENT.length
  const [head, content, tail] = [text.slice(0, at), message.result.content.toJSON(), `${text.slice(at)}${end}`]
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(head) + content.length + Buffer.byteLength(tail))
  const from = bytes.write(head)
  bytes.write(tail, from + bytes.write(content, from, 'latin1'))
  return bytes
}
