import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { terminalProblem } from '../../src/process/terminal.ts'
import { ConsolePlace, RawClient, type Watched } from '../../test/support/console-place.ts'
import { isAlive, until } from '../../test/support/processes.ts'

// Ends of clients, hosts and commands: killed, slow, or several at once. A slow or dead one must not block the others.

const OPTIONS = { timeout: 60_000, skip: terminalProblem() ?? false }

/** A client whose command prints its PID and continues. `first` is a shell command that runs before. */
const goingOn = async (place: ConsolePlace, host: Watched, first = ':'): Promise<{ client: Watched; pid: number }> => {
  const script = `${first}; echo pid-$$; while :; do sleep 1; done`
  const client = place.begin(['--whoami', 'Codex', '--dir', place.dir, '--', 'sh', '-c', script])
  const [, pid] = await host.printed(/^\| pid-(\d+)$/m)
  return { client, pid: Number(pid) }
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  test(`a client that gets ${signal} aborts its command and says so`, OPTIONS, async (t) => {
    const place = await ConsolePlace.make(t)
    const { client, pid } = await goingOn(place, await place.host())
    client.child.kill(signal)
    const { status, stdout, stderr } = await client.ended
    assert.deepEqual([status, stdout, stderr], [{ SIGINT: 130, SIGTERM: 143, SIGHUP: 129 }[signal], `pid-${pid}\n`, 'rexec: aborted\n'])
    assert.equal(isAlive(pid), false)
    const [entry] = await place.entries(1)
    assert.deepEqual([entry?.exit, entry?.error], [143, 'aborted'])
  })

test('killing a client ends its command, even one that ignores SIGTERM', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const { client, pid } = await goingOn(place, await place.host(), 'trap "" TERM HUP')
  client.child.kill('SIGKILL')
  await until(() => !isAlive(pid))
  const [entry] = await place.entries(1)
  assert.deepEqual([entry?.exit, entry?.error], [137, 'aborted'])
})

test('a slow command does not delay others, and screen and transcript keep the order of arrival', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const host = await place.host()
  const gate = join(place.dir, 'gate')
  assert.equal(spawnSync('mkfifo', [gate]).status, 0)
  const slow = place.begin(['--whoami', 'Slow', '--dir', place.dir, '--', 'sh', '-c', `echo slow begins; cat ${gate}`])
  await host.printed(/^\| slow begins$/m)
  const fast = await Promise.all(
    ['one', 'two', 'three'].map(async (name) => place.rexec(['--whoami', name, '--dir', '/', '--', 'echo', `of ${name}`])),
  )
  assert.deepEqual(
    fast.map(({ stdout }) => stdout),
    ['of one\n', 'of two\n', 'of three\n'],
  )
  assert.equal(host.stdout.includes('$ echo'), false, 'the screen still has the slow one')
  await writeFile(gate, 'slow ends\n')
  assert.equal((await slow.ended).stdout, 'slow begins\nslow ends\n')
  for (const name of ['one', 'two', 'three']) await host.printed(new RegExp(`^\\| of ${name}\n\n`, 'm'))
  const shown = [...host.stdout.matchAll(/^\[.*Z\] (\w+):/gm)].map(([, name]) => name)
  assert.equal(shown[0], 'Slow')
  assert.deepEqual(shown.toSorted(), ['Slow', 'one', 'three', 'two'])
  assert.match(host.stdout, /^\| slow begins\n\| slow ends\n\n\[/m)
  const entries = await place.entries(4)
  assert.deepEqual(
    entries.map(({ whoami }) => whoami),
    shown,
  )
})

test('a second host is refused, a dead host is replaced, and the commands of the dead host end', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const first = await place.host()
  const second = await place.rexec(['--start-host'])
  assert.equal(second.status, 1)
  assert.match(second.stderr, /another host of this user is running/)
  assert.equal((await place.run(['echo', 'still'])).stdout, 'still\n')
  const { client, pid } = await goingOn(place, first)
  first.child.kill('SIGKILL')
  const ended = await client.ended
  assert.deepEqual([ended.status, ended.stderr], [127, 'rexec: the host ended before it replied; whether the command ran is not known\n'])
  await until(() => !isAlive(pid))
  await place.host()
  assert.equal((await place.run(['echo', 'again'])).stdout, 'again\n')
  const entries = await place.entries(2)
  assert.deepEqual(
    entries.map(({ output }) => output),
    ['still\n', 'again\n'],
  )
})

test('if several hosts start at once over the socket of a dead host, exactly one runs', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const dead = await place.host()
  dead.child.kill('SIGKILL')
  await dead.ended
  // A transcript is named after its second, and no transcript is overwritten.
  await sleep(1_100)
  const hosts = [1, 2, 3, 4].map(() => place.begin(['--start-host']))
  const runs = async (host: Watched): Promise<boolean> =>
    Promise.race([
      host.printed(/rexec transcript: /).then(
        () => true,
        () => false,
      ),
      host.ended.then(() => false),
    ])
  const running = await Promise.all(hosts.map(runs))
  assert.equal(running.filter(Boolean).length, 1)
  assert.equal((await place.run(['echo', 'served'])).stdout, 'served\n')
})

test('without a name the host listens in the session directory and in /tmp, and clients find either socket', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const shared = `/tmp/.rexec-${process.geteuid?.()}`
  if (existsSync(shared)) return t.skip(`a console of this user runs: ${shared}`)
  const env = { REXEC_SOCKET: '', XDG_RUNTIME_DIR: join(place.dir, 'runtime') }
  await mkdir(env.XDG_RUNTIME_DIR, { mode: 0o700 })
  const host = place.begin(['--start-host'], { env })
  const ended = host.ended.then(() => false)
  if (!(await Promise.race([host.printed(/rexec transcript: /).then(() => true), ended]).catch(() => false)))
    return t.skip(`another was faster: ${host.stderr}`)
  const own = join(env.XDG_RUNTIME_DIR, 'x0x-console', 'console.sock')
  assert.match(host.stderr, new RegExp(`^rexec host listening on ${own}\nrexec host listening on ${shared}$`, 'm'))
  for (const path of [own, shared]) assert.equal((await stat(path)).mode & 0o777, 0o600)
  for (const more of [env, { REXEC_SOCKET: '' }]) assert.equal((await place.rexec(['-c'], { env: more })).stdout, 'HOST RUNNING\n')
  const raw = new RawClient(shared)
  raw.send(place.request(['echo', 'of old']))
  assert.deepEqual(await raw.next(), { exit: 0, output: 'of old\n' })
  assert.equal(await raw.next(), null)
  host.child.kill('SIGINT')
  await host.ended
  assert.deepEqual([existsSync(own), existsSync(shared)], [false, false])
})

test('an attached client gets commands as they end, and the end of the host', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const host = await place.host(['--start-host', '--no-add-path'])
  await place.run(['echo', 'before'])
  const attached = place.begin(['--attach', '--no-color'])
  const raw = place.client()
  raw.send({ action: 'attach', ansi: true })
  // The client is attached once a later command is reported to it.
  await until(async () => {
    await place.run(['true'])
    return /\$ true/.test(attached.stdout)
  })
  await place.run(['printf', String.raw`\033[31mred\033[0m`], ['-e', 'SECRET=hunter2'])
  await attached.printed(/red/)
  const told = async (): Promise<{ event: string; entry: { output: string; envs: object } }> => {
    const line = await raw.next()
    assert.ok(line !== null)
    return line as Awaited<ReturnType<typeof told>>
  }
  let last = await told()
  while (last.entry.output === '') last = await told()
  const { output, envs } = last.entry
  assert.deepEqual([last.event, output, envs], ['transcript', '\u001b[31mred\u001b[0m', { SECRET: '[not recorded]' }])
  host.child.kill('SIGINT')
  const { status, stdout } = await attached.ended
  assert.deepEqual([status, stdout.includes('before'), stdout.includes('hunter2')], [0, false, false])
  assert.equal(await raw.next(), null)
  const nobody = await place.rexec(['--attach'])
  assert.equal(nobody.status, 127)
  assert.match(nobody.stderr, /^HOST NOT FOUND\n {2}no console of this user listens at .*\n {2}Try, in another terminal: .*x0x console\n$/)
})
