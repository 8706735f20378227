import { NEVER } from '../../../base/abort.ts'
import { isAppError } from '../../../base/errors.ts'
import { counted } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { FileApi } from '../../../clients/file-api.ts'
import type { FileEntryJson, FileListJson } from '../../../protocol/api/files.ts'
import type { CliContext } from '../context.ts'
import { FileFailures, failureKindOf } from '../copy/file-failure.ts'
import { type RemotePlace, listedPlace } from '../copy/places.ts'
import { printProblem } from '../failure.ts'
import { EXIT_NOT_RUN } from '../outcome.ts'
import { printJson } from '../print.ts'

const TYPE_LETTERS: Readonly<Record<FileEntryJson['type'], string>> = { file: '-', directory: 'd', symlink: 'l', other: '?' }

/** Such as `drwxr-xr-x`. */
const modeText = ({ type, mode }: FileEntryJson): string => {
  const bits = [...'rwxrwxrwx'].map((letter, at) => ((mode >> (8 - at)) & 1 ? letter : '-'))
  return `${TYPE_LETTERS[type]}${bits.join('')}`
}

const timeText = (ms: number): string => {
  const time = new Date(ms)
  return Number.isNaN(time.getTime()) ? '?' : time.toISOString().slice(0, 19).replace('T', ' ')
}

const nameText = ({ path, type }: FileEntryJson): string => `${shownLine(path)}${type === 'directory' ? '/' : ''}`

const linesOf = (entries: readonly FileEntryJson[], long: boolean): string[] => {
  if (!long) return entries.map(nameText)
  const width = entries.reduce((most, { size }) => Math.max(most, String(size).length), 0)
  return entries.map((entry) => [modeText(entry), String(entry.size).padStart(width), timeText(entry.mtime_ms), nameText(entry)].join('  '))
}

/** The entries of a directory, or the one of a file. */
const listingOf = async (files: FileApi, { path }: RemotePlace, recursive: boolean, signal: AbortSignal): Promise<FileListJson> => {
  try {
    return await files.list(path, recursive, signal)
  } catch (error) {
    if (!isAppError(error, 'file_error') || error.data['code'] !== 'ENOTDIR') throw error
    const { version: _version, ...status } = await files.stat(path, signal)
    return { entries: [{ path, ...status }], left_out: 0 }
  }
}

/** `x0x ls HOST:/PATH`. Times are in UTC. */
export const runLs = async (context: CliContext, line: CommandLine): Promise<number> => {
  const place = listedPlace(line.words[0] ?? '')
  const { host, path } = place
  try {
    const files = new FileApi(context, { agent: host })
    const { entries, left_out } = await listingOf(files, place, line.has('recursive'), NEVER)
    const sorted = entries.toSorted((a, b) => (a.path < b.path ? -1 : 1))
    if (context.json) await printJson(context, { ok: true, entries: sorted, left_out })
    else if (sorted.length > 0) await write(context.stdout, `${linesOf(sorted, line.has('long')).join('\n')}\n`)
    if (left_out === 0) return 0
    await printProblem(context, [`${host}:${path}: the agent left ${counted(left_out, 'entry', 'entries')} out`])
    return 1
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    await new FileFailures({ context }, { host }).print([`${host}:${path}`], error, {})
    return failureKindOf(error) === 'file' ? 1 : EXIT_NOT_RUN
  }
}
