import * as z from 'zod'
import { MAX_FILE_CHUNK, MAX_PATH } from '../../protocol/rexd-limits.ts'
import { DEFAULT_LISTED, MAX_TOOL_LISTED } from '../../protocol/tool-limits.ts'

/** A look at files changes nothing, and only this host has them. */
export const LOOKS = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false }
/** What was there may be gone afterwards, and twice is not once. */
export const CHANGES = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false }

export const pathField = (text: string) => z.string().min(1).max(MAX_PATH).describe(text)
export const PATH_FIELD = pathField('a path below an allowed root, absolute or from the first root')

export const MAX_LISTED_FIELD = z
  .int()
  .min(1)
  .max(MAX_TOOL_LISTED)
  .default(DEFAULT_LISTED)
  .describe(`a whole number: the most that come back (default ${DEFAULT_LISTED}, at most ${MAX_TOOL_LISTED})`)

export const MTIME_FIELD = z
  .string()
  .min(1)
  .max(64)
  .optional()
  .describe('the mtime of an answer about this file: when it was changed since, nothing is done')

export const textField = (text: string) => z.string().max(MAX_FILE_CHUNK).describe(text)

/** Where it is, and when it was changed last. */
export const CHANGED = { path: z.string(), mtime: z.string(), mtime_ms: z.int() }
