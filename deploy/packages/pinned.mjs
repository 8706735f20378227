// Packages of npm that are only needed to make ours: fetched when asked for, and taken only if they are what is written here.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { ran } from './place.mjs'

export const BUN = '1.4.5'

const INTEGRITY = {
  [`@oven/bun-linux-x64@${BUN}`]: 'sha512-IWX9BELoGHAUtMonkeSaNaZwXzRk+oDw6Mk+HBFXd3KHYIBNBsIGRupMZPcgNoDbJpLu6gAJjIoIVPZtt1aJ1g==',
  [`@oven/bun-linux-aarch64@${BUN}`]: 'sha512-4BXmsSKnjOrlGWqZV4x/oWa7AVoR+B6lCXddMzOAXBIm3t50eslg9wb66gmtW1AamEQ1l1CDvmmruysEhqOWMg==',
}

const CACHE = join(packageRoot, 'node_modules', '.cache', 'packages')

const fetched = (spec) => {
  const into = `${join(CACHE, basename(spec))}.${process.pid}.tmp`
  mkdirSync(into, { recursive: true })
  try {
    ran('npm', ['pack', '--silent', '--pack-destination', into, spec], { cwd: packageRoot })
    const tarball = join(into, readdirSync(into)[0])
    const integrity = `sha512-${createHash('sha512').update(readFileSync(tarball)).digest('base64')}`
    if (integrity !== INTEGRITY[spec]) throw new Error(`${spec} is not what it was: ${integrity} instead of ${INTEGRITY[spec]}`)
    ran('tar', ['-xzf', tarball, '-C', into, '--no-same-owner'])
    rmSync(tarball)
    renameSync(join(into, 'package'), join(CACHE, basename(spec)))
  } finally {
    rmSync(into, { recursive: true, force: true })
  }
}

/** The path of a file of a pinned package. Needs the registry the first time. */
export const pinnedFile = (spec, file) => {
  const path = join(CACHE, basename(spec), file)
  if (!existsSync(path)) fetched(spec)
  return path
}
