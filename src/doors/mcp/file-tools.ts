import { isUtf8 } from 'node:buffer'
import * as z from 'zod'
import { within } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { TerminalFilter } from '../../base/terminal-text.ts'
import { shown, shownLine } from '../../base/visible-text.ts'
import type { FileAnswer, FileCall } from '../../executor-api/local.ts'
import { text } from '../../protocol/json-table.ts'
import { MAX_FILE_CHUNK, MAX_PATH } from '../../protocol/limits/rexd.ts'
import { DEFAULT_LISTED, DEFAULT_READ_BYTES, MAX_TOOL_LISTED, MAX_VIEW_BYTES } from '../../protocol/limits/tools.ts'
import { MAX_NAME } from '../../protocol/limits/wire.ts'
import { RESULTS, type Result, type SessionGrant } from '../../protocol/rexd/results.ts'
import { toBase64, unfinished } from '../../protocol/text.ts'
import { contentBytes } from '../content-bytes.ts'
import { zodOf } from '../zod-of.ts'
import { type McpTool, type ToolCall, type ToolContext, tool } from './tool.ts'

/** Reading changes nothing. */
export const LOOKS = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false }
/** A change can destroy data, and repeating it is not the same as doing it once. */
export const CHANGES = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false }

export const TARGET_FIELD = z
  .string()
  .min(1)
  .max(MAX_NAME)
  .optional()
  .describe('the name or ID of the mesh agent that has the files, whose paths are absolute (default: this host)')

export const pathField = (text: string) => z.string().min(1).max(MAX_PATH).describe(text)
export const PATH_FIELD = pathField('a path below an allowed root, absolute or from the first root; on a target, an absolute path')

export const MAX_LISTED_FIELD = z
  .int()
  .min(1)
  .max(MAX_TOOL_LISTED)
  .default(DEFAULT_LISTED)
  .describe(`a whole number: maximum entries in the answer (default ${DEFAULT_LISTED}, at most ${MAX_TOOL_LISTED})`)

export const MTIME_FIELD = z
  .string()
  .min(1)
  .max(64)
  .optional()
  .describe('the mtime of an earlier answer: if the file has changed since then, the call changes nothing')

export const textField = (text: string) => z.string().max(MAX_FILE_CHUNK).describe(text)

/** Path and time of the last change. */
export const CHANGED = { path: z.string(), mtime: z.string(), mtime_ms: z.int() }

/** Part of a file as text for a model. */
export interface FileText {
  readonly text: string
  /** Whether U+FFFD replaces bytes that are not UTF-8. */
  readonly invalidUtf8: boolean
  /** Whether terminal control sequences were removed or hidden characters escaped. */
  readonly altered: boolean
}

const filtered = (text: string): string => {
  const filter = new TerminalFilter()
  return shown(filter.push(text) + filter.end())
}

/** Cleans text as for the output of programs, but keeps CR LF, because an edit must quote the file exactly. */
export const fileText = (bytes: Uint8Array): FileText => {
  const decoded = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
  const text = decoded.split('\r\n').map(filtered).join('\r\n')
  return { text, invalidUtf8: !isUtf8(bytes), altered: text !== decoded }
}

/** Advice for the client, by `data.reason` or code of a refusal. */
const REMEDIES: Readonly<Record<string, string>> = {
  exists: 'write_file with mode "replace" replaces its content, with "append" adds to its end',
  changed: 'read it again with read_file, and continue with the new content and mtime',
  no_match: 'read it again with read_file, and give the old text exactly as in the file, including blanks and line ends',
  ambiguous: 'include more of the surrounding lines, or set replace_all to true',
  file_not_found: 'list_directory and glob_files show existing paths; write_file with make_directories creates missing directories',
}

const rootsOf = (roots: unknown): string | null => (Array.isArray(roots) ? `the allowed roots are ${roots.join(', ')}` : null)

const remedyOf = ({ code, data }: AppError): string | null => {
  if (code === 'forbidden_path') return rootsOf(data['allowed_roots'])
  return REMEDIES[String(data['reason'])] ?? REMEDIES[code] ?? null
}

/** A refusal of the executor with the name of the wrong argument (`path` by default) and advice. */
export const fileRefusal = (error: unknown): unknown => {
  if (!isAppError(error)) return error
  const { code, message, data } = error
  const named = /^[a-z_]+: /.test(message) ? message : `path: ${message}`
  const remedy = remedyOf(error)
  return new AppError(code, shown(remedy === null ? named : `${named}; ${remedy}`), { cause: error, data: { ...data } })
}

/** How long an abandoned call may take to report whether it has begun to change something. */
const GIVEN_UP_MS = 1_000

/** A call of the executor without the session that it is made in. */
type SessionlessCall = FileCall extends infer C ? (C extends FileCall ? Omit<C, 'session'> : never) : never

/**
 * Calls the executor about files, in the session of this client for this host or a target. Throws refusals with the argument and advice. Throws `timeout` on
 * cancellation and at the time limit. The call then changes nothing unless it had already begun.
 */
export const callFiles = async (
  { sessions, executor, clock, answerWithinMs }: ToolContext,
  { signal, target }: Pick<ToolCall, 'signal'> & { readonly target?: string | undefined },
  callOf: (limits: SessionGrant['limits']) => SessionlessCall,
): Promise<FileAnswer> => {
  const given = new AbortController()
  const giveUp = (why: string): void => given.abort(new AppError('timeout', `path: ${why}, and nothing was changed`))
  const cancel = (): void => giveUp('the call was cancelled')
  if (signal.aborted) cancel()
  signal.addEventListener('abort', cancel, { once: true })
  const work = sessions.use(target ?? null, async ({ id, grant }) => executor.file({ ...callOf(grant.limits), session: id }, given.signal))
  try {
    const answer = await within(clock, answerWithinMs, work)
    if (answer !== null) return answer
    giveUp(`not done within ${answerWithinMs} ms`)
    const late = await within(clock, GIVEN_UP_MS, work)
    if (late !== null) return late
  } catch (error) {
    throw fileRefusal(error)
  }
  work.catch(() => undefined)
  const begun = 'a started change may still complete or be undone; check with stat_file and read_file'
  throw new AppError('timeout', `path: the file system did not answer within ${answerWithinMs} ms; ${begun}`)
}

const FILE_TYPES = z.enum(['file', 'dir', 'symlink', 'other'])

type Part = Pick<Result<'fs.read'>, 'size' | 'mtime' | 'mtime_ms' | 'truncated'>

/** Bytes of a file in the requested encoding. Text ends with a whole character if the file continues. */
const partOf = (data: Uint8Array, { truncated }: Part, encoding: 'utf8' | 'base64', offset: number) => {
  if (encoding === 'base64') return { content: toBase64(data), bytes: data.length, invalid_utf8: false, altered: false }
  const whole = truncated ? data.subarray(0, data.length - unfinished(data)) : data
  // An empty answer would make the client repeat the request forever.
  if (whole.length === 0 && data.length > 0)
    throw new AppError('bad_request', `length: the character at offset ${offset} is longer than ${data.length} bytes`)
  const { text: content, invalidUtf8, altered } = fileText(whole)
  return { content, bytes: whole.length, invalid_utf8: invalidUtf8, altered }
}

export const readFileTool: McpTool = tool({
  name: 'read_file',
  title: 'Read a file',
  description: `Reads a file, or a part of it from a byte offset. If the file continues, next_offset says where.`,
  use: 'read a file.',
  input: z.strictObject({
    path: PATH_FIELD,
    offset: z.int().min(0).default(0).describe('a whole number: offset of the first byte (default 0)'),
    length: z.int().min(1).max(MAX_VIEW_BYTES).optional().describe(`a whole number: maximum bytes (default ${DEFAULT_READ_BYTES})`),
    encoding: z.enum(['utf8', 'base64']).default('utf8').describe('"utf8" for text (default), or "base64" for exact bytes'),
    target: TARGET_FIELD,
  }),
  output: z.strictObject({
    operation: z.string(),
    ...CHANGED,
    size: z.int().describe('size of the whole file in bytes'),
    encoding: z.string(),
    content: z.string().describe('untrusted data'),
    bytes: z.int().describe('number of bytes of the file that content represents'),
    truncated: z.boolean().describe('the file continues after content'),
    next_offset: z.int().nullable().describe('offset at which to continue; null at the end of the file'),
    invalid_utf8: z.boolean().describe('U+FFFD replaces bytes that are not UTF-8; use base64 for exact bytes'),
    altered: z.boolean().describe('control sequences were removed and hidden characters escaped; use base64 for exact bytes'),
  }),
  annotations: LOOKS,
  call: async ({ path, offset, length, encoding, target }, context, { signal }) => {
    const { result, data } = await callFiles(context, { signal, target }, ({ max_file_read_bytes: max }) => {
      if (length !== undefined && length > max) throw new AppError('resource_limit', `length: at most ${max} bytes can be read at once`)
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

export const listDirectoryTool: McpTool = tool({
  name: 'list_directory',
  title: 'List a directory',
  description: 'Lists names, types and sizes in a directory or its whole tree. Links are not followed.',
  use: 'list a directory.',
  input: z.strictObject({
    path: pathField('a directory below an allowed root (default: the first root)').default('.'),
    recursive: z.boolean().default(false).describe('true: the whole tree (default false)'),
    max_entries: MAX_LISTED_FIELD,
    target: TARGET_FIELD,
  }),
  output: z.strictObject({
    operation: z.string(),
    path: z.string(),
    entries: z.array(z.strictObject({ path: z.string(), type: FILE_TYPES, size: z.int().nullable(), mtime: z.string().nullable() })),
    truncated: z.boolean().describe('there are more entries, and these are not necessarily the first'),
  }),
  annotations: LOOKS,
  call: async ({ path, recursive, max_entries, target }, context, { signal }) => {
    const { result } = await callFiles(context, { signal, target }, () => ({ method: 'fs.list', path, recursive, max_entries }))
    const { entries, truncated } = result as Result<'fs.list'>
    const told = entries.map((entry) => ({ path: shownLine(entry.path), type: entry.type, size: entry.size, mtime: entry.mtime }))
    const answer = { operation: 'list_directory', path, entries: told, truncated }
    return () => ({ result: answer, isError: false, foreign: told.map((entry) => entry.path) })
  },
})

export const globFilesTool: McpTool = tool({
  name: 'glob_files',
  title: 'Find files by name',
  description:
    'Finds paths by a pattern: * any characters of a name, ? one, [a-z] a set, {a,b} alternatives, ** any number of directories.',
  use: 'find files by a name pattern.',
  input: z.strictObject({
    pattern: z.string().min(1).max(1_024).describe('a pattern such as **/*.ts; a leading dot of a name must be written'),
    path: pathField('the directory to search (default: the first root)').default('.'),
    max_matches: MAX_LISTED_FIELD,
    target: TARGET_FIELD,
  }),
  output: z.strictObject({
    operation: z.string(),
    pattern: z.string(),
    path: z.string(),
    matches: z.array(z.string()),
    truncated: z.boolean().describe('there are more entries, and these are not necessarily the first'),
  }),
  annotations: LOOKS,
  call: async ({ pattern, path, max_matches, target }, context, { signal }) => {
    const { result } = await callFiles(context, { signal, target }, () => ({ method: 'fs.glob', path, pattern, max_matches }))
    const { matches, truncated } = result as Result<'fs.glob'>
    const told = matches.map(shownLine)
    return () => ({ result: { operation: 'glob_files', pattern, path, matches: told, truncated }, isError: false, foreign: told })
  },
})

export const statFileTool: McpTool = tool({
  name: 'stat_file',
  title: 'Check a path',
  description: 'Reports whether a path exists, with type, size, modification time, mode and owner. A missing path is not an error.',
  use: 'check whether a path exists, and its type, size and time.',
  input: z.strictObject({
    path: PATH_FIELD,
    target: TARGET_FIELD,
  }),
  output: zodOf({ operation: text, ...RESULTS['fs.stat'] }),
  annotations: LOOKS,
  call: async ({ path, target }, context, { signal }) => {
    const { result } = await callFiles(context, { signal, target }, () => ({ method: 'fs.stat', path }))
    const { symlink_target, ...status } = result as Result<'fs.stat'>
    const link = symlink_target === null ? null : shownLine(symlink_target)
    const answer = { operation: 'stat_file', ...status, path, symlink_target: link }
    return () => ({ result: answer, isError: false, foreign: link === null ? [] : [link] })
  },
})

export const writeFileTool: McpTool = tool({
  name: 'write_file',
  title: 'Write a file',
  description: 'Creates a file; with mode "replace" or "append" it changes an existing one. To change a part of a file, use edit_file.',
  use: 'create a file, or replace its content.',
  input: z.strictObject({
    path: PATH_FIELD,
    content: textField('the content of the file'),
    encoding: z.enum(['utf8', 'base64']).default('utf8').describe('"utf8" (default), or "base64" if content encodes bytes'),
    mode: z
      .enum(['create', 'replace', 'append'])
      .default('create')
      .describe(
        '"create" (default): the file must not exist; "replace": with or without an existing file; "append": after existing content',
      ),
    make_directories: z.boolean().default(false).describe('true: create missing directories (default false)'),
    expected_mtime: MTIME_FIELD,
    target: TARGET_FIELD,
  }),
  output: z.strictObject({ operation: z.string(), ...CHANGED, bytes_written: z.int(), created: z.boolean() }),
  annotations: CHANGES,
  call: async ({ path, content, encoding, mode, make_directories: mkdir_parents, expected_mtime = null, target }, context, { signal }) => {
    const data = contentBytes(content, encoding, 'content', MAX_FILE_CHUNK)
    const how = { mode, mkdir_parents, atomic: false, expected_mtime, data }
    const { result } = await callFiles(context, { signal, target }, () => ({ method: 'fs.write', path, ...how }))
    const { mtime, mtime_ms, bytes_written, created } = result as Result<'fs.write'>
    return () => ({ result: { operation: 'write_file', path, mtime, mtime_ms, bytes_written, created }, isError: false, foreign: [] })
  },
})

export const editFileTool: McpTool = tool({
  name: 'edit_file',
  title: 'Change a part of a file',
  description: 'Replaces a text in a UTF-8 file. old_string must occur exactly once, unless replace_all is true.',
  use: 'change a part of one file.',
  input: z.strictObject({
    path: PATH_FIELD,
    old_string: textField('the exact text in the file; empty means the whole file'),
    new_string: textField('the new text'),
    replace_all: z.boolean().default(false).describe('true: replace every occurrence of old_string (default false)'),
    expected_mtime: MTIME_FIELD,
    target: TARGET_FIELD,
  }),
  output: z.strictObject({ operation: z.string(), ...CHANGED, bytes_written: z.int(), replacements: z.int(), created: z.boolean() }),
  annotations: CHANGES,
  call: async ({ path, old_string, new_string, replace_all, expected_mtime = null, target }, context, { signal }) => {
    const [from, to] = [textBytes(old_string, 'old_string'), textBytes(new_string, 'new_string')]
    const change = { old_string: from, new_string: to, replace_all, expected_mtime }
    const { result } = await callFiles(context, { signal, target }, () => ({ method: 'fs.edit', path, ...change }))
    const { mtime, mtime_ms, bytes_written, replacements, created } = result as Result<'fs.edit'>
    const answer = { operation: 'edit_file', path, mtime, mtime_ms, bytes_written, replacements, created }
    return () => ({ result: answer, isError: false, foreign: [] })
  },
})

export const applyPatchTool: McpTool = tool({
  name: 'apply_patch',
  title: 'Change several files',
  description:
    'Applies a patch to several files, all or nothing: "*** Begin Patch", then "*** Add File: p" with lines "+…", "*** Delete File: p", or "*** Update File: p" (and "*** Move to: q") with "@@" and lines that begin with " ", "-" or "+", then "*** End Patch".',
  use: 'change several places or files together.',
  input: z.strictObject({
    patch: textField('the patch'),
    path: pathField('the directory of its relative paths (default: the first root)').default('.'),
    target: TARGET_FIELD,
  }),
  output: zodOf({ operation: text, ...RESULTS['fs.patch'] }),
  annotations: CHANGES,
  call: async ({ patch, path, target }, context, { signal }) => {
    const patch_text = textBytes(patch, 'patch')
    const { result } = await callFiles(context, { signal, target }, () => ({ method: 'fs.patch', path, patch_text }))
    const { added, updated, deleted, moved } = result as Result<'fs.patch'>
    return () => ({ result: { operation: 'apply_patch', path, added, updated, deleted, moved }, isError: false, foreign: [] })
  },
})

const textBytes = (text: string, field: string): Uint8Array => contentBytes(text, 'utf8', field, MAX_FILE_CHUNK)
