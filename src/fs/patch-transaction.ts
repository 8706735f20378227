import { type BigIntStats, lstatSync, renameSync, unlinkSync } from 'node:fs'
import { unlink } from 'node:fs/promises'
import { AppError, errorText } from '../base/errors.ts'
import { timeBehind } from '../base/mtime.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import { type Made, beneath, removeMade } from './beneath.ts'
import { exclusively } from './exclusive.ts'
import { type OpenHandle, type FoundFile, isAt, requireSame } from './open-file.ts'
import { overwrite } from './overwrite.ts'
import { namingPath, pathOf, systemError, tooMuch } from './refusals.ts'
import { type Staged, requireWritable, stage, stageMove, temporaryName } from './staged.ts'

/** Directories that one patch creates. Each stays open until the end. */
export const MAX_PATCH_DIRECTORIES = 256

/** Old and new content, which are the same object if unchanged. */
export interface Content {
  readonly old: Uint8Array
  readonly new: Uint8Array
}

export type Effect =
  /** Creates a file that must not exist, and missing directories. */
  | { readonly kind: 'put'; readonly permit: FilePermit; readonly data: Uint8Array }
  /** Adds a name to the found file. Removing the old name is a separate effect. */
  | { readonly kind: 'move'; readonly permit: FilePermit; readonly content: Content; readonly at: FoundFile }
  | { readonly kind: 'replace'; readonly permit: FilePermit; readonly content: Content; readonly at: FoundFile }
  | { readonly kind: 'remove'; readonly permit: FilePermit; readonly at: FoundFile }

/** A completed step that can be undone. */
interface Done {
  readonly path: string
  undo(): void | Promise<void>
  /** Called when the patch is applied. */
  settle?(): Promise<void>
}

interface Step {
  readonly permit: FilePermit
  perform(): Done | Promise<Done>
}

/** All steps of a patch. Renames come first, because they can be undone exactly. Then contents. */
class Plan {
  readonly #places = new DisposableStack()
  readonly #made: Made[] = []
  readonly #staged: Staged[] = []
  readonly #names: Step[] = []
  readonly #contents: Step[] = []
  /** Overwritten files. */
  readonly #written: BigIntStats[] = []

  async prepare(effect: Effect): Promise<void> {
    const { permit } = effect
    const path = pathOf(permit)
    if (effect.kind === 'remove') this.#names.push({ permit, perform: () => remove(effect.at, path) })
    else if (effect.kind === 'replace') await this.#write(permit, effect.at, effect.content)
    else {
      const { directory, name, found, made } = this.#places.use(await beneath(permit, { followLast: false, makeParents: true }))
      this.#made.push(...made)
      if (this.#made.length > MAX_PATCH_DIRECTORIES) throw tooMuch('patch_directories', this.#made.length, MAX_PATCH_DIRECTORIES)
      if (directory === null || found !== null) throw systemError('EEXIST')
      if (effect.kind === 'put') this.#put(permit, { directory, name }, await stage(directory, effect.data, null))
      else await this.#move(permit, { directory, name, found: effect.at.found }, effect)
    }
  }

  /** Performs all steps. If one fails, undoes the others in reverse order and names in the error the effects that could not be undone. */
  async carryOut(signal: AbortSignal): Promise<void> {
    const done: Done[] = []
    await exclusively(
      this.#written,
      async () => {
        try {
          for (const { permit, perform } of [...this.#names, ...this.#contents]) done.push(await namingPath(permit, async () => perform()))
        } catch (error) {
          throw withLeftChanged(error, await undoAll(done))
        }
      },
      signal,
    )
    // The patch is applied, so a failure to remove a backup does not matter.
    for (const { settle } of done) await settle?.().catch(() => {})
  }

  async withdraw(): Promise<void> {
    for (const staged of this.#staged) await staged.discard()
    await removeMade(this.#made)
  }

  release(): void {
    this.#places.dispose()
  }

  #put(permit: FilePermit, at: { readonly directory: OpenHandle; readonly name: string }, staged: Staged): void {
    this.#staged.push(staged)
    this.#names.push({ permit, perform: async () => put(at, staged, pathOf(permit)) })
  }

  /** Moves the file itself. On another file system, creates a new one. */
  async #move(permit: FilePermit, to: FoundFile, { at, content }: Extract<Effect, { kind: 'move' }>): Promise<void> {
    await requireWritable(at.found)
    const same = await stageMove(to.directory, at)
    this.#put(permit, to, same ?? (await stage(to.directory, content.new, at.found.info)))
    if (same !== null && content.new !== content.old) await this.#write(permit, to, content)
  }

  async #write(permit: FilePermit, at: FoundFile, content: Content): Promise<void> {
    await requireWritable(at.found)
    this.#written.push(at.found.info)
    this.#contents.push({ permit, perform: async () => replace(at, content, pathOf(permit)) })
  }
}

const put = async ({ directory, name }: { directory: OpenHandle; name: string }, staged: Staged, path: string): Promise<Done> => {
  await staged.create(name)
  return {
    path,
    undo: () => {
      // With further names its content is not lost, so it may have changed.
      if (staged.info.nlink === 1n) requireSame(directory, name, staged.info, path)
      else if (!isAt(directory, name, staged.info)) throw systemError('ESTALE')
      unlinkSync(directory.at(name))
    },
  }
}

const replace = async (at: FoundFile, content: Content, path: string): Promise<Done> => {
  await timeBehind(at.found.info)
  const info = await overwrite(at, content.new, { path, old: content.old })
  const undo = async (): Promise<void> => {
    await timeBehind(info)
    await overwrite({ ...at, found: { ...at.found, info } }, content.old, { path, old: null })
  }
  return { path, undo }
}

const remove = ({ directory, name, found }: FoundFile, path: string): Done => {
  const backup = directory.at(temporaryName())
  requireSame(directory, name, found.info, path)
  renameSync(directory.at(name), backup)
  return {
    path,
    undo: () => {
      if (lstatSync(directory.at(name), { throwIfNoEntry: false })) throw systemError('EEXIST')
      renameSync(backup, directory.at(name))
    },
    settle: () => unlink(backup),
  }
}

const undoAll = async (done: readonly Done[]): Promise<string[]> => {
  const left: string[] = []
  for (const { path, undo } of done.toReversed()) {
    try {
      await undo()
    } catch {
      left.push(path)
    }
  }
  return left
}

/** Adds paths to `data.left_changed` of an error. */
export const withLeftChanged = (error: unknown, left: readonly string[]): unknown => {
  if (left.length === 0 || !(error instanceof AppError)) return error
  const all = [...((error.data['left_changed'] as string[] | undefined) ?? []), ...left]
  return new AppError(error.code, `${errorText(error)}; not restored: ${all.join(', ')}`, {
    cause: error,
    data: { ...error.data, left_changed: all },
  })
}

/**
 * Prepares all effects, then performs them in order. A failure undoes the completed ones. `data.left_changed` names the paths that could
 * not be undone. A crash in between leaves the completed ones. Throws the signal's reason before any change.
 */
export const carryOut = async (effects: readonly Effect[], signal: AbortSignal): Promise<void> => {
  const plan = new Plan()
  try {
    for (const effect of effects) await namingPath(effect.permit, () => plan.prepare(effect))
    await plan.carryOut(signal)
  } catch (error) {
    await plan.withdraw()
    throw error
  } finally {
    plan.release()
  }
}
