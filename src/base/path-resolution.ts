import { type Stats, lstatSync, readlinkSync, realpathSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import { isMissing } from './errors.ts'

/** The kernel's own bound on links in one path (path_resolution(7)). */
export const MAX_PATH_LINKS = 40

/** One entry that the kernel looks up while it resolves a path. */
export interface PathStep {
  /** Without symbolic links, except that its last name may be one. */
  readonly path: string
  /** Undefined where nothing stands at `path`; it is the last then. */
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

/** Empty names and `.` lead nowhere. */
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
 * Where a path leads, as the kernel says: `..` is taken from where a link has led. What `realpathSync` itself answers takes `..` from
 * the text, and so names another file than the one that is opened.
 */
export const realPath = (path: string): string => realpathSync.native(path)
