import { lstatSync, readlinkSync, type Stats } from 'node:fs'
import { isAbsolute, join } from 'node:path'

import { isMissing } from './errors.ts'

/** The kernel's own bound on links in one path (path_resolution(7)). */
export const MAX_PATH_LINKS = 40

/** One thing that the system meets on the way to a path. */
export interface WayPoint {
  /** With no link in it before its last name. */
  readonly path: string
  /** Undefined: nothing stands there, and the way ends. */
  readonly info: Stats | undefined
}

/**
 * Goes to a path as the system does: from the root directory over each directory and link, a `..` from where a link has led,
 * to what stands at its end. Throws what the system says of what may not be looked at, ELOOP where links lead on for ever.
 */
export function* wayTo(path: string): Generator<WayPoint, void, undefined> {
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

const namesOf = (path: string): string[] => path.split('/').filter((name) => name !== '' && name !== '.')

const standingAt = (path: string): Stats | undefined => {
  try {
    return lstatSync(path)
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}
