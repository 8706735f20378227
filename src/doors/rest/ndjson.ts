import { AppError } from '../../base/errors.ts'
import { hasShape } from '../../protocol/json-shape.ts'
import { MAX_ARGV_TOKENS } from '../../protocol/limits.ts'
import { linesOf } from '../../protocol/lines.ts'
import { fromBase64, utf8Text } from '../../protocol/text.ts'

/** One line of an NDJSON request body: stdin in base64, or argv with every character escaped. */
export const MAX_NDJSON_LINE = 2 * 1024 * 1024

/** Text of foreign bytes; throws `bad_request` where they are not UTF-8, so that nothing is silently altered. */
export const utf8 = (bytes: Uint8Array): string => {
  const text = utf8Text(bytes)
  if (text === null) throw new AppError('bad_request', 'the body is not valid UTF-8')
  return text
}

/** More than any request has: eight times the words of a command. A value of two bytes takes dozens once it is parsed, and the time of everybody's runs. */
export const MAX_BODY_SHAPE = { depth: 32, values: 8 * MAX_ARGV_TOKENS } as const

/** Throws `bad_request` with the parser's own words. */
export const parseJson = (bytes: Uint8Array, values: number = MAX_BODY_SHAPE.values): unknown => {
  if (!hasShape(bytes, { ...MAX_BODY_SHAPE, values }))
    throw new AppError('bad_request', `the body has more than ${values} values, or is nested more than ${MAX_BODY_SHAPE.depth} deep`)
  try {
    return JSON.parse(utf8(bytes)) as unknown
  } catch (error) {
    if (error instanceof AppError) throw error
    throw new AppError('bad_request', `the body is not valid JSON: ${(error as Error).message}`, { cause: error })
  }
}

/** Standard base64 with its padding and nothing else; throws `bad_request` naming `key`. */
export const decodeBase64 = (text: string, key: string): Uint8Array => {
  const bytes = fromBase64(text)
  if (bytes === null) throw new AppError('bad_request', `${key}: not base64`)
  return bytes
}

/** The lines that are not blank, without their ends. */
export async function* bodyLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const line of linesOf(body, MAX_NDJSON_LINE, tooLong)) if (!isBlank(line)) yield line
}

const tooLong = (): AppError => new AppError('too_large', `a line is longer than ${MAX_NDJSON_LINE} bytes`)

const isBlank = (line: Uint8Array): boolean => line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d)
