import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { rmdirSync } from 'node:fs'
import { chmod, chown, copyFile, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { findExecutable } from '../../src/policy/executable.ts'
import { findCgroupPlaces } from '../../src/process/cgroup-tree.ts'
import { isRoot, needs } from '../support/containment.ts'
import { isAlive, temporaryDirectory, until } from '../support/processes.ts'

const NOBODY = { uid: 65_534, gid: 65_534 }
const PROGRAM = fileURLToPath(new URL('../support/kill-refused-program.ts', import.meta.url))

/** A group without processes can be removed. */
const removed = (group: string): boolean => {
  try {
    rmdirSync(group)
    return true
  } catch {
    return false
  }
}

const userOf = (pid: number): string => spawnSync('ps', ['-o', 'ruid=', '-p', String(pid)], { encoding: 'utf8' }).stdout.trim()

/** Another user must be able to read these source files. */
const mayRead = isRoot && spawnSync(process.execPath, ['--check', PROGRAM], { ...NOBODY, cwd: '/', env: {} }).status === 0
const setpriv = findExecutable('setpriv')
const skip = !mayRead ? 'needs root, and sources that other users may read' : setpriv.kind !== 'found' ? 'needs setpriv' : false

/** Starts a program that becomes root, under a daemon that runs as nobody, in the control group if one is given. */
const becomesRoot = async (t: TestContext, group: string | null): Promise<{ pid: number; end(): Promise<unknown> }> => {
  assert.equal(setpriv.kind, 'found')
  const directory = await temporaryDirectory(t)
  const program = join(directory, 'becomes-root')
  await chmod(directory, 0o755)
  await copyFile(setpriv.executable.path, program)
  await chmod(program, 0o4755)
  const enter = group === null ? 'exec "$@"' : `echo $$ >'${group}/cgroup.procs' && exec "$@"`
  const asNobody = [setpriv.executable.path, '--reuid=65534', '--regid=65534', '--clear-groups']
  const run = [process.execPath, PROGRAM, group === null ? 'group' : 'cgroup', program, '--reuid=0', 'sleep', '1000']
  const daemon = spawn('/bin/sh', ['-c', enter, 'sh', ...asNobody, ...run], { cwd: '/', env: {}, stdio: ['pipe', 'pipe', 'inherit'] })
  t.after(() => daemon.kill('SIGKILL'))
  let text = ''
  daemon.stdout.on('data', (chunk) => (text += chunk))
  await until(() => text.includes('\n'))
  const pid = Number(text.split('\n')[0])
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  await until(() => userOf(pid) === '0')
  const end = async (): Promise<unknown> => {
    daemon.stdin.write('now\n')
    await until(() => text.split('\n').length > 2)
    return JSON.parse(text.split('\n')[1] ?? '') as unknown
  }
  return { pid, end }
}

test('a program that became root under an unprivileged daemon survives, and its run ends with a warning', { skip }, async (t) => {
  const { pid, end } = await becomesRoot(t, null)
  assert.deepEqual(await end(), { code: null, signal: null, truncated: true, warnings: ['descendants_may_survive'] })
  assert.ok(isAlive(pid))
})

test(
  'in a control group, the kernel kills a program that became root under an unprivileged daemon',
  { skip: skip || needs.cgroup.skip || false },
  async (t) => {
    const own = findCgroupPlaces().find(({ version }) => version === 2)?.own
    assert.ok(own !== undefined)
    const group = join(own, `x0x-test-delegated-${process.pid}`)
    await mkdir(group)
    t.after(async () => until(() => removed(group)))
    for (const file of ['.', 'cgroup.procs', 'cgroup.subtree_control', 'cgroup.threads'])
      await chown(join(group, file), NOBODY.uid, NOBODY.gid)
    const { pid, end } = await becomesRoot(t, group)
    assert.deepEqual(await end(), { code: null, signal: 9, truncated: false, warnings: [] })
    assert.equal(isAlive(pid), false)
  },
)
