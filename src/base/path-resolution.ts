import { type Stats, lstatSync, readlinkSync, realpathSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import { isMissing } from './errors.ts'

/** The kernel's limit on links in one path (path_resolution(7)). */
export const MAX_PATH_LINKS = 40

/** One entry that the kernel looks up while it resolves a path. */
export interface PathStep {
  /** A path without symbolic links, except that its last name may be one. */
  readonly path: string
  /** Undefined if nothing exists at `path`, which then is the last step. */
  readonly info: Stats | undefined
}

/**
 * Resolves a path as the kernel does (path_resolution(7)) and yields each directory and symbolic link on the way, from `/` to
 * what stands at its end; `..` is taken from where a link has led. Throws what lstat(2) and readlink(2) do, and ELOOP above
 * `MAX_PATH_LINKS`.
 */
export function* resolveSteps(path: string): Generator<PathStep, void, undefined> {
  const ahead = namesOf(isAbsolute(path) ? path : `${process.cwd()}/${path}`)
  let links = 0
  let at = '/'
  for (let name: string | undefined = '/'; name !== undefined; name = ahead.shift()) {
    const place = join(at, name)
    const info = standingAt(place)
    yield { path: place, info }
    if (info?.isSymbolicLink()) {
      if (++links > MAX_PATH_LINKS) throw Object.assign(new Error(`${path} goes through too many links`), { code: 'ELOOP' })
      const target = readlinkSync(place)
      ahead.unshift(...namesOf(target))
      if (isAbsolute(target)) at = '/'
    } else if (info?.isDirectory()) at = place
    else return
  }
}

/** The names of a path, without empty ones and `.`. */
export const namesOf = (path: string): string[] => path.split('/').filter((name) => name !== '' && name !== '.')

const standingAt = (path: string): Stats | undefined => {
  try {
    return lstatSync(path)
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/**
 * The path that the kernel resolves to; `..` applies after links. `realpathSync` without `.native` applies `..` to the text, so it could
 * name another file than open(2) opens.
 */
export const realPath = (path: string): string => realpathSync.native(path)
