import { isUtf8 } from 'node:buffer'
import { AppError, errnoOf } from '../base/errors.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { FileAccess, FilePermit } from '../policy/local/file-permit.ts'
import type { Result } from '../protocol/rexd/results.ts'
import { beneath } from './beneath.ts'
import { MAX_EDIT_BYTES, readWhole } from './content.ts'
import { exclusively } from './exclusive.ts'
import type { FoundFile } from './open-file.ts'
import { type Hunk, type PatchChange, applyHunks } from './patch-format.ts'
import { type Effect, carryOut } from './patch-transaction.ts'
import { conflict, namingPath, pathOf, requirePermit, requireRegular, systemError, tooMuch } from './refusals.ts'
import { Sequence } from './sequence.ts'

export const MAX_PATCH_FILES = 100
/** Bytes that one patch reads and writes, all in memory at once. */
export const MAX_PATCH_BYTES = 64 * 1024 * 1024
/** Lines of a patched file: each costs some hundred bytes and 0.1 µs. */
const MAX_PATCH_LINES = 1_000_000

/** Throws `forbidden_path` for a path that may not be written. */
export type PermitFor = (path: string, access: FileAccess) => FilePermit

export type PatchResult = Omit<Result<'fs.patch'>, 'path'>

type Permitted = { readonly change: PatchChange; readonly permit: FilePermit; readonly target: FilePermit | null }

/**
 * Applies a patch. First everything is read and matched in memory, so that nothing is written if anything does not fit. Then the files
 * change one after another; if one fails, the earlier ones are restored. Added files and move targets must not exist. Their directories are
 * created. A final link is followed for an update, is itself deleted by a delete, and is not moved. `announce` receives every permitted
 * path before anything changes. Throws `conflict` if text is not found (`data.line`: the hunk in the patch), a file exists or changed
 * meanwhile, or a file is named twice; `resource_limit` above any MAX_PATCH_… or MAX_EDIT_BYTES; errors of reading and writing; and the
 * signal's reason before anything changes.
 */
export const applyPatch = async (
  changes: readonly PatchChange[],
  permitFor: PermitFor,
  announce: (paths: readonly string[]) => Promise<void>,
  share: TimeSlice,
): Promise<PatchResult> => {
  if (changes.length > MAX_PATCH_FILES) throw tooMuch('patch_files', changes.length, MAX_PATCH_FILES)
  const permitted = changes.map((change) => permit(change, permitFor))
  const paths = permitted.flatMap(({ permit, target }) => (target === null ? [permit] : [permit, target])).map(pathOf)
  requireOnce(paths)
  await announce(paths)
  using places = new DisposableStack()
  const effects: Effect[] = []
  const planning: Planning = { places, share, bytes: 0 }
  for (const one of permitted) effects.push(...(await namingPath(one.permit, () => plan(one, planning))))
  requireOneNameEach(effects)
  share.signal.throwIfAborted()
  await carryOut(effects, share.signal)
  return resultOf(permitted)
}

const permit = (change: PatchChange, permitFor: PermitFor): Permitted => {
  const permit = permitFor(change.path, 'write')
  requirePermit(permit, 'write')
  const moveTo = change.kind === 'update' ? change.moveTo : null
  const target = moveTo === null ? null : permitFor(moveTo, 'write')
  if (target !== null) requirePermit(target, 'write')
  return { change, permit, target }
}

/** Throws `conflict` if a path occurs twice. */
export const requireOnce = (paths: readonly string[]): void => {
  const twice = paths.find((path, i) => paths.indexOf(path) !== i)
  if (twice !== undefined) throw conflict(twice, 'named_twice', 'the patch names it twice')
}

/** Two names of one file: each change fits alone, but not both. */
const requireOneNameEach = (effects: readonly Effect[]): void => {
  const seen = new Set<string>()
  for (const effect of effects) {
    if (effect.kind === 'put' || effect.kind === 'move') continue
    const { dev, ino } = effect.at.found.info
    if (seen.has(`${dev}:${ino}`)) throw conflict(pathOf(effect.permit), 'named_twice', 'the patch names it twice, by two names')
    seen.add(`${dev}:${ino}`)
  }
}

interface Planning {
  readonly places: DisposableStack
  readonly share: TimeSlice
  bytes: number
}

const account = (planning: Planning, data: Uint8Array): void => {
  planning.bytes += data.length
  if (planning.bytes > MAX_PATCH_BYTES) throw tooMuch('patch_bytes', planning.bytes, MAX_PATCH_BYTES)
}

const plan = async ({ change, permit, target }: Permitted, planning: Planning): Promise<Effect[]> => {
  if (change.kind === 'delete') return [{ kind: 'remove', permit, at: await existingAt(permit, planning, false) }]
  if (change.kind === 'add') {
    const data = Buffer.from(change.content)
    account(planning, data)
    await requireFree(permit)
    return [{ kind: 'put', permit, data }]
  }
  const at = await existingAt(permit, planning, target === null)
  requireRegular(at.found.info, pathOf(permit))
  const old = await readWhole(at.found, 'edit_bytes', MAX_EDIT_BYTES)
  account(planning, old)
  const data = change.hunks.length === 0 ? old : await patched(old, change.hunks, pathOf(permit), planning.share)
  account(planning, data)
  const content = { old, new: data }
  if (target === null) return [{ kind: 'replace', permit, content, at }]
  await namingPath(target, () => requireFree(target))
  return [
    { kind: 'move', permit: target, content, at },
    { kind: 'remove', permit, at },
  ]
}

const NEWLINE = new Sequence(Buffer.from('\n'))

/** Applies the changes of one file in memory. */
export const patched = async (old: Buffer, hunks: readonly Hunk[], path: string, share: TimeSlice): Promise<Buffer> => {
  if (!isUtf8(old)) throw new AppError('bad_request', `${path}: not UTF-8 text`, { data: { path } })
  let lines = 0
  await NEWLINE.each(old, 0, share, () => ++lines <= MAX_PATCH_LINES)
  if (lines > MAX_PATCH_LINES) throw tooMuch('patch_lines', lines, MAX_PATCH_LINES)
  const result = await applyHunks(old.toString(), hunks, share)
  if ('unmatched' in result) {
    const { line } = result.unmatched
    throw conflict(path, 'no_match', `the change at line ${line} of the patch does not match the file`, { line })
  }
  const data = Buffer.from(result.text)
  if (data.length > MAX_EDIT_BYTES) throw tooMuch('edit_bytes', data.length, MAX_EDIT_BYTES)
  return data
}

/** Finds a file. A final link itself if it is not followed. */
const existingAt = async (permit: FilePermit, { places, share }: Planning, followLast: boolean): Promise<FoundFile> => {
  const { directory, name, found } = places.use(await beneath(permit, { followLast }))
  if (found === null) throw systemError('ENOENT')
  if (directory === null) throw systemError('EISDIR')
  if (found.info.isSymbolicLink()) return { directory, name, found }
  requireRegular(found.info, pathOf(permit))
  // Waits for a change in progress. A later change is detected by its time.
  const info = await exclusively([found.info], async (infoOf) => infoOf(found), share.signal)
  return { directory, name, found: { ...found, info } }
}

/** Requires that nothing exists at the path. Its directory may be missing too. */
const requireFree = async (permit: FilePermit): Promise<void> => {
  try {
    using place = await beneath(permit, { followLast: false })
    if (place.found !== null) throw systemError('EEXIST')
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error
  }
}

const resultOf = (permitted: readonly Permitted[]): PatchResult => {
  const pathsOf = (kind: PatchChange['kind']): string[] =>
    permitted.filter(({ change, target }) => change.kind === kind && target === null).map(({ permit }) => pathOf(permit))
  const moved = permitted.flatMap(({ permit, target }) => (target === null ? [] : [{ from: pathOf(permit), to: pathOf(target) }]))
  return { added: pathsOf('add'), updated: pathsOf('update'), deleted: pathsOf('delete'), moved }
}
