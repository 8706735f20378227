import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import type { Executor } from '../../src/executor/executor.ts'
import type { NetworkSettings } from '../../src/executor-api/messages.ts'
import { supervisorIn } from '../support/early-network.ts'
import { isRunning, processesNaming, until } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

// The network process starts before the executor.

const TIMEOUT = { timeout: 60_000 }
const [NO_EXECUTOR, NO_SETTINGS] = [{} as Executor, {} as NetworkSettings]

const pidIn = async (dir: string): Promise<number> =>
  until('its pid file', async () => {
    const text = await readFile(join(dir, 'network.pid'), 'utf8').catch(() => '')
    return text !== '' && Number(text.split(' ')[0])
  })

test('the network process starts without an executor, stays hidden from clients, and leaves no file at a stop', TIMEOUT, async (t) => {
  const dir = await tempDir(t)
  const supervisor = supervisorIn(dir)
  supervisor.startAhead()
  const pid = await pidIn(dir)
  assert.ok(isRunning(pid))
  assert.ok(!existsSync(join(dir, 'api.sock')))
  await supervisor.stop()
  assert.ok(!isRunning(pid))
  assert.deepEqual(await readdir(dir), [])
  await supervisor.stop()
})

test('a stop during the start waits for it, and leaves no process and no file', TIMEOUT, async (t) => {
  const dir = await tempDir(t)
  const supervisor = supervisorIn(dir)
  supervisor.startAhead()
  await supervisor.stop()
  assert.deepEqual(await processesNaming(dir), [])
  assert.deepEqual(await readdir(dir), [])
})

test('an error of the early start is reported when the network process has to serve', TIMEOUT, async (t) => {
  const dir = await tempDir(t)
  const socket = join(dir, 'api.sock')
  await writeFile(socket, '')
  const supervisor = supervisorIn(dir)
  supervisor.startAhead()
  const expected = { code: 'conflict', message: `${socket} exists and is not a socket; move it away` }
  await assert.rejects(supervisor.serve(NO_EXECUTOR, NO_SETTINGS), expected)
  await supervisor.stop()
  assert.deepEqual(await readdir(dir), ['api.sock'])
})

test('an early death of the network process is reported when it has to serve', TIMEOUT, async (t) => {
  const dir = await tempDir(t)
  const supervisor = supervisorIn(dir)
  supervisor.startAhead()
  const pid = await pidIn(dir)
  process.kill(pid, 'SIGKILL')
  await until('it is gone', () => !existsSync(`/proc/${pid}`))
  const expected = { code: 'internal', message: 'the network process ended before it listened: SIGKILL' }
  await assert.rejects(supervisor.serve(NO_EXECUTOR, NO_SETTINGS), expected)
  await supervisor.stop()
  assert.deepEqual(await readdir(dir), [])
})

test('the network process ends when its starter is killed, even before it serves', TIMEOUT, async (t) => {
  const dir = await tempDir(t)
  const program = fileURLToPath(new URL('../support/early-network.ts', import.meta.url))
  const starter = spawn(process.execPath, [program, dir], { stdio: ['ignore', 'ignore', 'inherit'] })
  t.after(() => starter.kill('SIGKILL'))
  const pid = await pidIn(dir)
  starter.kill('SIGKILL')
  await once(starter, 'exit')
  await until('it is gone', () => !isRunning(pid))
})
