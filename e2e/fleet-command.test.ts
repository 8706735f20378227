import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { readLedger } from '../src/programs/x0x/fleet/ledger-file.ts'
import {
  cleanEnvironment,
  cliCommand,
  isRunning,
  MeshOfDaemons,
  until,
  type RunningCli,
  type TestDaemon,
} from '../test/support/mesh-of-daemons.ts'

// One command for many hosts from the view of a user at a terminal and of a script. Uses real daemons and the built command line.

let mesh: MeshOfDaemons
let alice: TestDaemon
let web: TestDaemon[]
let ticker: string
let exiter: string

const NAMES = ['web1', 'web2', 'web3', 'web4']

before(async () => {
  mesh = await MeshOfDaemons.create()
  ticker = await mesh.program('ticker', 'i=0; while :; do i=$((i+1)); echo "tick $i"; sleep 0.1; done')
  exiter = await mesh.program('exiter', 'echo to-stdout; echo to-stderr >&2; exit $1')
  alice = mesh.add('alice')
  await alice.start()
  web = NAMES.map((name) => mesh.add(name))
  await Promise.all(
    web.map(async (host) => {
      await host.writeAcl([{ agent: alice, commands: commandsOf(host) }])
      await host.start()
    }),
  )
  for (const host of web) {
    await alice.meet(host, 'known')
    await host.meet(alice, 'trusted')
  }
})

after(async () => mesh.stop())

/** The last host allows one command less. */
const commandsOf = (host: TestDaemon): string[][] => [
  ['echo', '<INT>'],
  ['cat'],
  [ticker],
  [exiter, '<INT>'],
  ...(host.name === 'web4' ? [] : [['pwd']]),
]

const ledgerIn = (name: string): string => join(mesh.root, name)
const endsIn = async (path: string): Promise<string[]> => (await readLedger(path)).state.ends().map(({ host, end }) => `${host} ${end}`)
const tickersOf = async (): Promise<number[]> => {
  const lines = (await Promise.all(web.map(async (host) => host.journal()))).flat()
  return lines.filter(({ event }) => event === 'started').map((line) => Number(line['pid']))
}
/** Starts a fan-out of which the first two hosts run the command, while the others have not started. */
const ticking = async (who: string, path: string): Promise<RunningCli> => {
  const running = alice.startCli(['exec', who, '--parallel', '2', '--ledger', path, '--', ticker])
  for (const host of ['web1', 'web2']) await running.printed(`${host}: tick 2`)
  return running
}
const noneRuns = async (): Promise<number> =>
  until('nothing of it runs any more', async () => (await tickersOf()).every((pid) => !isRunning(pid)) && 1)

test('each line of output starts with the name of its host, and the summary adds up', async () => {
  const result = await alice.cli(['exec', 'web[1-4]', '--', 'echo', '42'])
  assert.equal(result.status, 0, result.stderr)
  assert.deepEqual(
    result.stdout.toString().trimEnd().split('\n').toSorted(),
    NAMES.map((name) => `${name}: 42`),
  )
  assert.match(result.stderr, /^x0x: 4 hosts asked: 4 ran, 0 denied, 0 unreachable, 0 not started, 0 cancelled, 0 unknown; \d+ s\n$/)
})

test('an unknown host is an error before any host is asked', async () => {
  const before = (await web[0]!.journal()).length
  for (const words of [['web[1-5]'], ['web1', 'extra'], ['@nobody'], ['web[1-999999999]'], ['web[1-'], ['!web1']]) {
    const result = await alice.cli(['exec', ...words, '--', 'echo', '1'])
    assert.ok([2, 255].includes(result.status), result.stderr)
    assert.match(result.stderr, /^x0x: \S/)
  }
  assert.equal((await web[0]!.journal()).length, before)
})

test('the summary names each host with its reason, and --retry asks the hosts where the command certainly did not run', async () => {
  const path = ledgerIn('mixed.ledger')
  await web[2]!.stop()
  const first = await alice.cli(['exec', 'web[1-4]', '-g', '--ledger', path, '--', 'pwd'])
  assert.equal(first.status, 3, first.stderr)
  assert.equal(first.stdout.toString(), 'web[1-2] (2): /\n')
  assert.match(first.stderr, /^x0x: 4 hosts asked: 2 ran, 1 denied, 1 unreachable, 0 not started, 0 cancelled, 0 unknown; /)
  assert.match(
    first.stderr,
    /^ {5}denied \(1\): web4: argv_not_allowed: .*\n {7}Try: x0x --data-dir \S+ acl mine web4\n {7}Try, on web4: x0x acl explain --last$/m,
  )
  assert.match(first.stderr, /^ {5}unreachable \(1\): web3: /m)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  await web[2]!.start()
  await web[3]!.writeAcl([{ agent: alice, commands: [['pwd'], ...commandsOf(web[3]!)] }])
  await web[3]!.restart()
  const ran = (await web[0]!.journal()).length
  const again = await until('both are back', async () => {
    const result = await alice.cli(['exec', '--retry', path])
    return result.status === 0 && result
  })
  assert.match(again.stderr, /the whole ledger: 4 hosts asked: 4 ran/)
  assert.equal((await web[0]!.journal()).length, ran)
  assert.deepEqual(
    await endsIn(path),
    NAMES.map((name) => `${name} ran`),
  )
  assert.match((await alice.cli(['exec', '--retry', path])).stderr, /no host to retry/)
})

test('if its reader closes the pipe, a fan-out ends quietly and its commands end too', async () => {
  const line = [...cliCommand, ...alice.selector, 'exec', 'web[1-3]', '--', ticker].map((word) => `'${word}'`).join(' ')
  const child = spawn('sh', ['-c', `{ ${line}; echo "status $?" >&2; } | head -1`], {
    env: cleanEnvironment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (part: Buffer) => (stdout += part.toString()))
  child.stderr.on('data', (part: Buffer) => (stderr += part.toString()))
  await once(child, 'close')
  assert.match(stdout, /^web[1-3]: tick 1\n$/)
  assert.equal(stderr, 'status 141\n')
  await noneRuns()
})

test('a fan-out that is killed leaves a ledger with unknown and not started hosts, which --retry uses', async () => {
  const path = ledgerIn('killed.ledger')
  const running = await ticking('web[1-4]', path)
  running.child.kill('SIGKILL')
  await running.finished
  assert.deepEqual(await endsIn(path), ['web1 unknown', 'web2 unknown', 'web3 not_started', 'web4 not_started'])
  await noneRuns()
  const again = alice.startCli(['exec', '--retry', path])
  await again.printed('web4: tick 2')
  again.child.kill('SIGTERM')
  const result = await again.finished
  assert.equal(result.status, 143)
  assert.match(result.stderr, /2 hosts asked: 0 ran, 0 denied, 0 unreachable, 0 not started, 2 cancelled, 0 unknown/)
  assert.match(result.stderr, /the whole ledger: 4 hosts asked: 0 ran, 0 denied, 0 unreachable, 0 not started, 2 cancelled, 2 unknown/)
  await noneRuns()
})

test('--json prints one object with the result of each host', async () => {
  const result = await alice.cli(['exec', 'web[1-2]', '--json', '--', exiter, '9'])
  assert.equal(result.status, 1)
  const answer = JSON.parse(result.stdout.toString()) as { ok: boolean; failed: number; hosts: { host: string; stdout_b64: string }[] }
  assert.deepEqual([answer.ok, answer.failed, answer.hosts.length], [false, 2, 2])
  assert.equal(Buffer.from(answer.hosts[0]!.stdout_b64, 'base64').toString(), 'to-stdout\n')
})

test('labels and groups select hosts, before and after a restart', async () => {
  assert.match(await alice.ok('contacts', 'label', 'web1', 'role=web', 'site=ber'), /role=web site=ber/)
  await alice.ok('contacts', 'label', 'web2', 'role=web', 'site=ams')
  await alice.ok('contacts', 'label', 'web3', 'role=db')
  await alice.ok('contacts', 'label', 'web2', 'site=')
  assert.equal(await alice.ok('contacts', 'select', 'role=web'), 'web1  role=web site=ber\nweb2  role=web\n')
  assert.equal(await alice.ok('contacts', 'select', '--fold', 'web[1-2]', 'web3', '!site=ber'), 'web[2-3]\n')
  assert.match(await alice.ok('contacts', 'list'), /LABELS[^]*role=web site=ber/)

  await writeFile(join(alice.dir, 'groups.toml'), '[groups]\nweb = ["role=web"]\nall = ["@web", "web[3-3]"]\n', { mode: 0o600 })
  await alice.restart()
  assert.equal(await alice.ok('contacts', 'select', '@all', '!web2', '--fold'), 'web[1,3]\n')
  const { hosts: chosen } = JSON.parse(await alice.ok('--json', 'contacts', 'select', '@web')) as {
    hosts: { host: string; labels: object }[]
  }
  assert.deepEqual(
    chosen.map(({ host, labels }) => [host, labels]),
    [
      ['web1', { role: 'web', site: 'ber' }],
      ['web2', { role: 'web' }],
    ],
  )
  const words = await alice.ok('completion', 'words', '--', 'x0x', '--data-dir', alice.dir, 'contacts', 'select', 'web1,!')
  for (const word of ['web1,!@web', 'web1,!role=db', 'web1,!web3']) assert.ok(words.includes(`${word}\t`), words)
})
