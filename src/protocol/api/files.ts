import { MTIME } from '../file-command.ts'
import { type Sent, count, flag, list, matching, number, oneOf, record, text, yes } from '../json-table.ts'
import type { RunEventJson } from './run-events.ts'

/** Answers of the routes for files on an agent. Names of files are foreign texts. */

/** Bytes of a file that one run of a copy carries. At 100 MB/s it takes 160 ms, so its round trips cost little. */
export const FILE_CHUNK_BYTES = 16 * 1024 * 1024

const KIND = oneOf(['file', 'directory', 'symlink', 'other'])

/** Fields of a file that `@stat` and `@list` report. */
const FACTS = {
  type: KIND,
  size: count,
  mode: count.says('permission bits'),
  mtime_ms: number.says('milliseconds since 1970'),
  mtime: matching(MTIME, 'a time').says('the same time in ISO 8601 with nine decimals'),
}

export const FILE_STATUS = {
  ...FACTS,
  version: matching(/^[0-9a-f.-]{1,128}$/, 'a version').says('version of the file; it differs after each change'),
}
export type FileStatusJson = Sent<typeof FILE_STATUS>

export const FILE_ENTRY = { path: text.says('path relative to the listed directory (untrusted text)'), ...FACTS }
export type FileEntryJson = Sent<typeof FILE_ENTRY>

export const FILE_LIST_END = { left_out: count.says('entries that did not fit, or whose names are not UTF-8') }
export const FILE_LIST = { entries: list(record(FILE_ENTRY)), ...FILE_LIST_END }
export type FileListJson = Sent<typeof FILE_LIST>

export const FILE_DIGEST = { size: count, sha256: matching(/^[0-9a-f]{64}$/, 'a SHA-256') }
export type FileDigestJson = Sent<typeof FILE_DIGEST>

/** The answer to a change of a file. */
export const FILE_CHANGE = { mtime: FACTS.mtime, mtime_ms: FACTS.mtime_ms, created: flag.says('the file did not exist before') }
export type FileChangeJson = Sent<typeof FILE_CHANGE>

export const WRITTEN_FILE = { ...FILE_DIGEST, ...FILE_CHANGE }
export type WrittenFileJson = Sent<typeof WRITTEN_FILE>

export const UPLOAD_STATE = { received: count.says('bytes that the target has received') }
export type UploadStateJson = Sent<typeof UPLOAD_STATE>

/** The same as answers of the API. */
export const FILE_ANSWERS = {
  status: { ok: yes, ...FILE_STATUS },
  list: { ok: yes, ...FILE_LIST },
  digest: { ok: yes, ...FILE_DIGEST },
  upload: { ok: yes, ...UPLOAD_STATE },
  written: { ok: yes, ...WRITTEN_FILE },
  appended: { ok: yes, ...FILE_CHANGE },
  made: { ok: yes, path: text },
}

/** Header with the permission bits of a file in octal. */
export const FILE_MODE_HEADER = 'x0x-file-mode'
/** Header with the time of the last change in milliseconds since 1970. */
export const FILE_TIME_HEADER = 'x0x-file-mtime-ms'

/**
 * Header of an interim answer (103) while a request waits for an approval, as JSON. It comes again at each change. The final answer comes
 * after the approval.
 */
export const FILE_WAITING_HEADER = 'x0x-waiting'
export type FileWaitingJson = Extract<RunEventJson, { type: 'waiting_for_approval' }>

/** True for a path below a directory: no `.`, `..`, double slashes or NUL in it. */
export const isPathBelow = (path: string): boolean =>
  path !== '' && !path.includes('\0') && path.split('/').every((part) => part !== '' && part !== '.' && part !== '..')
