import * as z from 'zod'
import { FILE_ANSWERS } from '../../protocol/api/files.ts'
import { MTIME, isPlainPath } from '../../protocol/file-command.ts'
import { zodOf } from '../zod-of.ts'
import { agentName, flag, hexId } from './schemas.ts'

/** Parameters and answers of the routes for files on an agent. */

export const filesParams = z.strictObject({ agent: agentName })

const filePath = z
  .string()
  .refine(isPlainPath, 'expected an absolute path without "." and "..", and without "/" at its end')
  .describe('an absolute path on the agent')
const uploadId = z
  .string()
  .regex(/^[0-9a-f]{32}$/)
  .describe('32 lower-case hex characters that name an upload')
const fileVersion = z
  .string()
  .regex(/^[0-9a-f.-]{1,128}$/)
  .describe('the version of a file, from its status')
const fileMode = z
  .string()
  .regex(/^[0-7]{4}$/)
  .describe('permission bits in octal, such as 0644')
const wholeNumber = z
  .string()
  .regex(/^[0-9]{1,15}$/)
  .describe('a whole number of at least 0')
  .transform(Number)

/** At most one of `list`, `stat`, `digest` and `upload`. Without them, the bytes of the file are returned. */
export const filesQuery = z.strictObject({
  path: filePath,
  stat: flag.optional().describe('return the status of the file'),
  list: flag.optional().describe('list a directory'),
  recursive: flag.optional().describe('list the directories below it too'),
  digest: flag.optional().describe('return the SHA-256 of the file'),
  version: fileVersion.optional().describe('fail if the file has another version'),
  upload: uploadId.optional().describe('return how many bytes of this upload the agent has'),
})
export type FilesQuery = z.infer<typeof filesQuery>

export const fileWriteQuery = z.strictObject({
  path: filePath,
  mode: fileMode.optional(),
  mtime_ms: wholeNumber.optional().describe('time of the last change, in milliseconds since 1970'),
  upload: uploadId.optional().describe('ID of the upload, needed to continue it later; default: a random ID'),
  offset: wholeNumber.optional().describe('bytes of this upload that the agent has; the body is the rest; default 0'),
  sha256: hexId.optional().describe('SHA-256 of the whole file; required with an offset'),
  expect: z
    .union([z.literal('absent'), fileVersion])
    .optional()
    .describe('fail unless the file does not exist (absent), or has this version; default: no condition'),
  parents: flag.optional().describe('create missing directories, if the ACL of the agent allows it; default true'),
})
export type FileWriteQuery = z.infer<typeof fileWriteQuery>

export const fileAppendQuery = z.strictObject({
  path: filePath,
  mtime: z.string().regex(MTIME).describe('the modification time that the file must have, from its status'),
})
export type FileAppendQuery = z.infer<typeof fileAppendQuery>

export const directoryRequest = z.strictObject({ path: filePath, mode: fileMode.nullish() })

export const fileDigest = zodOf(FILE_ANSWERS.digest).meta({ id: 'FileDigest' })
export const writtenFile = zodOf(FILE_ANSWERS.written).meta({ id: 'WrittenFile' })
export const appendedFile = zodOf(FILE_ANSWERS.appended).meta({ id: 'FileChange' })
export const filesAnswer = z.union([
  zodOf(FILE_ANSWERS.status).meta({ id: 'FileFacts' }),
  zodOf(FILE_ANSWERS.list).meta({ id: 'FileList' }),
  fileDigest,
  zodOf(FILE_ANSWERS.upload).meta({ id: 'UploadState' }),
])
export const directoryAnswer = zodOf(FILE_ANSWERS.made)
