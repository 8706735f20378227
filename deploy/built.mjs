// Whether dist/ holds what a build would make of what stands here: whoever builds before each task builds once.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'

import { findRuntime, packageRoot } from './runtime.mjs'

/** Compiled code that a build makes where it can. */
export const CACHES = ['rexd.cache', 'x0xd.cache', 'x0xd-network.cache']

/** What bundles and declarations are made of, and the packages that are installed. */
const MADE_OF = ['src', 'deploy', 'package.json', 'package-lock.json', 'tsconfig.json', 'node_modules/.package-lock.json']
/** Below node_modules: nothing of it is packed, and a copy of the packages brings it along. */
const NOTE = 'node_modules/.cache/built'

const filesOf = (root, name) => {
  if (!statSync(join(root, name), { throwIfNoEntry: false })?.isDirectory()) return [name]
  return readdirSync(join(root, name), { recursive: true })
    .map((below) => join(name, below))
    .filter((path) => statSync(join(root, path)).isFile())
    .sort()
}

/** The runtime for which rexd is compiled: of the packages, or another. */
const runtime = () => {
  const path = findRuntime() ?? process.execPath
  return path.startsWith(join(packageRoot, 'node_modules')) ? relative(packageRoot, path) : `${path} ${process.version}`
}

/** Of what a build reads, of what it made, and of who builds: another byte of any of it is another digest. */
const digestOf = (root) => {
  const digest = createHash('sha256').update(runtime())
  // The packages that are made of it are none of a build's, and may come and go meanwhile.
  const made = readdirSync(join(root, 'dist')).filter((name) => name !== 'packages')
  const paths = [...MADE_OF, ...made.sort().map((name) => join('dist', name))].flatMap((name) => filesOf(root, name))
  for (const path of paths) {
    const bytes = readFileSync(join(root, path))
    digest.update(JSON.stringify([path, bytes.length])).update(bytes)
  }
  return digest.digest('hex')
}

/** What the build of what stands here answered. Undefined where that is another, or cannot be read, or a cache is missing: then a build says why, or mends it. */
export const noted = (root = packageRoot) => {
  try {
    const { digest, made } = JSON.parse(readFileSync(join(root, NOTE), 'utf8'))
    return CACHES.every((name) => existsSync(join(root, 'dist', name))) && digest === digestOf(root) ? made : undefined
  } catch {
    return undefined
  }
}

/** Builds, and notes of what, and the answer. */
export const noteBuild = async (build, root = packageRoot) => {
  rmSync(join(root, NOTE), { force: true })
  const made = await build()
  mkdirSync(join(root, 'node_modules', '.cache'), { recursive: true })
  writeFileSync(join(root, NOTE), JSON.stringify({ digest: digestOf(root), made }))
  return made
}
