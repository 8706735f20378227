import type { FileAccess, FilePermit } from '../policy/file-permit.ts'
import { beneath } from './beneath.ts'
import { decodeText, readWhole } from './content.ts'
import { MAX_EDIT_BYTES, MAX_PATCH_BYTES, MAX_PATCH_FILES } from './limits.ts'
import { carryOut, type Effect, type Standing } from './patch-effects.ts'
import { applyHunks } from './patch-hunks.ts'
import type { Hunk, PatchChange } from './patch-text.ts'
import { about, conflict, errnoOf, pathOf, requirePermit, requireRegular, systemError, tooMuch } from './refusals.ts'

/** Throws `forbidden_path` for a path that may not be written. */
export type PermitFor = (path: string, access: FileAccess) => FilePermit

/** Whole paths, in the order of the patch. */
export interface PatchResult {
  readonly added: string[]
  /** Changed in their place. */
  readonly updated: string[]
  readonly deleted: string[]
  readonly moved: { from: string; to: string }[]
}

/** A change with the permits for its paths. */
type Permitted = { readonly change: PatchChange; readonly permit: FilePermit; readonly target: FilePermit | null }

/**
 * Applies a patch: everything is read and fitted together in memory first, so that nothing is written when anything does
 * not fit; then all files change at once, and when one cannot, those before it are brought back. What is added or moved
 * to may not be there yet; its directories are made. A link at the end of a path is followed to what is updated, is
 * itself what is deleted, and is not moved. Throws `conflict` where text is not found (`data.line`: the hunk in the
 * patch), something is there or changed meanwhile, or a path is named twice; `resource_limit` above MAX_PATCH_FILES,
 * MAX_PATCH_BYTES or MAX_EDIT_BYTES; and what reading and writing throw. `announce` is told every path, all of them
 * permitted, before anything is done.
 */
export const applyPatch = async (
  changes: readonly PatchChange[],
  permitFor: PermitFor,
  announce: (paths: readonly string[]) => Promise<void>,
): Promise<PatchResult> => {
  if (changes.length > MAX_PATCH_FILES) throw tooMuch('patch_files', changes.length, MAX_PATCH_FILES)
  const permitted = changes.map((change) => permit(change, permitFor))
  const paths = permitted.flatMap(({ permit, target }) => (target === null ? [permit] : [permit, target])).map(pathOf)
  requireOnce(paths)
  await announce(paths)
  using places = new DisposableStack()
  const effects: Effect[] = []
  const memory = { bytes: 0 }
  for (const one of permitted) effects.push(...(await about(one.permit, () => plan(one, places, memory))))
  await carryOut(effects)
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

const requireOnce = (paths: readonly string[]): void => {
  const twice = paths.find((path, i) => paths.indexOf(path) !== i)
  if (twice !== undefined) throw conflict(twice, 'named_twice', 'the patch names it twice')
}

interface Memory {
  bytes: number
}

const account = (memory: Memory, data: Uint8Array): void => {
  memory.bytes += data.length
  if (memory.bytes > MAX_PATCH_BYTES) throw tooMuch('patch_bytes', memory.bytes, MAX_PATCH_BYTES)
}

const plan = async ({ change, permit, target }: Permitted, places: DisposableStack, memory: Memory): Promise<Effect[]> => {
  if (change.kind === 'delete') return [{ kind: 'remove', permit, at: await standingAt(permit, places, false) }]
  if (change.kind === 'add') {
    const data = Buffer.from(change.content)
    account(memory, data)
    await requireFree(permit)
    return [{ kind: 'put', permit, data, like: null }]
  }
  const at = await standingAt(permit, places, target === null)
  requireRegular(at.found.info, pathOf(permit))
  const old = await readWhole(at.found, 'edit_bytes', MAX_EDIT_BYTES)
  account(memory, old)
  const data = change.hunks.length === 0 ? old : patched(old, change.hunks, pathOf(permit))
  account(memory, data)
  if (target === null) return [{ kind: 'replace', permit, data, at }]
  await about(target, () => requireFree(target))
  return [
    { kind: 'put', permit: target, data, like: at.found },
    { kind: 'remove', permit, at },
  ]
}

const patched = (old: Uint8Array, hunks: readonly Hunk[], path: string): Buffer => {
  const result = applyHunks(decodeText(old, path), hunks)
  if ('unmatched' in result) {
    const { line } = result.unmatched
    throw conflict(path, 'no_match', `the change at line ${line} of the patch fits nowhere`, { line })
  }
  const data = Buffer.from(result.text)
  if (data.length > MAX_EDIT_BYTES) throw tooMuch('edit_bytes', data.length, MAX_EDIT_BYTES)
  return data
}

/** A file, or when it is not followed a link. */
const standingAt = async (permit: FilePermit, places: DisposableStack, followLast: boolean): Promise<Standing> => {
  const { directory, name, found } = places.use(await beneath(permit, { followLast }))
  if (found === null) throw systemError('ENOENT')
  if (directory === null) throw systemError('EISDIR')
  if (!found.info.isSymbolicLink()) requireRegular(found.info, pathOf(permit))
  return { directory, name, found }
}

/** Nothing stands there; its directory may be missing too. */
const requireFree = async (permit: FilePermit): Promise<void> => {
  try {
    using place = await beneath(permit, { followLast: false })
    if (place.found !== null) throw systemError('EEXIST')
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error
  }
}

const resultOf = (permitted: readonly Permitted[]): PatchResult => {
  const result: PatchResult = { added: [], updated: [], deleted: [], moved: [] }
  for (const { change, permit, target } of permitted) {
    const path = pathOf(permit)
    if (target !== null) result.moved.push({ from: path, to: pathOf(target) })
    else if (change.kind === 'add') result.added.push(path)
    else if (change.kind === 'delete') result.deleted.push(path)
    else result.updated.push(path)
  }
  return result
}
