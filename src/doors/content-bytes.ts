import { AppError } from '../base/errors.ts'
import { fromBase64 } from '../protocol/text.ts'

/** Decodes the content of a message field. Throws `bad_request`, and `resource_limit` above `max` bytes. */
export const contentBytes = (text: string, encoding: 'utf8' | 'base64', field: string, max: number): Uint8Array => {
  const bytes = encoding === 'base64' ? fromBase64(text) : Buffer.from(text)
  if (bytes === null) throw new AppError('bad_request', `${field}: not base64`)
  if (encoding === 'utf8' && !text.isWellFormed()) throw new AppError('bad_request', `${field}: not valid Unicode`)
  return bounded(bytes, field, max)
}

/** Throws `resource_limit` above `max` bytes. */
export const bounded = (bytes: Uint8Array, field: string, max: number): Uint8Array => {
  if (bytes.length <= max) return bytes
  throw new AppError('resource_limit', `${field}: at most ${max} bytes`, { data: { limit: field, asked: bytes.length, max } })
}
