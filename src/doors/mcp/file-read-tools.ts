import * as z from 'zod'
import { AppError } from '../../base/errors.ts'
import { shownLine } from '../../base/visible-text.ts'
import { text } from '../../protocol/json-table.ts'
import { RESULTS, type Result } from '../../protocol/rexd-answers.ts'
import { toBase64, unfinished } from '../../protocol/text.ts'
import { DEFAULT_READ_BYTES, MAX_VIEW_BYTES } from '../../protocol/tool-limits.ts'
import { fileText } from '../tools/file-text.ts'
import { zodOf } from '../zod-of.ts'
import { callFiles } from './file-call.ts'
import { CHANGED, LOOKS, MAX_LISTED_FIELD, PATH_FIELD, pathField } from './file-fields.ts'
import { type Tool, tool } from './tool.ts'

const FILE_TYPES = z.enum(['file', 'dir', 'symlink', 'other'])

type Part = Pick<Result<'fs.read'>, 'size' | 'mtime' | 'mtime_ms' | 'truncated'>

/** Bytes of a file in the encoding that was asked for. A text ends with a whole character where the file goes on. */
const partOf = (data: Uint8Array, { truncated }: Part, encoding: 'utf8' | 'base64', offset: number) => {
  if (encoding === 'base64') return { content: toBase64(data), bytes: data.length, invalid_utf8: false, altered: false }
  const whole = truncated ? data.subarray(0, data.length - unfinished(data)) : data
  // An answer without a byte of it would be asked for again for ever.
  if (whole.length === 0 && data.length > 0)
    throw new AppError('bad_request', `length: the character at offset ${offset} is longer than ${data.length} bytes`)
  const { text: content, invalidUtf8, altered } = fileText(whole)
  return { content, bytes: whole.length, invalid_utf8: invalidUtf8, altered }
}

export const readFileTool: Tool = tool({
  name: 'read_file',
  title: 'Read a file',
  description: `Reads a file, or a part of it from a byte on: ${DEFAULT_READ_BYTES} bytes unless told, and next_offset where it goes on.`,
  use: 'a file is to be read.',
  input: z.strictObject({
    path: PATH_FIELD,
    offset: z.int().min(0).default(0).describe('a whole number: the first byte (default 0)'),
    length: z.int().min(1).max(MAX_VIEW_BYTES).optional().describe(`a whole number of bytes, at most (default ${DEFAULT_READ_BYTES})`),
    encoding: z.enum(['utf8', 'base64']).default('utf8').describe('"utf8" for text (default), or "base64" for the very bytes'),
  }),
  output: z.strictObject({
    operation: z.string(),
    ...CHANGED,
    size: z.int().describe('bytes of the whole file'),
    encoding: z.string(),
    content: z.string().describe('untrusted data'),
    bytes: z.int().describe('of the file, that the content stands for'),
    truncated: z.boolean().describe('the file goes on'),
    next_offset: z.int().nullable().describe('to go on from; null: this is its end'),
    invalid_utf8: z.boolean().describe('U+FFFD stands for bytes that are no UTF-8; base64 has them'),
    altered: z.boolean().describe('control sequences are left out, hidden characters are escapes; base64 has what is there'),
  }),
  annotations: LOOKS,
  call: async ({ path, offset, length, encoding }, context, call) => {
    const { result, data } = await callFiles(context, call, ({ max_file_read_bytes: max }) => {
      if (length !== undefined && length > max) throw new AppError('resource_limit', `length: at most ${max} bytes may be read at once`)
      return { method: 'fs.read', path, offset, length: length ?? Math.min(DEFAULT_READ_BYTES, max) }
    })
    const { size, mtime, mtime_ms, truncated } = result as Part
    const { content, bytes, invalid_utf8, altered } = partOf(data, result as Part, encoding, offset)
    const next_offset = truncated ? offset + bytes : null
    const about = { operation: 'read_file', path, mtime, mtime_ms, size, encoding }
    const answer = { ...about, content, bytes, truncated, next_offset, invalid_utf8, altered }
    return () => ({ result: answer, isError: false, foreign: [content] })
  },
})

export const listDirectoryTool: Tool = tool({
  name: 'list_directory',
  title: 'List a directory',
  description: 'Names, types and sizes of what stands in a directory, or in its whole tree. Links are entries and are not followed.',
  use: 'what stands in a directory?',
  input: z.strictObject({
    path: pathField('a directory below an allowed root (default: the first root)').default('.'),
    recursive: z.boolean().default(false).describe('true: its whole tree'),
    max_entries: MAX_LISTED_FIELD,
  }),
  output: z.strictObject({
    operation: z.string(),
    path: z.string(),
    entries: z.array(z.strictObject({ path: z.string(), type: FILE_TYPES, size: z.int().nullable(), mtime: z.string().nullable() })),
    truncated: z.boolean().describe('there are more, and these need not be the first'),
  }),
  annotations: LOOKS,
  call: async ({ path, recursive, max_entries }, context, call) => {
    const { result } = await callFiles(context, call, () => ({ method: 'fs.list', path, recursive, max_entries }))
    const { entries, truncated } = result as Result<'fs.list'>
    const told = entries.map((entry) => ({ path: shownLine(entry.path), type: entry.type, size: entry.size, mtime: entry.mtime }))
    const answer = { operation: 'list_directory', path, entries: told, truncated }
    return () => ({ result: answer, isError: false, foreign: told.map((entry) => entry.path) })
  },
})

export const globFilesTool: Tool = tool({
  name: 'glob_files',
  title: 'Find files by name',
  description: 'Paths that fit a pattern: * any characters of a name, ? one, [a-z] a set, {a,b} either, ** any directories or none.',
  use: 'which files have names of this form?',
  input: z.strictObject({
    pattern: z.string().min(1).max(1_024).describe('a pattern such as **/*.ts; a leading dot must be in it'),
    path: pathField('the directory to begin in (default: the first root)').default('.'),
    max_matches: MAX_LISTED_FIELD,
  }),
  output: z.strictObject({
    operation: z.string(),
    pattern: z.string(),
    path: z.string(),
    matches: z.array(z.string()),
    truncated: z.boolean().describe('there are more, and these need not be the first'),
  }),
  annotations: LOOKS,
  call: async ({ pattern, path, max_matches }, context, call) => {
    const { result } = await callFiles(context, call, () => ({ method: 'fs.glob', path, pattern, max_matches }))
    const { matches, truncated } = result as Result<'fs.glob'>
    const told = matches.map(shownLine)
    return () => ({ result: { operation: 'glob_files', pattern, path, matches: told, truncated }, isError: false, foreign: told })
  },
})

export const statFileTool: Tool = tool({
  name: 'stat_file',
  title: 'Is it there?',
  description:
    'Whether something stands at a path, and its type, size, time of change, mode and owner. Nothing there is an answer, and no error.',
  use: 'is it there, and when was it changed?',
  input: z.strictObject({ path: PATH_FIELD }),
  output: zodOf({ operation: text, ...RESULTS['fs.stat'] }),
  annotations: LOOKS,
  call: async ({ path }, context, call) => {
    const { result } = await callFiles(context, call, () => ({ method: 'fs.stat', path }))
    const { symlink_target, ...status } = result as Result<'fs.stat'>
    const link = symlink_target === null ? null : shownLine(symlink_target)
    const answer = { operation: 'stat_file', ...status, path, symlink_target: link }
    return () => ({ result: answer, isError: false, foreign: link === null ? [] : [link] })
  },
})
