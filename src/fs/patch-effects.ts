import { linkSync, lstatSync, renameSync, unlinkSync } from 'node:fs'
import { rmdir, unlink } from 'node:fs/promises'

import { AppError, errorText } from '../base/errors.ts'
import type { FilePermit } from '../policy/file-permit.ts'
import { beneath, type Made } from './beneath.ts'
import type { Found, Held } from './held.ts'
import { about, pathOf, refusalOf, systemError } from './refusals.ts'
import { requireSame, stage, temporaryName, type Staged } from './staged.ts'

/** What was found at a name, held. */
export interface Standing {
  readonly directory: Held
  readonly name: string
  readonly found: Found
}

/** One name that a patch changes, and everything that is needed for it. */
export type Effect =
  /** Nothing may stand there; missing directories are made. It takes after `like`. */
  | { readonly kind: 'put'; readonly permit: FilePermit; readonly data: Uint8Array; readonly like: Found | null }
  | { readonly kind: 'replace'; readonly permit: FilePermit; readonly data: Uint8Array; readonly at: Standing }
  | { readonly kind: 'remove'; readonly permit: FilePermit; readonly at: Standing }

/** Done, and not yet for good. */
interface Done {
  readonly path: string
  undo(): void
  /** Nothing is to be undone any more. */
  settle(): Promise<void>
}

/** One effect, ready to be done at once. */
interface Ready {
  readonly permit: FilePermit
  readonly staged: Staged | null
  perform(): Done
}

const prepare = async (effect: Effect, places: DisposableStack, allMade: Made[]): Promise<Ready> => {
  const { permit } = effect
  const path = pathOf(permit)
  if (effect.kind === 'remove') return { permit, staged: null, perform: () => remove(effect.at, path) }
  if (effect.kind === 'replace') {
    const staged = await stage(effect.at.directory, effect.data, effect.at.found)
    return { permit, staged, perform: () => replace(effect.at, staged, path) }
  }
  const { directory, name, found, made } = places.use(await beneath(permit, { followLast: false, makeParents: true }))
  allMade.push(...made)
  if (directory === null || found !== null) throw systemError('EEXIST')
  const staged = await stage(directory, effect.data, effect.like)
  return { permit, staged, perform: () => put(directory, name, staged, path) }
}

const put = (directory: Held, name: string, staged: Staged, path: string): Done => {
  staged.createNow(name)
  return {
    path,
    undo: () => {
      requireSame(directory, name, staged.info, path)
      unlinkSync(directory.at(name))
    },
    settle: () => staged.discard(),
  }
}

/** The old file keeps a name until all is done, so that it can come back as it was. */
const replace = ({ directory, name, found }: Standing, staged: Staged, path: string): Done => {
  const backup = directory.at(temporaryName())
  requireSame(directory, name, found.info, path)
  linkSync(directory.at(name), backup)
  try {
    staged.replaceNow(name)
  } catch (error) {
    unlinkSync(backup)
    throw error
  }
  return {
    path,
    undo: () => {
      requireSame(directory, name, staged.info, path)
      renameSync(backup, directory.at(name))
    },
    settle: () => unlink(backup),
  }
}

const remove = ({ directory, name, found }: Standing, path: string): Done => {
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

/** All at once, so that no other operation of ours sees a part. */
const performAll = (ready: readonly Ready[], done: Done[]): void => {
  for (const { permit, perform } of ready) {
    try {
      done.push(perform())
    } catch (error) {
      throw refusalOf(error, pathOf(permit))
    }
  }
}

/** The last first. Answers the paths that could not be brought back. */
const undoAll = (done: readonly Done[]): string[] =>
  done.toReversed().flatMap(({ path, undo }) => {
    try {
      undo()
      return []
    } catch {
      return [path]
    }
  })

const withdraw = async (ready: readonly Ready[], made: readonly Made[]): Promise<void> => {
  for (const { staged } of ready) await staged?.discard()
  // Not when somebody put something there meanwhile.
  for (const { parent, name } of made.toReversed()) await rmdir(parent.at(name)).catch(() => {})
}

const tellLeft = (error: unknown, left: readonly string[]): unknown =>
  left.length === 0 || !(error instanceof AppError)
    ? error
    : new AppError(error.code, `${errorText(error)}; not brought back: ${left.join(', ')}`, {
        cause: error,
        data: { ...error.data, left_changed: left },
      })

/**
 * Writes everything beside its place, then gives all of it its names at once. When something fails, what was done is
 * undone; `data.left_changed` names what could not be.
 */
export const carryOut = async (effects: readonly Effect[]): Promise<void> => {
  using places = new DisposableStack()
  const ready: Ready[] = []
  const done: Done[] = []
  const made: Made[] = []
  try {
    for (const effect of effects) ready.push(await about(effect.permit, () => prepare(effect, places, made)))
    performAll(ready, done)
  } catch (error) {
    const left = undoAll(done)
    await withdraw(ready, made)
    throw tellLeft(error, left)
  }
  // The patch is applied: a name that cannot be taken away now is no failure of it.
  for (const { settle } of done) await settle().catch(() => {})
}
