import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, copyFile, readdir, symlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'

import fc from 'fast-check'

import { realPath } from '../../../src/base/path-resolution.ts'
import { meaningOf } from '../../../src/policy/approval/meanings.ts'
import { isTransparentFile, isTransparentName, TRANSPARENT_PROGRAMS } from '../../../src/policy/approval/transparent.ts'
import { SCRUBBED_PATH } from '../../../src/policy/environment.ts'
import { needs } from '../../support/containment.ts'
import { tempDir } from '../../support/temp-dir.ts'

const opaque = (...argv: string[]): string | null => meaningOf(argv, [], { cwd: '/', path: SCRUBBED_PATH }).opaque

/** Programs that start another program because of an argument, a variable, a key, stdin or a file that they read. */
const NEVER =
  'sh bash python3 perl awk sed find xargs env timeout nice nohup sudo ssh git make gmake ninja cmake npm tar bsdtar unzip zip rsync ' +
  'less more man vi vim nano editor sensible-editor pager sensible-pager systemctl journalctl loginctl dmesg dpkg-query dpkg-query apt ' +
  'apt-cache apt-config apt-mark apt-get curl wget json_pp gpg gpgtar gpg-zip gcc c99-gcc c89-gcc cc nvcc rpcgen fakeroot fakeroot-sysv ' +
  'fakeroot-tcp direnv mise op nsjail aws-vault bazel nx dpkg-buildpackage update-ca-certificates keytool sort split tee dd cp mv ln rm ' +
  'install touch chmod date hostname uniq shuf file diff getent getconf tree which strace script watch top ip ss busybox toybox coreutils ' +
  'sqlite3 psql mysql docker podman kubectl xxd zgrep egrep fgrep mkfifo truncate shred ld.so'

test('the list has at most 50 different programs, without any that is known to start another', () => {
  assert.ok(TRANSPARENT_PROGRAMS.length <= 50, String(TRANSPARENT_PROGRAMS.length))
  assert.equal(new Set(TRANSPARENT_PROGRAMS).size, TRANSPARENT_PROGRAMS.length)
  for (const name of NEVER.split(' ')) assert.ok(!TRANSPARENT_PROGRAMS.includes(name), name)
})

test('no other program on this system is transparent, with any arguments', async () => {
  const listed = new Set(TRANSPARENT_PROGRAMS)
  let found = 0
  for (const directory of new Set(SCRUBBED_PATH.split(':').map(realPath)))
    for (const name of await readdir(directory)) {
      const isOpaque = opaque(join(directory, name), '--help', 'x') !== null
      if (!listed.has(name)) assert.ok(isOpaque, join(directory, name))
      else if (!isOpaque) found += 1
    }
  assert.ok(found > 0)
})

test('property: no other name is transparent, at any place and in any spelling', () => {
  const listed = new Set(TRANSPARENT_PROGRAMS)
  const near = fc.tuple(fc.constantFrom(...TRANSPARENT_PROGRAMS), fc.string({ maxLength: 4 })).map(([name, more]) => `${name}${more}`)
  fc.assert(
    fc.property(
      fc.oneof(fc.string({ maxLength: 12 }), near).filter((name) => !name.includes('/')),
      fc.constantFrom('', '/usr/bin/', '/bin/', '/opt/', './'),
      (name, place) => {
        const called = place + name
        const expected =
          listed.has(basename(called)) && (called === basename(called) || /^(\/usr)?\/bin$/.test(called.slice(0, called.lastIndexOf('/'))))
        assert.equal(isTransparentName(called), expected, JSON.stringify(called))
        if (!listed.has(name)) assert.notEqual(opaque(called), null, JSON.stringify(called))
      },
    ),
    { seed: 20_261_128, numRuns: 1_000 },
  )
})

test('a transparent program is known by its own file in a system directory, not by a copy or another name', async (t) => {
  const dir = await tempDir(t)
  const ls = realPath('/bin/ls')
  assert.equal(opaque('ls', '-l'), null)
  assert.equal(opaque(ls, '-l'), null)
  await copyFile(ls, join(dir, 'ls'))
  await symlink(ls, join(dir, 'cat'))
  await symlink('/bin/sh', join(dir, 'wc'))
  for (const name of ['ls', 'cat', 'wc']) assert.notEqual(opaque(join(dir, name)), null, name)
  assert.ok(!isTransparentFile('ls', join(dir, 'ls')))
  // One file that contains many programs acts by the name that it is called by.
  for (const real of ['/bin/busybox', '/usr/bin/coreutils']) assert.ok(!isTransparentFile('/bin/ls', real), real)
})

/** In a user namespace of another user, the files of root belong to an unknown user. */
const needsRoot = process.geteuid?.() === 0 ? needs.bwrap : { skip: 'needs root' }

test('a file that anyone may write is not transparent, even under the path of a transparent program', needsRoot, async (t) => {
  const dir = await tempDir(t)
  const ls = realPath('/bin/ls')
  const changeable = join(dir, 'changeable')
  await copyFile(ls, changeable)
  await chmod(changeable, 0o777)
  const script = `import { isTransparentFile } from ${JSON.stringify(new URL('../../../src/policy/approval/transparent.ts', import.meta.url).href)}
console.log(isTransparentFile('ls', ${JSON.stringify(ls)}))`
  const answer = async (file: string): Promise<string> => {
    const words = ['--dev-bind', '/', '/', '--ro-bind', file, ls, process.execPath, '--input-type=module', '-e', script]
    return (await promisify(execFile)('bwrap', words)).stdout.trim()
  }
  assert.deepEqual([await answer(ls), await answer(changeable)], ['true', 'false'])
})

test('a client that sets LANGUAGE makes any program opaque, because it can name a directory with format strings', () => {
  const around = { cwd: '/', path: SCRUBBED_PATH }
  assert.match(meaningOf(['ls', 'x'], ['LANGUAGE'], around).opaque ?? '', /^LANGUAGE can change/)
  // These variables cannot contain a path.
  for (const name of ['LANG', 'LC_ALL', 'LC_MESSAGES']) assert.equal(meaningOf(['ls', 'x'], [name], around).opaque, null, name)
})
