import { execFileSync } from 'node:child_process'
import { cp, lstat, mkdir, readlink, rm, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

import { ImageStore } from '../../src/process/sandbox/images.ts'
import { findExecutable } from '../../src/policy/executable.ts'
import { podmanPlace, type Ending } from '../../test/support/podman-image.ts'
import type { SandboxForm } from '../../test/support/sandboxed.ts'

/** Programs that the tests start in a sandbox. */
const TOOLS =
  'cat chmod chroot cp cut df dirname dmesg env grep head hostname id ln ls mkdir mknod mount mv nsenter perl pivot_root readlink rm sed seq setsid sh sleep sort stat stty swapoff tail touch tr true tty umount unshare wc'
/** Links on systems whose `/bin` is a link. */
const LINKS = ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32']
const PERL_FILES = 'print join("\\n", values %INC, @DynaLoader::dl_shared_objects)'

const linesOf = (file: string, ...args: readonly string[]): string[] => execFileSync(file, args, { encoding: 'utf8' }).split('\n')

/** Copies the programs of this host into the image, so that the tests mean the same in both. */
const fillWithTools = async (root: string): Promise<void> => {
  for (const name of ['bin', 'home']) await rm(join(root, name), { recursive: true })
  for (const link of LINKS)
    if ((await lstat(link).catch(() => null))?.isSymbolicLink() === true) {
      const target = await readlink(link)
      await mkdir(join(root, target), { recursive: true })
      await symlink(target, join(root, link))
    }
  const programs = TOOLS.split(' ').flatMap((name) => {
    const found = findExecutable(name)
    return found.kind === 'found' ? [found.executable.path] : []
  })
  const libraries = linesOf('ldd', ...programs).flatMap((line) => /(\/\S+)(?: \(0x|$)/.exec(line)?.[1] ?? [])
  const ofPerl = linesOf('perl', '-MSocket', '-MErrno', '-MFcntl', '-e', PERL_FILES)
  for (const path of new Set([...programs, ...libraries, ...ofPerl].filter((path) => path.startsWith('/') && !path.endsWith(':')))) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await cp(path, join(root, path), { dereference: true })
  }
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/:/bin/sh\n')
}

/** A sandbox with the files of a podman image. Takes a second. */
export const imageForm = async (t: Ending): Promise<SandboxForm> => {
  const podman = await podmanPlace(t)
  await podman.import(fillWithTools, ['ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin'])
  return { settings: podman.settings, image: await new ImageStore().image(podman.settings, podman.directory, true) }
}
