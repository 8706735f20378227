import { lstatSync, readlinkSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { attempt } from '../../base/errors.ts'
import { MAX_SANDBOX_LINKS } from '../../protocol/sandbox-limits.ts'
import type { Permit, SandboxGrant } from '../permit.ts'

/** The path outside of what `path` means to a process whose root is `root`: links are followed as it would. Throws the system's error. */
export const seenFrom = (root: string, path: string, placeOf = (inside: string): string => join(root, inside)): string => {
  let rest = posix.normalize(path).split('/').filter(Boolean)
  let at = '/'
  for (let links = 0; rest.length > 0;) {
    const [name = '', ...further] = rest
    rest = further
    if (name === '..') {
      at = dirname(at)
      continue
    }
    const next = join(at, name)
    if (!lstatSync(placeOf(next)).isSymbolicLink()) {
      at = next
      continue
    }
    links += 1
    if (links > MAX_SANDBOX_LINKS) throw new Error(`${path} leads through too many links`)
    const target = readlinkSync(placeOf(next))
    if (target.startsWith('/')) at = '/'
    rest = [...target.split('/').filter((part) => part !== '' && part !== '.'), ...rest]
  }
  return placeOf(at)
}

type Shown = Pick<SandboxGrant, 'image' | 'writable' | 'readable'>

/** The path of this host of what `path` means in a sandbox: what is shown of the host at its own path, all else in the image. Throws the system's error. */
export const seenIn = ({ image, writable, readable }: Shown, path: string): string => {
  if (image === null) return path
  const shown = [writable, ...readable]
  return seenFrom(image.root, path, (inside) => {
    if (shown.some((one) => inside === one || inside.startsWith(`${one}/`))) return inside
    const own = join(image.root, inside)
    // Parents of what is shown are made in the sandbox, where the image has none, or no directory.
    const isParent = shown.some((one) => one.startsWith(`${inside}/`))
    return isParent && attempt(() => lstatSync(own).isDirectory()) !== true ? image.root : own
  })
}

/** Where the program of a run stands on this host. Throws the system's error. */
export const programPlace = ({ executable, sandbox }: Pick<Permit, 'executable' | 'sandbox'>): string =>
  sandbox === null ? executable.path : seenIn(sandbox, executable.path)
