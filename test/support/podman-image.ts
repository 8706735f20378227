import { execFile } from 'node:child_process'
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { attempt } from '../../src/base/errors.ts'
import { findExecutable } from '../../src/policy/executable.ts'
import { DEFAULT_SANDBOX, type SandboxSettings } from '../../src/policy/sandbox/sandbox-settings.ts'
import { isRoot } from './containment.ts'
import { noSandbox } from './sandboxed.ts'

const run = promisify(execFile)

/** Why podman cannot be tested on this machine, or null. */
export const podmanMissing =
  noSandbox ?? (['podman', 'busybox'].every((name) => findExecutable(name).kind === 'found') ? null : 'podman or busybox is not installed')
/** Why this process skips podman. Root also tests it as an ordinary user, without the tools that a host may lack. */
export const noPodman = podmanMissing ?? (isRoot ? null : 'needs root')
export const needsPodman = { skip: noPodman !== null }
export const withPodman = (name: string): string => (noPodman === null ? name : `${name} (skipped: ${noPodman})`)

export interface PodmanPlace {
  /** The directory for unpacked images. */
  readonly directory: string
  readonly settings: SandboxSettings
  /** Creates an image of this name from busybox and the files that `fill` adds. */
  import(fill: (root: string) => Promise<unknown>, changes?: readonly string[]): Promise<void>
}

/** A test or a group of tests with a hook at its end. */
export interface Ending {
  after(end: () => Promise<void>): void
}

/** For an ordinary user, podman leaves a process that holds the user namespace. */
const endPause = async (runtime: string): Promise<void> => {
  const pid = Number(await readFile(join(runtime, 'libpod/tmp/pause.pid'), 'utf8').catch(() => ''))
  if (pid > 1) attempt(() => process.kill(pid, 'SIGKILL'))
}

/** A separate podman storage for one test. Its images need no registry. */
export const podmanPlace = async (t: Ending): Promise<PodmanPlace> => {
  const base = await mkdtemp(join(tmpdir(), 'x0x-podman-'))
  const conf = join(base, 'storage.conf')
  await writeFile(conf, `[storage]\ndriver = "vfs"\ngraphroot = "${base}/graph"\nrunroot = "${base}/run"\n`)
  const runtime = join(base, 'runtime')
  await mkdir(runtime, { mode: 0o700 })
  const ours = { CONTAINERS_STORAGE_CONF: conf, XDG_RUNTIME_DIR: runtime }
  const before = Object.keys(ours).map((name) => [name, process.env[name]] as const)
  Object.assign(process.env, ours)
  t.after(async () => {
    for (const [name, value] of before)
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    await endPause(runtime)
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
    await run('tar', ['-C', root, '--owner=0', '--group=0', '-cf', `${root}.tar`, '.'])
    const all = ['ENV PATH=/bin', 'ENV FROM_IMAGE=yes', ...changes]
    await run('podman', ['import', ...all.flatMap((one) => ['--change', one]), `${root}.tar`, image])
  }
  return { ...place, import: fillAndImport }
}
