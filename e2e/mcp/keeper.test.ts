import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync } from 'node:fs'
import { chmod, chown, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { soon } from '../../test/support/local-engine.ts'
import { X0X, type McpServer } from '../../test/support/mcp-server.ts'
import { isAlive } from '../../test/support/processes.ts'
import { DEFAULT_WHOAMI, keeperPids, listed, runMcp, startStaying, stayingPlace, type StayingPlace } from '../../test/support/staying.ts'

const pidIn = async ({ root }: StayingPlace, file: string): Promise<number> => {
  const read = async (): Promise<string> => readFile(join(root, file), 'utf8').catch(() => '')
  assert.ok(await soon(async () => (await read()).endsWith('\n')))
  return Number(await read())
}

const stays = async (server: McpServer, file: string) =>
  server.run('exec_status', {
    command: 'sh',
    args: ['-c', `echo $$ > ${file}; exec sleep 300`],
    stay: true,
    timeout_seconds: 600,
    answer_within_ms: 0,
  })

test('servers that need a keeper at once have one, and one of another name has its own', async (t) => {
  const place = await stayingPlace(t)
  const servers = await Promise.all(Array.from({ length: 3 }, async () => startStaying(t, place)))
  await Promise.all(servers.map(async (server, at) => stays(server, `pid${at}`)))
  assert.equal((await keeperPids(place)).length, 1)
  for (const server of servers) assert.equal((await listed(server)).length, 3)
  const other = await startStaying(t, place, { whoami: 'somebody else' })
  assert.deepEqual(await listed(other), [])
  await stays(other, 'other')
  assert.equal((await listed(other)).length, 1)
  assert.equal((await keeperPids(place)).length, 2)
  const files = await readdir(place.keepers)
  for (const file of files) assert.equal((await stat(join(place.keepers, file))).mode & 0o077, 0, file)
  await runMcp(place, ['--end-kept'], 'somebody else')
  assert.equal((await listed(servers[0]!)).length, 3)
})

test('a keeper that is killed leaves no program, and the next call begins another', async (t) => {
  const place = await stayingPlace(t)
  const server = await startStaying(t, place)
  await stays(server, 'pid')
  const waiting = server.ask('exec_status', { command: 'sleep', args: ['300'], stay: true, timeout_seconds: 600, idempotency_key: 'a key' })
  const states = async () => (await listed(server)).map(({ state }) => state)
  assert.ok(await soon(async () => String(await states()) === 'running,running'))
  const [[keeper = 0], pid] = [await keeperPids(place), await pidIn(place, 'pid')]
  process.kill(keeper, 'SIGKILL')
  assert.match(JSON.stringify((await waiting).content), /daemon_unreachable: the keeper went away before it answered/)
  assert.ok(await soon(() => !isAlive(keeper) && !isAlive(pid)))
  assert.deepEqual(await listed(server), [])
  const again = await server.run('exec_status', {
    command: 'sleep',
    args: ['300'],
    stay: true,
    timeout_seconds: 600,
    idempotency_key: 'a key',
  })
  assert.equal(again.state, 'interrupted')
  assert.equal((await server.run('exec_status', { command: 'true', stay: true })).success, true)
  assert.notEqual((await keeperPids(place))[0], keeper)
})

test('what stands where a keeper listens, or who may put it there, is looked at before anything is told to it', async (t) => {
  const place = await stayingPlace(t)
  const server = await startStaying(t, place)
  const ask = async (): Promise<string> => JSON.stringify((await server.ask('exec_status', { command: 'true', stay: true })).content)
  await mkdir(place.keepers, { recursive: true, mode: 0o755 })
  await chmod(place.keepers, 0o755)
  assert.match(await ask(), /loose_permissions: .*lets others in \(mode 0755\)/)
  assert.match(JSON.stringify((await server.ask('exec_list')).content), /loose_permissions/)
  const loose = await runMcp(place, ['--keep'])
  assert.deepEqual([loose.status, /lets others in/.test(loose.stderr)], [2, true])
  await chmod(place.keepers, 0o700)
  // Its names are those that this keeper had.
  assert.match(await ask(), /"success\\":true/)
  await runMcp(place, ['--end-kept'])
  const log = (await readdir(place.keepers)).find((name) => name.endsWith('.log')) ?? ''
  const socket = join(place.keepers, log.replace('.log', '.sock'))
  await writeFile(socket, '')
  assert.match(await ask(), /conflict: .* is no socket/)
  await rm(socket)
  if (process.getuid?.() !== 0) return
  const heard: string[] = []
  const stranger = createServer((connection) => connection.on('data', (part) => heard.push(part.toString())))
  stranger.listen(socket)
  await once(stranger, 'listening')
  await chown(socket, 65_534, 65_534)
  assert.match(await ask(), /conflict: .* belongs to uid 65534, not to us/)
  assert.deepEqual(heard, [])
  stranger.close()
  await once(stranger, 'close')
  await chown(place.keepers, 65_534, 65_534)
  assert.match(await ask(), /loose_permissions: .* belongs to uid 65534, not to us/)
  await chown(place.keepers, 0, 0)
})

test('under a configuration that was changed nothing new stays, until what runs has ended and another keeper has read it', async (t) => {
  const place = await stayingPlace(t)
  const server = await startStaying(t, place)
  const { run_id } = await stays(server, 'pid')
  await pidIn(place, 'pid')
  const [before] = await keeperPids(place)
  const text = await readFile(place.config, 'utf8')
  const ask = async (): Promise<string> => JSON.stringify((await server.ask('exec_status', { command: 'true', stay: true })).content)
  for (const changed of [`${text}\n# another\n`, `${text}\nno toml`, text.replace('allow_detach = true', '')]) {
    await writeFile(place.config, changed)
    assert.match(await ask(), /conflict: stay: .* nothing new stays until what it holds has ended/)
  }
  assert.equal((await listed(server)).length, 1)
  await writeFile(place.config, `${text}\n# another\n`)
  assert.equal((await server.run('exec_kill', { run_id })).signal, 'SIGTERM')
  assert.match(await ask(), /"success\\":true/)
  const [after] = await keeperPids(place)
  assert.ok(after !== undefined && after !== before)
  await writeFile(place.config, text.replace('allow_detach = true', ''))
  assert.match(await ask(), /internal: the keeper ended \(exit 2\) before it listened: .*\.log says why/)
  assert.deepEqual(await keeperPids(place), [])
})

test('a human sees what stays, and ends all of it', async (t) => {
  const place = await stayingPlace(t)
  assert.deepEqual(await runMcp(place, ['--kept']), { status: 0, stdout: 'nothing stays\n', stderr: '' })
  assert.deepEqual(await runMcp(place, ['--end-kept']), { status: 0, stdout: 'nothing stays\n', stderr: '' })
  assert.deepEqual(await keeperPids(place), [])
  for (const flags of [
    ['--kept', '--end-kept'],
    ['--kept', '--record', 'x'],
    ['--keep', '--check'],
    ['--end-kept', '--json'],
  ]) {
    const { status, stderr } = await runMcp(place, flags)
    assert.deepEqual([status, /(cannot be used|goes) with/.test(stderr)], [2, true], stderr)
  }
  const server = await startStaying(t, place)
  const { run_id } = await stays(server, 'pid')
  const pid = await pidIn(place, 'pid')
  await server.close()
  const { stdout } = await runMcp(place, ['--kept'])
  assert.match(stdout, new RegExp(`^${run_id}  running  since \\d{4}-.*Z  for 600 s  sh -c 'echo \\$\\$ > pid; exec sleep 300'\\n$`))
  const { kept } = JSON.parse((await runMcp(place, ['--kept', '--json'])).stdout) as { kept: Record<string, unknown>[] }
  assert.deepEqual(
    kept.map(({ run_id: id, state, timeout_ms, stays: goesOn }) => [id, state, timeout_ms, goesOn]),
    [[run_id, 'running', 600_000, true]],
  )
  assert.equal((await runMcp(place, ['--end-kept'])).stdout, 'what stayed is ended\n')
  assert.ok(!isAlive(pid))
  assert.deepEqual(await keeperPids(place), [])
  assert.ok(!(await readdir(place.keepers)).some((name) => name.endsWith('.sock')))
})

test('a keeper that is stopped while it starts leaves nothing, and is in the way of no other', async (t) => {
  const place = await stayingPlace(t)
  const args = [X0X, 'mcp', '--keep', '--whoami', DEFAULT_WHOAMI, '--config', place.config]
  for (const ms of [0, 60, 120, 180, 240, 300]) {
    const child = spawn(process.execPath, args, { stdio: 'ignore', env: { ...process.env, ...place.env } })
    await sleep(ms)
    child.kill('SIGTERM')
    await once(child, 'exit')
    assert.ok(child.signalCode === 'SIGTERM' || child.exitCode === 143, `${child.exitCode} ${child.signalCode}`)
  }
  const server = await startStaying(t, place)
  assert.equal((await server.run('exec_status', { command: 'true', stay: true })).success, true)
})

test('what runs is listed however much waits behind it, and how many are left out', async (t) => {
  const place = await stayingPlace(t, { limits: 'max_detached_processes = 1' })
  const server = await startStaying(t, place)
  const { run_id } = await stays(server, 'pid')
  await pidIn(place, 'pid')
  const more = Array.from({ length: 101 }, async () => stays(server, 'other'))
  await Promise.all(more)
  const { stdout } = await runMcp(place, ['--kept'])
  assert.match(stdout, new RegExp(`^${run_id}  running  `, 'm'))
  assert.match(stdout, /^and 2 that are not listed\n$/m)
  const { kept, not_listed } = JSON.parse((await runMcp(place, ['--kept', '--json'])).stdout) as { kept: unknown[]; not_listed: number }
  assert.deepEqual([kept.length, not_listed], [100, 2])
})

test('a lock that is none is said at once, and no keeper is started again and again', async (t) => {
  const place = await stayingPlace(t)
  const server = await startStaying(t, place)
  await server.run('exec_status', { command: 'true', stay: true })
  await runMcp(place, ['--end-kept'])
  const lock = (await readdir(place.keepers)).find((name) => name.endsWith('.lock')) ?? ''
  await writeFile(join(place.keepers, lock), 'no lock '.repeat(1_000))
  const { content } = await server.ask('exec_status', { command: 'true', stay: true })
  assert.match(JSON.stringify(content), /internal: the keeper ended \(exit 1\) before it listened: .*\.log says why/)
  const log = await readFile(join(place.keepers, lock.replace('.lock', '.log')), 'utf8')
  assert.match(log, /^x0x mcp: .*\.lock cannot be locked: file is not a database\n$/)
  await rm(join(place.keepers, lock))
})

test('a keeper whose log nobody can write holds what stays all the same', { skip: !existsSync('/dev/full') }, async (t) => {
  const place = await stayingPlace(t)
  const text = await readFile(place.config, 'utf8')
  // Of which it warns.
  await writeFile(place.config, text.replace('[audit]', '[audit]\nenabled = false'))
  const full = openSync('/dev/full', 'w')
  const args = [X0X, 'mcp', '--keep', '--whoami', DEFAULT_WHOAMI, '--config', place.config]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', full], env: { ...process.env, ...place.env } })
  closeSync(full)
  assert.ok(await soon(async () => child.exitCode !== null || (await keeperPids(place)).length === 1))
  const server = await startStaying(t, place)
  assert.equal((await server.run('exec_status', { command: 'true', stay: true })).success, true)
  assert.deepEqual(await keeperPids(place), [child.pid])
})
