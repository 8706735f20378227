import { AppError, isAppError } from '../../base/errors.ts'
import type { TimeSlice } from '../../base/time-slices.ts'
import { MAX_PATCH_BYTES, MAX_PATCH_FILES, type PatchResult, patched, requireOnce } from '../../fs/apply-patch.ts'
import { type PatchChange, parsePatch } from '../../fs/patch-format.ts'
import { withLeftChanged } from '../../fs/patch-transaction.ts'
import { conflict, tooMuch } from '../../fs/refusals.ts'
import type { WrittenFileJson } from '../../protocol/api/files.ts'
import type { TargetFileCalls } from './target-files.ts'

/** A file of a patch with its permitted path. */
interface PlannedChange {
  readonly path: string
  /** Null for an added file. */
  readonly old: { readonly data: Uint8Array; readonly version: string } | null
  readonly data: Uint8Array
}

export interface TargetPatchInit {
  readonly text: string
  /** The permitted absolute path. Throws `bad_request`. */
  readonly pathOf: (path: string) => string
  /** Receives every path before anything changes. */
  readonly announce: (paths: readonly string[]) => Promise<void>
}

type AddOrUpdate = Exclude<PatchChange, { kind: 'delete' }>

const isPossible = (change: PatchChange): change is AddOrUpdate =>
  change.kind !== 'delete' && !(change.kind === 'update' && change.moveTo !== null)

/**
 * Applies a patch to files of another agent. Everything is read and matched first. Then the files change one after another. If one fails,
 * the earlier updates are undone, and `data.left_changed` names the files that are not as they were. A patch cannot delete or move files
 * there, because an ACL cannot allow it.
 */
export const patchTarget = async (
  { text, pathOf, announce }: TargetPatchInit,
  { files, share }: { readonly files: TargetFileCalls; readonly share: TimeSlice },
): Promise<PatchResult> => {
  const changes = parsePatch(text)
  if (changes.length > MAX_PATCH_FILES) throw tooMuch('patch_files', changes.length, MAX_PATCH_FILES)
  if (!changes.every(isPossible))
    throw new AppError('unsupported_capability', 'patch: it may add and update files of a target, and not delete or move them', {
      data: { capability: 'fs.write' },
    })
  const paths = changes.map(({ path }) => pathOf(path))
  requireOnce(paths)
  await announce(paths)
  const planned: PlannedChange[] = []
  let bytes = 0
  for (const [index, change] of changes.entries()) {
    const path = paths[index]!
    const one = await files.naming(path, async () => plan(change, path, { files, share }))
    bytes += one.data.length + (one.old?.data.length ?? 0)
    if (bytes > MAX_PATCH_BYTES) throw tooMuch('patch_bytes', bytes, MAX_PATCH_BYTES)
    planned.push(one)
  }
  await carryOut(planned, files)
  const pathsOf = (kind: PatchChange['kind']): string[] => paths.filter((_path, index) => changes[index]!.kind === kind)
  return { added: pathsOf('add'), updated: pathsOf('update'), deleted: [], moved: [] }
}

const plan = async (
  change: AddOrUpdate,
  path: string,
  { files, share }: { readonly files: TargetFileCalls; readonly share: TimeSlice },
): Promise<PlannedChange> => {
  if (change.kind === 'add') {
    if ((await files.status(path)) !== null) throw conflict(path, 'exists', 'it exists already')
    return { path, old: null, data: Buffer.from(change.content) }
  }
  const { data: old, status } = await files.whole(path)
  const data = await patched(old, change.hunks, path, share)
  return { path, old: { data: old, version: status.version }, data }
}

const carryOut = async (planned: readonly PlannedChange[], files: TargetFileCalls): Promise<void> => {
  const done: { readonly change: PlannedChange; readonly written: WrittenFileJson }[] = []
  try {
    for (const change of planned) {
      const { path, data, old } = change
      const how = { expect: old?.version ?? 'absent', parents: old === null }
      done.push({ change, written: await files.naming(path, async () => files.put(path, data, how)) })
    }
  } catch (error) {
    // The change that failed may have been made if its answer was lost.
    const left = isAppError(error) && error.data['incomplete'] === true ? [planned[done.length]!.path] : []
    for (const { change, written } of done.toReversed()) if (!(await isUndone(change, written, files))) left.push(change.path)
    throw withLeftChanged(error, left)
  }
}

/** Undoes an update, if the file is as this patch has left it. */
const isUndone = async ({ path, old }: PlannedChange, { mtime }: WrittenFileJson, files: TargetFileCalls): Promise<boolean> => {
  try {
    const status = old === null ? null : await files.status(path)
    if (old === null || status?.mtime !== mtime) return false
    await files.put(path, old.data, { expect: status.version, parents: false })
    return true
  } catch {
    return false
  }
}
