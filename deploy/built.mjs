// Finds out whether dist/ is up to date, so that tasks that start with a build do not build it again.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'

import { findRuntime, packageRoot } from './runtime.mjs'

/** Files of compiled code. A build makes them if it can. */
export const CACHES = ['rexd.cache', 'x0xd.cache', 'x0xd-network.cache']

/** Inputs of a build: the sources and the installed packages. */
const MADE_OF = ['src', 'deploy', 'package.json', 'package-lock.json', 'tsconfig.json', 'node_modules/.package-lock.json']
/** File in node_modules, so it is not packed, and a copy of the packages contains it. */
const NOTE = 'node_modules/.cache/built'

const filesOf = (root, name) => {
  if (!statSync(join(root, name), { throwIfNoEntry: false })?.isDirectory()) return [name]
  return readdirSync(join(root, name), { recursive: true })
    .map((below) => join(name, below))
    .filter((path) => statSync(join(root, path)).isFile())
    .sort()
}

/** The runtime that compiles rexd, from the packages or another one. */
const runtime = () => {
  const path = findRuntime() ?? process.execPath
  return path.startsWith(join(packageRoot, 'node_modules')) ? relative(packageRoot, path) : `${path} ${process.version}`
}

/** Digest of the inputs and outputs of a build and of the runtime. It changes if any byte of them changes. */
const digestOf = (root) => {
  const digest = createHash('sha256').update(runtime())
  // dist/packages is made from a build and can change at any time.
  const made = readdirSync(join(root, 'dist')).filter((name) => name !== 'packages')
  const paths = [...MADE_OF, ...made.sort().map((name) => join('dist', name))].flatMap((name) => filesOf(root, name))
  for (const path of paths) {
    const bytes = readFileSync(join(root, path))
    digest.update(JSON.stringify([path, bytes.length])).update(bytes)
  }
  return digest.digest('hex')
}

/**
 * Returns the noted result of the last build. Returns undefined if dist/ is out of date, the note cannot be read, or a cache is missing.
 * The caller then builds, which repairs dist/ or reports the error.
 */
export const noted = (root = packageRoot) => {
  try {
    const { digest, made } = JSON.parse(readFileSync(join(root, NOTE), 'utf8'))
    return CACHES.every((name) => existsSync(join(root, 'dist', name))) && digest === digestOf(root) ? made : undefined
  } catch {
    return undefined
  }
}

/** Builds, and notes the digest and the result. */
export const noteBuild = async (build, root = packageRoot) => {
  rmSync(join(root, NOTE), { force: true })
  const made = await build()
  mkdirSync(join(root, 'node_modules', '.cache'), { recursive: true })
  writeFileSync(join(root, NOTE), JSON.stringify({ digest: digestOf(root), made }))
  return made
}
