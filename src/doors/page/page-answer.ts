import type { IncomingMessage, ServerResponse } from 'node:http'
import { AppError, ERROR_TABLE, attempt, isAppError } from '../../base/errors.ts'
import { readUpTo } from '../../base/read-up-to.ts'
import { type Fields, isTable } from '../../protocol/json-table.ts'
import { jsonText } from '../../protocol/lines.ts'
import { MAX_PAGE_BODY } from '../../protocol/page-limits.ts'

/** Nothing from elsewhere, nothing inline, in nobody's frame. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ')

const HEADERS = {
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), microphone=(), geolocation=(), payment=(), usb=(), clipboard-read=()',
  'cache-control': 'no-store',
} as const

/** Every answer has them, those that refuse too. */
export const setHeaders = (response: ServerResponse): void => {
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value)
}

export const sendJson = (response: ServerResponse, status: number, body: object): void => {
  const text = Buffer.from(jsonText(body))
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', 'content-length': text.length }).end(text)
}

/** What it says in place of an answer; of our own faults no more than that there was one. */
export const sendError = (response: ServerResponse, error: unknown): void => {
  if (response.headersSent) {
    response.destroy()
    return
  }
  const known = isAppError(error) ? error : new AppError('internal')
  // A body that was not read to its end would be taken for the next request.
  response.setHeader('connection', 'close')
  sendJson(response, ERROR_TABLE[known.code].status, { ok: false, error: known.code, message: known.message, data: known.data })
}

/** The JSON object of a body. Throws `too_large`, `bad_request`. */
export const readBody = async (request: IncomingMessage): Promise<Fields> => {
  if (request.headers['content-type'] !== 'application/json') throw new AppError('bad_request', 'the body must be application/json')
  const bytes = await readUpTo(request as AsyncIterable<Buffer>, MAX_PAGE_BODY)
  if (bytes === null) throw new AppError('too_large', `the body is larger than ${MAX_PAGE_BODY} bytes`)
  const value = attempt(() => JSON.parse(bytes.toString()) as unknown)
  if (!isTable(value)) throw new AppError('bad_request', 'the body is no JSON object')
  return value
}
