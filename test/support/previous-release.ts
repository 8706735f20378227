import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { cleanEnvironment } from './mesh-of-daemons.ts'

const ROOT = join(import.meta.dirname, '../..')
/** What was released last; whoever releases writes the commit of it there. */
const COMMIT = readFileSync(join(ROOT, 'deploy/previous-release'), 'utf8').trim()
/** A tree of it that is built already, or of another release that is to be tried. */
const BUILT = process.env['X0X_TEST_PREVIOUS']
/** A tree without what is in no package. */
const MAX_ARCHIVE = 256 * 1024 * 1024

/** Without the page, the cache and the declarations, which take the longest. */
const BUILD = `
  import { bundle, replace, TARGETS } from './deploy/build.mjs'
  import { mkdirSync } from 'node:fs'
  mkdirSync('dist')
  for (const target of Object.values(TARGETS)) await replace(target.out, (await bundle(target)).text, 0o755)
`

type Packages = Readonly<Record<string, { readonly version?: string; readonly integrity?: string }>>

const packagesOf = (lock: string): Packages => (JSON.parse(lock) as { packages: Packages }).packages

const git = (...args: readonly string[]) => spawnSync('git', ['-C', ROOT, ...args], { maxBuffer: MAX_ARCHIVE })

/** Why it cannot be built here, or false. What is installed here must be all that it was released with. */
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

/** The previous release as it is installed: where its bundles are, and how it goes away. */
export interface PreviousRelease {
  readonly dist: string
  remove(): Promise<void>
}

/** Takes some seconds. */
export const buildPreviousRelease = async (): Promise<PreviousRelease> => {
  if (BUILT !== undefined) return { dist: join(BUILT, 'dist'), remove: async () => undefined }
  const dir = await mkdtemp(join(tmpdir(), 'x0x-previous-'))
  const remove = async (): Promise<void> => rm(dir, { recursive: true, force: true })
  try {
    const tree = join(dir, 'tree')
    await mkdir(tree)
    execFileSync('tar', ['-x', '-C', tree], { input: git('archive', COMMIT).stdout })
    await symlink(join(ROOT, 'node_modules'), join(tree, 'node_modules'))
    // Not by its npm script, which would install what it misses.
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

/** A program of either release, ended with the test. */
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
