import * as z from 'zod'
import { text } from '../../protocol/json-table.ts'
import { RESULTS, type Result } from '../../protocol/rexd-answers.ts'
import { MAX_FILE_CHUNK } from '../../protocol/rexd-limits.ts'
import { contentBytes } from '../content-bytes.ts'
import { zodOf } from '../zod-of.ts'
import { callFiles } from './file-call.ts'
import { CHANGED, CHANGES, MTIME_FIELD, PATH_FIELD, pathField, textField } from './file-fields.ts'
import { type Tool, tool } from './tool.ts'

export const writeFileTool: Tool = tool({
  name: 'write_file',
  title: 'Write a file',
  description: 'Makes a file, or with mode "replace" or "append" writes one that is there. To change a part of a file, use edit_file.',
  use: 'a file is to be made, or written anew.',
  input: z.strictObject({
    path: PATH_FIELD,
    content: textField('what is to be in the file'),
    encoding: z.enum(['utf8', 'base64']).default('utf8').describe('"utf8" (default), or "base64" where content stands for bytes'),
    mode: z
      .enum(['create', 'replace', 'append'])
      .default('create')
      .describe('"create" (default): nothing may be there yet; "replace": whatever was there goes; "append": behind what is there'),
    make_directories: z.boolean().default(false).describe('true: directories on the way are made'),
    expected_mtime: MTIME_FIELD,
  }),
  output: z.strictObject({ operation: z.string(), ...CHANGED, bytes_written: z.int(), created: z.boolean() }),
  annotations: CHANGES,
  call: async ({ path, content, encoding, mode, make_directories: mkdir_parents, expected_mtime = null }, context, call) => {
    const data = contentBytes(content, encoding, 'content', MAX_FILE_CHUNK)
    const how = { mode, mkdir_parents, atomic: false, expected_mtime, data }
    const { result } = await callFiles(context, call, () => ({ method: 'fs.write', path, ...how }))
    const { mtime, mtime_ms, bytes_written, created } = result as Result<'fs.write'>
    return () => ({ result: { operation: 'write_file', path, mtime, mtime_ms, bytes_written, created }, isError: false, foreign: [] })
  },
})

export const editFileTool: Tool = tool({
  name: 'edit_file',
  title: 'Change a part of a file',
  description: 'Puts a text in the place of another in a UTF-8 file. old_string must stand in it exactly once, or replace_all be true.',
  use: 'a part of one file is to be changed.',
  input: z.strictObject({
    path: PATH_FIELD,
    old_string: textField('the text as it stands in the file; empty stands for the whole file'),
    new_string: textField('what is to stand there'),
    replace_all: z.boolean().default(false).describe('true: wherever old_string stands'),
    expected_mtime: MTIME_FIELD,
  }),
  output: z.strictObject({ operation: z.string(), ...CHANGED, bytes_written: z.int(), replacements: z.int(), created: z.boolean() }),
  annotations: CHANGES,
  call: async ({ path, old_string, new_string, replace_all, expected_mtime = null }, context, call) => {
    const [from, to] = [textBytes(old_string, 'old_string'), textBytes(new_string, 'new_string')]
    const change = { old_string: from, new_string: to, replace_all, expected_mtime }
    const { result } = await callFiles(context, call, () => ({ method: 'fs.edit', path, ...change }))
    const { mtime, mtime_ms, bytes_written, replacements, created } = result as Result<'fs.edit'>
    const answer = { operation: 'edit_file', path, mtime, mtime_ms, bytes_written, replacements, created }
    return () => ({ result: answer, isError: false, foreign: [] })
  },
})

export const applyPatchTool: Tool = tool({
  name: 'apply_patch',
  title: 'Change several files',
  description:
    'Applies a patch to several files, all or nothing: "*** Begin Patch", then "*** Add File: p" with lines "+…", "*** Delete File: p", or "*** Update File: p" (and "*** Move to: q") with "@@" and lines that begin with " ", "-" or "+", then "*** End Patch".',
  use: 'several places or files are to be changed together.',
  input: z.strictObject({
    patch: textField('the patch'),
    path: pathField('the directory that its relative paths begin in (default: the first root)').default('.'),
  }),
  output: zodOf({ operation: text, ...RESULTS['fs.patch'] }),
  annotations: CHANGES,
  call: async ({ patch, path }, context, call) => {
    const patch_text = textBytes(patch, 'patch')
    const { result } = await callFiles(context, call, () => ({ method: 'fs.patch', path, patch_text }))
    const { added, updated, deleted, moved } = result as Result<'fs.patch'>
    return () => ({ result: { operation: 'apply_patch', path, added, updated, deleted, moved }, isError: false, foreign: [] })
  },
})

const textBytes = (text: string, field: string): Uint8Array => contentBytes(text, 'utf8', field, MAX_FILE_CHUNK)
