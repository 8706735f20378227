import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { MeshOfDaemons, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let chatter: string

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  chatter = await mesh.program('chatter', 'head -c $1 /dev/zero; head -c $2 /dev/zero >&2; exit 3')
  await alice.start()
  await bob.writeAcl(
    [
      {
        agent: alice,
        commands: [
          [chatter, '<INT>', '<INT>'],
          ['sleep', '<INT>'],
        ],
      },
    ],
    'max_stdout_bytes = 1000\nmax_stderr_bytes = 1000\nwarn_stdout_bytes = 500\nwarn_stderr_bytes = 500\nmax_concurrent_per_agent = 2\nmax_concurrent_total = 2\nmax_duration_secs = 30\n',
  )
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
})

after(async () => mesh.stop())

interface Result {
  readonly truncated: boolean
  readonly code: number
  readonly stdout_bytes_total: number
  readonly warnings: readonly string[]
  readonly stdout_b64: string
}

const runJson = async (...argv: readonly string[]): Promise<Result> => {
  const result = await alice.exec(bob, [chatter, ...argv], ['--json'])
  assert.equal(result.status, 3, result.stderr)
  return JSON.parse(result.stdout.toString()) as Result
}

test('output above the cap is cut here and counted there', async () => {
  const before = (await bob.diagnostics()).totals
  const result = await runJson('1001', '1')
  assert.equal(result.truncated, true)
  assert.equal(result.stdout_bytes_total, 1001)
  assert.equal(Buffer.from(result.stdout_b64, 'base64').length, 1000)
  assert.deepEqual(result.warnings, ['stdout_approaching_cap', 'stdout_cap_hit'])
  const { totals } = await bob.diagnostics()
  assert.equal(totals.cap_breaches['stdout'], (before.cap_breaches['stdout'] ?? 0) + 1)
  assert.equal(totals.cap_warnings['stdout_approaching'], (before.cap_warnings['stdout_approaching'] ?? 0) + 1)
})

test('output of exactly the cap is whole', async () => {
  const result = await runJson('1000', '1000')
  assert.equal(result.truncated, false)
  assert.deepEqual(result.warnings.toSorted(), ['stderr_approaching_cap', 'stdout_approaching_cap'])
})

test('a warning comes while the command goes on, and its exit status is kept', async () => {
  const result = await alice.exec(bob, [chatter, '2000', '2000'])
  assert.equal(result.status, 3)
  assert.equal(result.stdout.length, 1000)
  for (const kind of ['stdout_approaching_cap', 'stdout_cap_hit', 'stderr_approaching_cap', 'stderr_cap_hit']) {
    assert.equal(result.stderr.split(`x0x: warning: ${kind}: `).length, 2, kind)
  }
})

test('a cut is said also with --quiet, and with --json on standard error', async () => {
  for (const flags of [['-q'], ['--json'], ['--json', '-q']]) {
    const result = await alice.exec(bob, [chatter, '1001', '1001'], flags)
    assert.equal(result.status, 3)
    for (const stream of ['stdout', 'stderr'])
      assert.match(result.stderr, new RegExp(`x0x: warning: ${stream}_cap_hit: ${stream} reached its cap`))
    assert.doesNotMatch(result.stderr, /approaching/)
    assert.doesNotMatch((await alice.exec(bob, [chatter, '1000', '1000'], flags)).stderr, /x0x/)
  }
})

test('one command more than may run at once is denied, and a slot given back is free', async () => {
  const sleepers = [1, 2].map(() => alice.startCli(['exec', 'bob', '--', 'sleep', '20']))
  await until('both run', async () => (await bob.diagnostics()).active_sessions === 2)
  const third = await alice.exec(bob, ['sleep', '1'])
  assert.equal(third.status, 255)
  assert.match(third.stderr, /concurrency_limit_reached/)
  for (const { child } of sleepers) child.kill('SIGINT')
  await Promise.all(sleepers.map(async ({ finished }) => finished))
  assert.equal((await alice.exec(bob, ['sleep', '1'])).status, 0)
})
