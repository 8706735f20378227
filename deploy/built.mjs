// Whether dist/ holds what a build would make of what stands here: whoever builds before each task builds once.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from './runtime.mjs'

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

/** Of what a build reads, of what it made, and of who builds: another byte of any of it is another digest. */
const digestOf = (root) => {
  const digest = createHash('sha256').update(process.version)
  // The packages that are made of dist/ are none of a build's.
  const paths = [...MADE_OF, 'dist'].flatMap((name) => filesOf(root, name)).filter((path) => !path.startsWith(join('dist', 'packages')))
  for (const path of paths) {
    const bytes = readFileSync(join(root, path))
    digest.update(JSON.stringify([path, bytes.length])).update(bytes)
  }
  return digest.digest('hex')
}

/** False where any of it cannot be read, too, and where rexd could not be compiled: then a build says why, or mends it. */
export const isBuilt = (root = packageRoot) => {
  try {
    return existsSync(join(root, 'dist', 'rexd.cache')) && readFileSync(join(root, NOTE), 'latin1') === digestOf(root)
  } catch {
    return false
  }
}

/** Builds, and notes of what. */
export const noteBuild = async (build, root = packageRoot) => {
  rmSync(join(root, NOTE), { force: true })
  const made = await build()
  mkdirSync(join(root, 'node_modules', '.cache'), { recursive: true })
  writeFileSync(join(root, NOTE), digestOf(root))
  return made
}
