import assert from 'node:assert/strict'
import { rename } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import type { Pinged } from '../src/dm/pings.ts'
import { aliceBobCharlie, MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

// What an operator looks at and stops, by the command line: alice may ask bob, charlie may not.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let charlie: TestDaemon
let waits = ''

before(async () => {
  mesh = await MeshOfDaemons.create()
  waits = await mesh.program('waits', 'echo ready; exec sleep 1000')
  ;({ alice, bob, charlie } = await aliceBobCharlie(mesh, [[waits], ['echo', '<INT>']]))
  await bob.writeAcl([{ agent: alice, commands: [[waits], ['echo', '<INT>']], keys: 'discoverable = true\n' }])
  await bob.restart()
})

after(async () => mesh.stop())

interface Incoming {
  readonly sessions: readonly { readonly request_id: string; readonly name: string; readonly argv: readonly string[] }[]
}

test('what runs here for another is listed and ended by its id; the other side is told who did it, with 255', async () => {
  assert.match(await bob.ok('exec', 'sessions', '--incoming'), /^nothing runs here for another agent\n$/)
  const run = alice.startCli(['exec', 'bob', '--', waits])
  await run.printed('ready')
  const { sessions } = await bob.json<Incoming>('exec', 'sessions', '--incoming')
  assert.deepEqual(
    sessions.map(({ name, argv }) => [name, argv]),
    [['alice', [waits]]],
  )
  const id = sessions[0]!.request_id
  assert.match(
    await bob.ok('exec', 'sessions', '--incoming'),
    new RegExp(`^REQUEST .*\\n${id} +alice +running +\\S+ +${waits}\\nend one: `),
  )
  const key = join(bob.dir, 'operator.key')
  await rename(key, `${key}.away`)
  const unproven = await bob.cli(['exec', 'cancel', id])
  await rename(`${key}.away`, key)
  assert.equal(unproven.status, 1)
  assert.match(unproven.stderr, /no run under that id[^]*only an operator may see: .*operator\.key is missing/)
  assert.equal(await bob.ok('exec', 'cancel', id), `asked to end: ${waits}, for alice\n`)
  const { status, stderr } = await run.finished
  assert.equal(status, 255)
  assert.match(stderr, /^x0x: ended_by_operator: the operator there ended the command; .*\(SIGTERM\)\n$/)
  const gone = await bob.cli(['exec', 'cancel', id])
  assert.equal(gone.status, 1)
  assert.match(gone.stderr, /^x0x: nothing runs here for another agent under that id/)
  assert.match(await bob.ok('audit', 'tail'), /authority .*exec_incoming_cancel/)
})

test('what would be decided is told with its reason and what changes it, and the exit status says which', async () => {
  const evaluate = async (who: TestDaemon, agent: string, machine: string) => {
    const { status, stdout, stderr } = await who.cli(['--json', 'trust', 'evaluate', agent, machine])
    const { decision, cause, in_acl } = JSON.parse(stdout.toString()) as Record<string, unknown>
    return [status, decision, cause, in_acl, stderr]
  }
  assert.deepEqual(await evaluate(bob, 'alice', alice.machineId), [0, 'accept', 'trusted_and_pinned', true, ''])
  assert.deepEqual(await evaluate(bob, 'charlie', charlie.machineId), [0, 'accept', 'trusted_and_pinned', false, ''])
  assert.deepEqual(await evaluate(bob, 'alice', charlie.machineId), [5, 'reject_machine_mismatch', 'pinned_elsewhere', false, ''])
  assert.deepEqual(await evaluate(alice, 'bob', bob.machineId), [3, 'accept_with_flag', 'known', false, ''])
  assert.deepEqual(await evaluate(alice, charlie.agentId, charlie.machineId), [4, 'unknown', 'no_contact', false, ''])
  assert.deepEqual(await evaluate(bob, bob.agentId, bob.machineId), [0, 'accept', 'own_agent', false, ''])
  const shown = await alice.cli(['trust', 'evaluate', 'bob', bob.machineId])
  assert.match(
    shown.stdout.toString(),
    /^accept_with_flag .*trust_rejected.*\nagent +bob \([0-9a-f]{64}\)\nwhy .*\nacl .*\nmend +x0x contacts trust bob trusted\n$/,
  )
})

test('a ping tells the round trip, the way, both versions; who is not accepted there gets nothing and is told where to look', async () => {
  const answer = await alice.json<{ readonly answered: number; readonly last: Pinged }>('ping', 'bob', '-c', '2', '-i', '0.1')
  const { machine_id, decision, path, version, own_version, clock_ahead_ms } = answer.last
  assert.deepEqual([answer.answered, machine_id, decision, version], [2, bob.machineId, 'accept_with_flag', own_version])
  assert.ok(path?.direct === true && path.address.startsWith('/ip4/127.0.0.1/tcp/'), JSON.stringify(path))
  assert.ok(Math.abs(clock_ahead_ms) < 1_000)
  const shown = await alice.ok('ping', 'bob', '-c', '1')
  assert.match(
    shown,
    /^bob: seq=1 time=\S+ ms  \/ip4\/\S+ direct.*\n1 asked, 1 answered; [^\n]*\nmachine [0-9a-f]{64}, here accept_with_flag; [^\n]*its clock is ours\n$/,
  )
  assert.match(await alice.ok('ping', alice.agentId, '-c', '1'), /this agent itself/)
  // Charlie knows bob, and alice knows nobody of that name.
  await alice.meet(charlie, 'known')
  const stranger = await alice.cli(['ping', 'charlie', '-c', '1'])
  assert.equal(stranger.status, 255)
  assert.match(stranger.stdout.toString(), /^charlie: seq=1 peer_rejected\n$/)
  assert.match(stranger.stderr, /does not accept this agent on this machine[^]*there: x0x trust evaluate AGENT MACHINE/)
  assert.equal((await charlie.get<{ readonly pings_ignored: number }>('/diagnostics/dm')).pings_ignored, 1)
  assert.equal((await alice.cli(['ping', 'nobody'])).status, 1)
  for (const flags of [
    ['-c', '0'],
    ['-i', '0.01'],
  ])
    assert.equal((await alice.cli(['ping', 'bob', ...flags])).status, 2)
})

interface Findings {
  readonly ok: boolean
  readonly findings: readonly { readonly standing: string; readonly topic: string; readonly text: string; readonly remedy: string | null }[]
}

const examined = async (who: TestDaemon, ...argv: readonly string[]) => {
  const { status, stdout, stderr } = await who.cli(['--json', 'doctor', ...argv])
  assert.ok(stdout.length > 0, stderr)
  const { ok, findings } = JSON.parse(stdout.toString()) as Findings
  for (const { standing, remedy } of findings) assert.equal(remedy === null, standing === 'ok')
  return { status, ok, of: (topic: string) => findings.find((finding) => finding.topic === topic), findings }
}

test('a relation is examined from both ends, each finding with what mends it; a command by the rules that are told', async () => {
  const good = await examined(alice, 'bob', '--', 'echo', '7')
  assert.deepEqual([good.status, good.ok], [0, true], JSON.stringify(good.findings))
  for (const topic of ['here', 'contact', 'addresses', 'link', 'ping', 'versions', 'clock', 'trust there', 'command'])
    assert.equal(good.of(topic)?.standing, 'ok', topic)
  // Alice only knows bob: what he asked of her would be denied.
  const { standing, remedy } = good.of('trust here') ?? {}
  assert.deepEqual([standing, remedy], ['warn', 'x0x contacts trust bob trusted'])
  const other = await examined(alice, 'bob', '--', 'date')
  assert.match(`${other.of('command')?.standing} ${other.of('command')?.remedy}`, /^warn there .*x0x acl explain .* -- date$/)
  assert.equal((await examined(alice, 'bob', '--', 'a;b')).of('command')?.standing, 'fail')
  // Charlie does not trust alice; his daemon then ends.
  const stranger = await examined(alice, 'charlie')
  assert.equal(stranger.status, 1)
  assert.equal(stranger.of('ping')?.standing, 'fail')
  assert.match(stranger.of('trust there')?.remedy ?? '', new RegExp(`x0x contacts pin NAME ${alice.machineId}$`))
  await charlie.stop()
  const gone = await examined(alice, 'charlie')
  assert.deepEqual([gone.status, gone.of('link')?.standing], [1, 'fail'])
  assert.match(gone.of('link')?.remedy ?? '', /x0xd --doctor/)
  assert.match((await alice.cli(['doctor', 'charlie'])).stdout.toString(), /\nfail +link +[^\n]*\n +-> on its machine/)
  await charlie.start()
})
