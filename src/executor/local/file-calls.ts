import { join } from 'node:path'
import { AppError, isAppError } from '../../base/errors.ts'
import type { TimeSlice } from '../../base/time-slices.ts'
import type { FileAnswer, FileCall } from '../../executor-api/local.ts'
import { type PermitFor, applyPatch } from '../../fs/apply-patch.ts'
import { editFile } from '../../fs/edit-file.ts'
import { globFiles, splitPattern } from '../../fs/glob.ts'
import { filesProblem } from '../../fs/open-file.ts'
import { parsePatch } from '../../fs/patch-format.ts'
import { listDirectory, readFile, statPath } from '../../fs/read.ts'
import { writeFile } from '../../fs/write-file.ts'
import { authorizeTargetFile } from '../../policy/local/authorize-target.ts'
import { authorizeFile } from '../../policy/local/authorize.ts'
import type { FileAccess, FilePermit } from '../../policy/local/file-permit.ts'
import { MAX_JOURNALLED_PATTERN } from '../../protocol/limits/daemon.ts'
import { FILE_CALL_SLOTS, FILE_LOOK_PLACES, MAX_LISTED } from '../../protocol/limits/rexd.ts'
import { NO_BYTES } from '../../protocol/wire/schema.ts'
import { type LocalEngine, type LocalSession, errorOf } from './engine.ts'
import { TargetFileCalls, utf8Of } from './target-files.ts'
import { patchTarget } from './target-patch.ts'

const CHANGES: readonly FileCall['method'][] = ['fs.write', 'fs.edit', 'fs.patch']

const slotsOf = ({ method }: FileCall): number => (method === 'fs.read' || method === 'fs.stat' ? FILE_LOOK_PLACES : FILE_CALL_SLOTS)

const contentOf = (call: FileCall): number | null => {
  if (call.method === 'fs.write') return call.data.length
  if (call.method === 'fs.edit') return call.new_string.length
  return call.method === 'fs.patch' ? call.patch_text.length : null
}

/** Fields of the audit log line for a directory listing. */
const lookedFor = (call: FileCall): { readonly pattern?: string; readonly recursive?: boolean } => {
  if (call.method === 'fs.glob') return { pattern: call.pattern.slice(0, MAX_JOURNALLED_PATTERN) }
  return call.method === 'fs.list' ? { recursive: call.recursive } : {}
}

interface Asking {
  readonly permitFor: PermitFor
  readonly announce: (paths: readonly string[]) => Promise<void>
  readonly share: TimeSlice
}

interface TargetAsking extends Pick<Asking, 'announce' | 'share'> {
  readonly access: FileAccess
  readonly record: (path: string, bytes: number | null) => Promise<void>
}

/** Splits an absolute pattern into its leading directory and the rest. */
const placed = (call: FileCall): FileCall =>
  call.method === 'fs.glob' && call.pattern.startsWith('/') ? { ...call, ...splitPattern(call.pattern) } : call

/**
 * Reads or changes files within the rights of the session. The line of the audit log, if there is one, is written first. That of a change
 * is also synced first.
 */
export const answerFileCall = async (
  engine: LocalEngine,
  session: LocalSession,
  asked: FileCall,
  signal: AbortSignal | null,
): Promise<FileAnswer> => {
  const { key, rights } = session
  const call = placed(asked)
  const access: FileAccess = CHANGES.includes(call.method) ? 'write' : 'read'
  const permitFor = (path: string, wanted: FileAccess): FilePermit => {
    const problem = filesProblem()
    if (problem !== null) throw new AppError('unsupported_capability', problem, { data: { capability: 'fs' } })
    const verdict = authorizeFile({ path, access: wanted }, rights)
    if (verdict.kind === 'refused') throw errorOf(verdict)
    return verdict.permit
  }
  const event = access === 'write' ? 'file_write' : 'file_read'
  const record = async (path: string, bytes: number | null): Promise<void> =>
    engine.services.journal.record({ event, ...key, method: call.method, path, bytes, ...lookedFor(call) })
  // The files of a patch are known only after it is parsed.
  const announce = async (paths: readonly string[]): Promise<void> =>
    void (await Promise.all(paths.map(async (path) => record(path, null))))
  try {
    const work = async (share: TimeSlice): Promise<FileAnswer> => {
      if (rights.target !== null) return await performOnTarget(engine, session, call, { access, record, announce, share })
      const permit = permitFor(call.path, access)
      await record(join(permit.root.path, ...permit.names), contentOf(call))
      share.signal.throwIfAborted()
      return perform(call, permit, { permitFor, announce, share })
    }
    return await session.aboutFiles(slotsOf(call), work, signal)
  } catch (error) {
    // A line without a following `refused` line means that the call was done.
    if (!isAppError(error, 'journal_unavailable')) await engine.refused(key, { method: call.method, argv: null }, error)
    throw error
  }
}

/** Asks the session's target, whose ACL decides. */
const performOnTarget = async (
  engine: LocalEngine,
  { rights }: LocalSession,
  call: FileCall,
  { access, record, announce, share }: TargetAsking,
): Promise<FileAnswer> => {
  const { targets } = engine.services
  if (rights.target === null || targets === null) throw new AppError('unsupported_capability', 'this program has no mesh')
  const pathOf = (path: string): string => {
    const verdict = authorizeTargetFile({ path, access }, rights)
    if (verdict.kind === 'refused') throw errorOf(verdict)
    return verdict.path
  }
  const files = new TargetFileCalls({ files: targets.files(rights.target), share }, { maxRead: rights.limits.max_file_read_bytes })
  if (call.method === 'fs.patch') {
    const text = utf8Of(call.patch_text, 'patch_text')
    return plain(await patchTarget({ text, pathOf: (path) => pathOf(belowBase(call.path, path)), announce }, { files, share }))
  }
  const path = pathOf(call.path)
  await record(path, contentOf(call))
  share.signal.throwIfAborted()
  return files.perform(call, path)
}

const perform = async (call: FileCall, permit: FilePermit, { permitFor, announce, share }: Asking): Promise<FileAnswer> => {
  switch (call.method) {
    case 'fs.read': {
      const { data, ...result } = await readFile(
        permit,
        { offset: call.offset, ...(call.length === null ? {} : { length: call.length }) },
        share.signal,
      )
      return { result, data }
    }
    case 'fs.write':
      return plain(await writeFile(permit, call, share.signal))
    case 'fs.list': {
      const maxEntries = Math.min(call.max_entries ?? MAX_LISTED, MAX_LISTED)
      return plain(await listDirectory(permit, { recursive: call.recursive, maxEntries }, share))
    }
    case 'fs.glob': {
      const maxMatches = Math.min(call.max_matches ?? MAX_LISTED, MAX_LISTED)
      return plain(await globFiles(permit, { pattern: call.pattern, maxMatches }, share))
    }
    case 'fs.stat':
      return plain(await statPath(permit))
    case 'fs.edit': {
      const [old_string, new_string] = [utf8Of(call.old_string, 'old_string'), utf8Of(call.new_string, 'new_string')]
      return plain(await editFile(permit, { ...call, old_string, new_string }, share))
    }
    case 'fs.patch': {
      const base = call.path
      const from = (path: string): string => belowBase(base, path)
      const changes = parsePatch(utf8Of(call.patch_text, 'patch_text'))
      return plain(await applyPatch(changes, (path, access) => permitFor(from(path), access), announce, share))
    }
  }
}

/** A path of a patch, which may start at the base directory. */
const belowBase = (base: string, path: string): string => (path.startsWith('/') ? path : `${base}/${path}`)

const plain = (result: object): FileAnswer => ({ result, data: NO_BYTES })
