import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, cp, mkdir, stat, symlink, writeFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { hasProc, isAlive, until } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy')

/** Makes files, mounts and a process as tests do, and prints them. Then it runs until it is killed, or ends with or without leftovers. */
const TASK = `
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, linkSync, mkdirSync, realpathSync } from 'node:fs'
import { tmpdir } from 'node:os'
const [how] = process.argv.slice(2)
const place = tmpdir()
if (how === 'alone') {
  spawnSync('pkill', ['-KILL', '-f', 'sweep.mjs ' + place])
  console.log(JSON.stringify({ place, pids: [] }))
  process.exit()
}
const made = (name) => (mkdirSync(place + '/' + name + '/in', { recursive: true }), place + '/' + name)
chmodSync(made('closed'), 0)
linkSync('kept', place + '/kept')
for (const name of ['disk', 'disk/inner']) spawnSync('mount', ['-t', 'tmpfs', 'tmpfs', made(name)])
const child = how === 'clean' ? process : spawn('sleep', ['600'], { env: { PATH: process.env.PATH, HERE: realpathSync(place) }, detached: true, stdio: 'ignore' })
console.log(JSON.stringify({ place, pids: [process.pid, child.pid] }))
if (how === 'for ever') setInterval(() => {}, 1000)
else child.unref?.()
`

interface Told {
  readonly place: string
  readonly pids: readonly number[]
}

/**
 * Starts the runner in a separate process group, as a terminal does. Its temporary directory has a blank in its name and is reached through
 * a link.
 */
const startTask = async (t: TestContext, how: 'for ever' | 'clean' | 'leaving' | 'alone') => {
  const root = await tempDir(t)
  await cp(DEPLOY, join(root, 'deploy'), { recursive: true })
  await mkdir(join(root, 'node_modules'))
  for (const name of ['package-lock.json', 'node_modules/.package-lock.json']) await writeFile(join(root, name), '{"packages":{}}')
  await writeFile(join(root, 'deploy', 'check.mjs'), TASK)
  const kept = join(root, 'kept')
  await writeFile(kept, '', { mode: 0o444 })
  await mkdir(join(root, 'a place'))
  await chmod(join(root, 'a place'), 0o1777)
  await symlink('a place', join(root, 'link'))
  const runner = spawn(process.execPath, [join(root, 'deploy', 'run.mjs'), 'check', how], {
    env: { ...process.env, TMPDIR: join(root, 'link') },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const { pid: group = assert.fail() } = runner
  t.after(() => runner.exitCode ?? runner.signalCode ?? process.kill(-group, 'SIGKILL'))
  let stderr = ''
  runner.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const ended = once(runner, 'close')
  const [text] = (await once(runner.stdout.setEncoding('utf8'), 'data')) as [string]
  const told = JSON.parse(text) as Told
  return { ...told, kept, group, ended: ended.then(([code, signal]) => [code, signal, stderr]) }
}

const isGone = ({ place, pids }: Told): boolean => !existsSync(place) && !pids.some(isAlive)

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  test(`after ${signal} ends a task, no process, mount or file of the task remains, and others do`, { skip: !hasProc }, async (t) => {
    const task = await startTask(t, 'for ever')
    assert.equal((await stat(task.place)).mode, (await stat(dirname(task.place))).mode)
    // The process of a user who looks into the directory.
    const other = spawn('sleep', ['600'], { env: { ...process.env, OLDPWD: task.place, PWD: task.place }, stdio: 'ignore' })
    t.after(() => other.kill())
    process.kill(-task.group, signal)
    assert.deepEqual(await task.ended, [128 + constants.signals[signal], null, ''])
    assert.ok(isGone(task) && isAlive(other.pid!))
    assert.equal((await stat(task.kept)).mode & 0o7777, 0o444)
  })
}

test('if the process that started a task is killed, the task and its files are removed', { skip: !hasProc }, async (t) => {
  const task = await startTask(t, 'for ever')
  process.kill(task.group, 'SIGKILL')
  await until(() => isGone(task))
})

test('after a task, its files and mounts are removed, and the task fails if it left a process', { skip: !hasProc }, async (t) => {
  const [clean, leaving] = await Promise.all([startTask(t, 'clean'), startTask(t, 'leaving')])
  assert.deepEqual(await clean.ended, [0, null, ''])
  assert.deepEqual(await leaving.ended, [1, null, `left behind: ${leaving.pids[1]} sleep 600 \n`])
  assert.ok(isGone(clean) && isGone(leaving))
})

test('a task fails if its sweeper process was killed', { skip: !hasProc }, async (t) => {
  const task = await startTask(t, 'alone')
  assert.deepEqual(await task.ended, [1, null, `${task.place} is left: who removes it was killed\n`])
})
