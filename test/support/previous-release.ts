import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { cleanEnvironment } from './mesh-of-daemons.ts'

const ROOT = join(import.meta.dirname, '../..')
/** The commit of the last release. Each release updates this file. */
const COMMIT = readFileSync(join(ROOT, 'deploy/previous-release'), 'utf8').trim()
/** An already built tree, of the previous release or of another release to test. */
const BUILT = process.env['X0X_TEST_PREVIOUS']
/** Bytes of a tree without the files that no package contains. */
const MAX_ARCHIVE = 256 * 1024 * 1024

/** Omits the page, the cache and the declarations, which take the longest. */
const BUILD = `
  import { bundle, replace, TARGETS } from './deploy/build.mjs'
  import { mkdirSync } from 'node:fs'
  mkdirSync('dist')
  for (const target of Object.values(TARGETS)) await replace(target.out, (await bundle(target)).text, 0o755)
`

type Packages = Readonly<Record<string, { readonly version?: string; readonly integrity?: string }>>

const packagesOf = (lock: string): Packages => (JSON.parse(lock) as { packages: Packages }).packages

const git = (...args: readonly string[]) => spawnSync('git', ['-C', ROOT, ...args], { maxBuffer: MAX_ARCHIVE })

/** Why the release cannot be built on this machine, or false. The installed packages must match its lock file. */
export const noPreviousRelease = (): string | false => {
  if (BUILT !== undefined) return false
  const lock = git('show', `${COMMIT}:package-lock.json`)
  if (lock.status !== 0) return `needs git and a history that reaches ${COMMIT.slice(0, 8)}`
  const installed = packagesOf(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
  const other = Object.entries(packagesOf(lock.stdout.toString())).find(
    ([name, { version, integrity }]) => name !== '' && (installed[name]?.version !== version || installed[name]?.integrity !== integrity),
  )
  return other !== undefined && `needs ${other[0].replace('node_modules/', '')} ${other[1].version ?? ''}, which is another one here`
}

/** An installation of the previous release: the directory of its bundles, and a function that removes it. */
export interface PreviousRelease {
  readonly dist: string
  remove(): Promise<void>
}

/** Builds the release, which takes some seconds. */
export const buildPreviousRelease = async (): Promise<PreviousRelease> => {
  if (BUILT !== undefined) return { dist: join(BUILT, 'dist'), remove: async () => undefined }
  const dir = await mkdtemp(join(tmpdir(), 'x0x-previous-'))
  const remove = async (): Promise<void> => rm(dir, { recursive: true, force: true })
  try {
    const tree = join(dir, 'tree')
    await mkdir(tree)
    execFileSync('tar', ['-x', '-C', tree], { input: git('archive', COMMIT).stdout })
    await symlink(join(ROOT, 'node_modules'), join(tree, 'node_modules'))
    // The release's npm script would install missing packages.
    const child = spawn(process.execPath, ['--input-type=module', '-e', BUILD], {
      cwd: tree,
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    const [status] = (await once(child, 'exit')) as [number | null]
    if (status !== 0) throw new Error(`the build of ${COMMIT} ended with ${status}`)
    return { dist: join(tree, 'dist'), remove }
  } catch (error) {
    await remove()
    throw error
  }
}

/** A program of either release, which the test ends. */
export interface Started {
  readonly child: ChildProcess
  readonly ended: Promise<readonly unknown[]>
  said(): string
}

export const start = (t: TestContext, argv: readonly string[]): Started => {
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'pipe'], env: cleanEnvironment() })
  const ended = once(child, 'exit')
  t.after(async () => {
    child.kill('SIGKILL')
    await ended
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (said += text))
  return { child, ended, said: () => said }
}
