import { execFile, execFileSync } from 'node:child_process'
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { attempt } from '../../src/base/errors.ts'
import { DEFAULT_SANDBOX, type SandboxSettings } from '../../src/policy/sandbox/sandbox-settings.ts'
import { isRoot } from './containment.ts'
import { noSandbox } from './sandboxed.ts'

const run = promisify(execFile)
const isThere = (...command: readonly [string, ...string[]]): boolean =>
  attempt(() => execFileSync(command[0], command.slice(1), { stdio: 'pipe' })) !== null

/** Why podman is not tried here; null: it is. Without root it leaves a process behind for as long as its user is there. */
export const noPodman =
  noSandbox ??
  (isRoot ? null : 'needs root') ??
  (isThere('podman', '--version') && isThere('busybox', 'true') ? null : 'podman or busybox is not installed')
export const needsPodman = { skip: noPodman !== null }
export const withPodman = (name: string): string => (noPodman === null ? name : `${name} (skipped: ${noPodman})`)

export interface PodmanPlace {
  /** Where images are to be unpacked. */
  readonly directory: string
  readonly settings: SandboxSettings
  /** Makes an image of the name from what `fill` puts beside its busybox. */
  import(fill: (root: string) => Promise<unknown>, changes?: readonly string[]): Promise<void>
}

/** A test or a table of tests, at whose end something is taken away. */
export interface Ending {
  after(end: () => Promise<void>): void
}

/** A storage of podman's own for one test, whose images need no registry. */
export const podmanPlace = async (t: Ending): Promise<PodmanPlace> => {
  const base = await mkdtemp(join(tmpdir(), 'x0x-podman-'))
  const before = process.env['CONTAINERS_STORAGE_CONF']
  const conf = join(base, 'storage.conf')
  await writeFile(conf, `[storage]\ndriver = "vfs"\ngraphroot = "${base}/graph"\nrunroot = "${base}/run"\n`)
  process.env['CONTAINERS_STORAGE_CONF'] = conf
  t.after(async () => {
    if (before === undefined) delete process.env['CONTAINERS_STORAGE_CONF']
    else process.env['CONTAINERS_STORAGE_CONF'] = before
    await rm(base, { recursive: true, force: true })
  })
  const image = 'localhost/x0x-test:1'
  const place = { directory: join(base, 'images'), settings: { ...DEFAULT_SANDBOX, engine: 'podman' as const, image } }
  const fillAndImport: PodmanPlace['import'] = async (fill, changes = []) => {
    const root = await mkdtemp(join(base, 'root-'))
    for (const name of ['bin', 'etc', 'home/data']) await mkdir(join(root, name), { recursive: true })
    await copyFile('/bin/busybox', join(root, 'bin/busybox'))
    await chmod(join(root, 'bin/busybox'), 0o755)
    for (const name of ['sh', 'ls', 'cat', 'mkdir', 'rm', 'sleep']) await symlink('/bin/busybox', join(root, 'bin', name))
    await writeFile(join(root, 'etc/of-image'), 'of the image\n')
    await fill(root)
    await run('tar', ['-C', root, '-cf', `${root}.tar`, '.'])
    const all = ['ENV PATH=/bin', 'ENV FROM_IMAGE=yes', ...changes]
    await run('podman', ['import', ...all.flatMap((one) => ['--change', one]), `${root}.tar`, image])
  }
  return { ...place, import: fillAndImport }
}
