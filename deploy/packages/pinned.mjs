// Fetches npm packages that only the making of packages needs, or that are for another architecture. Their hashes must be those of this
// file or of the lockfile.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { ran } from './place.mjs'

export const BUN = '1.4.5'
export const POSTJECT = '1.0.0-alpha.6'

const INTEGRITY = {
  [`@oven/bun-linux-x64@${BUN}`]: 'sha512-IWX9BELoGHAUtMonkeSaNaZwXzRk+oDw6Mk+HBFXd3KHYIBNBsIGRupMZPcgNoDbJpLu6gAJjIoIVPZtt1aJ1g==',
  [`@oven/bun-linux-aarch64@${BUN}`]: 'sha512-4BXmsSKnjOrlGWqZV4x/oWa7AVoR+B6lCXddMzOAXBIm3t50eslg9wb66gmtW1AamEQ1l1CDvmmruysEhqOWMg==',
  [`postject@${POSTJECT}`]: 'sha512-b9Eb8h2eVqNE8edvKdwqkrY6O7kAwmI8kcnBv1NScolYJbo59XUF0noFq+lxbC1yN20bmC0WBEbDC5H/7ASb0A==',
}
const lock = JSON.parse(readFileSync(join(packageRoot, 'package-lock.json'), 'utf8')).packages

const CACHE = join(packageRoot, 'node_modules', '.cache', 'packages')

const fetched = async (spec, wanted) => {
  const into = `${join(CACHE, basename(spec))}.${process.pid}.tmp`
  mkdirSync(into, { recursive: true })
  try {
    await ran('npm', ['pack', '--silent', '--pack-destination', into, spec], { cwd: packageRoot })
    const tarball = join(into, readdirSync(into)[0])
    const integrity = `sha512-${createHash('sha512').update(readFileSync(tarball)).digest('base64')}`
    if (integrity !== wanted) throw new Error(`${spec} has the wrong hash: ${integrity} instead of ${wanted}`)
    await ran('tar', ['-xzf', tarball, '-C', into, '--no-same-owner', '--exclude=package/include'])
    rmSync(tarball)
    renameSync(join(into, 'package'), join(CACHE, basename(spec)))
  } finally {
    rmSync(into, { recursive: true, force: true })
  }
}

const fetches = new Map()

/** The directory of a package that has this hash. Needs the registry the first time. */
const fetchedOnce = async (spec, integrity) => {
  const path = join(CACHE, basename(spec))
  if (!existsSync(path)) {
    if (!fetches.has(spec)) fetches.set(spec, fetched(spec, integrity))
    await fetches.get(spec)
  }
  return path
}

/** The path of a file of a pinned package. */
export const pinnedFile = async (spec, file) => join(await fetchedOnce(spec, INTEGRITY[spec]), file)

/** The path of a package of the lockfile. It is installed, or fetched if it is for another architecture. */
const locked = async (name) => {
  const installed = join(packageRoot, 'node_modules', name)
  if (existsSync(join(installed, 'package.json'))) return installed
  const { version, integrity } = lock[`node_modules/${name}`]
  return fetchedOnce(`${name}@${version}`, integrity)
}

/** The compiled parts that the daemons of an architecture need, with their paths and their names for lists. */
export const pinnedRuntime = async (arch) => {
  const [runtime, terminals, calls] = [`node-linux-${arch}`, `@lydell/node-pty-linux-${arch}`, `@koromix/koffi-linux-${arch}`]
  const [node, pty, koffi] = [await locked(runtime), await locked(terminals), await locked(calls)]
  const parts = [runtime, '@lydell/node-pty', calls].map((name) => ({
    name,
    version: lock[`node_modules/${name}`].version,
    license: 'MIT',
  }))
  const file = `linux_${arch}/koffi.node`
  return {
    node: join(node, 'bin', 'node'),
    licence: join(node, 'LICENSE'),
    terminals: { name: terminals, path: pty },
    koffi: { name: `${calls}/${file}`, path: join(koffi, file) },
    parts,
  }
}
