import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { Writable } from 'node:stream'
import { test } from 'node:test'

import { processState, ownIdentity, type ProcessIdentity } from '../../src/base/process-info.ts'
import { hasProc, until } from '../support/processes.ts'

const NO_PROC = { skip: hasProc ? false : 'no /proc: only the pid is known' }

/** The identity that a process prints of itself. The process has ended. */
const identityIn = async (file: string, argv: readonly string[]): Promise<ProcessIdentity> => {
  const child = spawn(file, argv, { stdio: ['ignore', 'pipe', 'inherit'] })
  const [[text]] = await Promise.all([once(child.stdout, 'data'), once(child, 'close')])
  return JSON.parse(String(text)) as ProcessIdentity
}

test('the current process is alive, and another process that has ended is gone', async () => {
  const us = ownIdentity()
  assert.deepEqual([us.pid, processState(us)], [process.pid, 'alive'])
  assert.deepEqual(ownIdentity(), us)
  const module = new URL('../../src/base/process-info.ts', import.meta.url)
  const program = `import { processState, ownIdentity } from '${module}'; const us = ownIdentity(); if (processState(us) === 'alive') console.log(JSON.stringify(us))`
  const other = await identityIn(process.execPath, ['--input-type=module', '-e', program])
  assert.deepEqual([other.namespace, processState(other)], [us.namespace, 'gone'])
})

test('a process is gone if another process now has its PID', NO_PROC, () => {
  const us = ownIdentity()
  assert.equal(processState({ ...us, started: `${Number(us.started) - 1}` }), 'gone')
})

test('a process in another PID namespace or on another host is unknown', NO_PROC, () => {
  const us = ownIdentity()
  assert.match(us.namespace, /^[1-9]\d*$/)
  assert.match(us.boot, /^[0-9a-f]{16}$/)
  for (const pid of [us.pid, 2 ** 22]) {
    assert.equal(processState({ ...us, pid, namespace: '1' }), 'unknown')
    assert.equal(processState({ ...us, pid, boot: '1', machine: '1' }), 'unknown')
    assert.equal(processState({ ...us, pid, boot: '1', machine: '0' }), 'unknown')
  }
})

const NO_MACHINE_ID = { skip: ownIdentity().machine === '0' ? 'no /etc/machine-id: a host does not know itself again' : false }

test('a process from before the last boot of this host is gone', NO_MACHINE_ID, () => {
  assert.equal(processState({ ...ownIdentity(), boot: '1' }), 'gone')
})

test('a zombie is gone, even though its PID and start time match', NO_PROC, async (t) => {
  // The shell becomes a program that never waits for its child.
  const child = spawn('sh', ['-c', 'read -r end <&3 & echo $!; exec sleep 600'], { stdio: ['ignore', 'pipe', 'inherit', 'pipe'] })
  t.after(() => child.kill('SIGKILL'))
  const [text] = (await once(child.stdout!, 'data')) as [Buffer]
  const pid = Number(text.toString())
  await until(async () => (await readFile(`/proc/${child.pid}/comm`, 'latin1')) === 'sleep\n')
  ;(child.stdio[3] as Writable).end()
  const stat = async (): Promise<string[]> => (await readFile(`/proc/${pid}/stat`, 'latin1')).split(') ')[1]!.split(' ')
  await until(async () => (await stat())[0] === 'Z')
  assert.equal(processState({ ...ownIdentity(), pid, started: (await stat())[19]! }), 'gone')
})

test('a process without a known start time is unknown while its PID exists', NO_PROC, async () => {
  const us = ownIdentity()
  assert.equal(processState({ ...us, started: '0' }), 'unknown')
  const child = spawn('true')
  const pid = child.pid!
  await once(child, 'close')
  assert.equal(processState({ ...us, pid, started: '0' }), 'gone')
})
