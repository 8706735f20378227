import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { cleanEnvironment, DIST, MeshOfDaemons, type TestDaemon } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

// Daemons and checks with a different /etc/machine-id, each in its own mount namespace.

const DAEMON = join(DIST, 'x0xd.mjs')
const MOUNT = 'mount --bind "$0" /etc/machine-id && exec "$@"'
const MOUNT_READ_ONLY = `mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && ${MOUNT}`
const canMount =
  existsSync('/etc/machine-id') && spawnSync('unshare', ['-m', 'mount', '--bind', '/etc/hostname', '/etc/machine-id']).status === 0
const options = { timeout: 120_000, skip: canMount ? false : 'needs root and an /etc/machine-id, to mount another one over it' }
const [ONE, OTHER] = ['0123456789abcdef0123456789abcdef', 'f'.repeat(32)]

const SPOKEN = /machine id|machine-id differs/

interface Machine {
  readonly daemon: TestDaemon
  /** Sets the content of /etc/machine-id for the daemon. */
  id(text: string): Promise<void>
  /** Returns the standard output. */
  examine(mode: '--check' | '--doctor', place?: { readonly readOnly: boolean }): string
}

const machineOf = async (t: TestContext, id: string, variables: readonly string[] = []): Promise<Machine> => {
  const file = join(await tempDir(t), 'machine-id')
  await writeFile(file, id)
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice', { program: ['env', ...variables, 'unshare', '-m', 'sh', '-c', MOUNT, file, process.execPath, DAEMON] })
  return {
    daemon,
    id: async (text) => writeFile(file, text),
    examine: (mode, { readOnly } = { readOnly: false }) => {
      const program = [process.execPath, DAEMON, mode, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0', '--data-dir', daemon.dir]
      const mounted = readOnly ? [MOUNT_READ_ONLY, file, daemon.dir] : [MOUNT, file]
      const argv = ['-m', 'sh', '-c', ...mounted, ...program]
      const { status, stdout, stderr } = spawnSync('env', [...variables, 'unshare', ...argv], { encoding: 'utf8', env: cleanEnvironment() })
      // A read-only data directory causes other findings.
      assert.equal(readOnly ? 0 : status, 0, stdout + stderr)
      return stdout
    },
  }
}

const restarted = async (daemon: TestDaemon): Promise<string> => {
  await daemon.stop()
  await daemon.start()
  return daemon.ready
}

/** Runs the command of a remedy that removes files. */
const removeBy = (text: string, choice: RegExp): void => {
  const line = text.split('\n').find((one) => choice.test(one)) ?? ''
  const [, command = ''] = /^ *(?:->|Try:) (rm -f .+) && .*x0xd .*--replace &   \(/.exec(line) ?? []
  assert.notEqual(command, '', line)
  assert.equal(spawnSync('sh', ['-c', command]).status, 0)
}

const [CLONE, REPLACEMENT] = [/\(a clone: /, /\(this machine replaces /]

test('keys that move to another machine cause a warning at the start and in both checks, and each remedy ends it', options, async (t) => {
  const { daemon, id, examine } = await machineOf(t, `${ONE}\n`)
  const file = join(daemon.dir, 'machine-id.hash')
  await daemon.start()
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  assert.ok(!(await readFile(file, 'latin1')).includes(ONE), 'the ID itself is not stored')
  assert.doesNotMatch(await restarted(daemon), SPOKEN)
  const before = [daemon.agentId, daemon.machineId]

  await id(OTHER)
  const said = await restarted(daemon)
  assert.match(
    said,
    /^x0xd: warning: the keys in \S+ were first used on another machine \(\/etc\/machine-id differs\)\..*\n  Try: rm .*\n  Try: rm .*\n/m,
  )
  assert.equal(said.split('warning').length, 2)
  assert.deepEqual([daemon.agentId, daemon.machineId], before)
  for (const mode of ['--check', '--doctor'] as const)
    assert.match(examine(mode), /^warn {2}machine ID +the keys in .*\n +-> rm .*\n +-> rm .*\n/m)

  removeBy(said, REPLACEMENT)
  assert.doesNotMatch(await restarted(daemon), SPOKEN)
  assert.deepEqual([daemon.agentId, daemon.machineId], before)
  for (const mode of ['--check', '--doctor'] as const) assert.doesNotMatch(examine(mode), SPOKEN)

  await id(ONE)
  await daemon.stop()
  removeBy(examine('--check'), CLONE)
  await daemon.start()
  assert.doesNotMatch(daemon.ready, SPOKEN)
  assert.notEqual(daemon.agentId, before[0])
  assert.notEqual(daemon.machineId, before[1])
  for (const mode of ['--check', '--doctor'] as const) assert.doesNotMatch(examine(mode), SPOKEN)
})

test('a start stores a missing or invalid hash, and a new machine.key gets a new hash', options, async (t) => {
  const { daemon, id, examine } = await machineOf(t, ONE)
  const file = join(daemon.dir, 'machine-id.hash')
  await daemon.start()
  for (const text of ['', 'x0x-machine-id-hash-v2\nfrom a later version\n']) {
    await daemon.stop()
    await writeFile(file, text)
    assert.doesNotMatch(examine('--check'), SPOKEN)
    await daemon.start()
    assert.match(await readFile(file, 'latin1'), /^x0x-machine-id-hash-v1\n/)
  }
  await daemon.stop()
  await rm(file)
  await daemon.start()
  await id(OTHER)
  assert.match(examine('--check'), SPOKEN)
  // A restored backup without machine.key.
  await daemon.stop()
  await rm(join(daemon.dir, 'machine.key'))
  await daemon.start()
  assert.doesNotMatch(daemon.ready, SPOKEN)
  assert.doesNotMatch(examine('--check'), SPOKEN)
})

test('a container with a new machine ID at each start gets no warning', options, async (t) => {
  const { daemon, id, examine } = await machineOf(t, ONE, ['container=podman'])
  await daemon.start()
  await id(OTHER)
  assert.doesNotMatch(await restarted(daemon), SPOKEN)
  assert.doesNotMatch(examine('--check'), SPOKEN)
})

test('a container with a missing, empty or shared machine ID gets no warning', options, async (t) => {
  const { daemon, id, examine } = await machineOf(t, '')
  for (const text of ['', '\n', 'uninitialized\n', '0'.repeat(32), 'not an ID']) {
    await id(text)
    assert.doesNotMatch(await restarted(daemon), SPOKEN)
    assert.ok(!(await readdir(daemon.dir)).includes('machine-id.hash'), JSON.stringify(text))
    assert.doesNotMatch(examine('--check'), SPOKEN)
  }
  await id(ONE)
  assert.doesNotMatch(await restarted(daemon), SPOKEN)
  // The volume moves to a container without an ID, and then to one with the ID of the host.
  for (const text of ['', 'uninitialized\n', `${ONE}\n`]) {
    await id(text)
    assert.doesNotMatch(await restarted(daemon), SPOKEN)
    for (const mode of ['--check', '--doctor'] as const) assert.doesNotMatch(examine(mode), SPOKEN)
  }
})

test('a hash that cannot be written does not prevent a start or a check', options, async (t) => {
  const { daemon, id, examine } = await machineOf(t, ONE)
  await mkdir(join(daemon.dir, 'machine-id.hash'), { recursive: true, mode: 0o700 })
  await daemon.start()
  assert.doesNotMatch(daemon.ready, SPOKEN)
  assert.equal(await daemon.log(), '')
  await daemon.stop()
  await rm(join(daemon.dir, 'machine-id.hash'), { recursive: true })
  await daemon.start()
  await daemon.stop()
  const before = await readdir(daemon.dir)
  for (const mode of ['--check', '--doctor'] as const) assert.doesNotMatch(examine(mode, { readOnly: true }), SPOKEN)
  await id(OTHER)
  for (const mode of ['--check', '--doctor'] as const) assert.match(examine(mode, { readOnly: true }), SPOKEN)
  assert.deepEqual(await readdir(daemon.dir), before)
})
