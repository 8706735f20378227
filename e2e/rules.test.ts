import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { httpCall } from '../src/clients/http1.ts'
import { aliceBobCharlie, MeshOfDaemons, type ExecDiagnosticsJson, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

// "Which commands may I run there?" on three real daemons and the real command line.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let charlie: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob, charlie } = await aliceBobCharlie(mesh, [['echo', '<INT>']]))
  await bob.writeAcl(
    [
      {
        agent: alice,
        commands: [
          ['echo', '<INT>'],
          ['printf', 'n%s', '<URL_PATH>'],
        ],
        description: 'Echoes a number.',
        keys: 'discoverable = true\nmax_duration_secs = 7\ndetach = true\nmax_detach_secs = 60\n',
      },
      { agent: alice, commands: [['hostname']], description: 'not told of' },
    ],
    'max_stdin_bytes = 0\n',
  )
  await bob.restart()
})

after(async () => mesh.stop())

interface Told {
  readonly ok: boolean
  readonly request_id: string
  readonly denial_reason: string | null
  readonly rules: readonly { readonly argv: readonly string[]; readonly description: string | null }[]
  readonly left_out: number
}

test('acl mine shows what the target tells, a human and a program, and what it says runs', async () => {
  const shown = await alice.ok('acl', 'mine', 'bob')
  assert.deepEqual(shown.split('\n').slice(0, 3), [
    'COMMAND                TIME  STDOUT  STDERR  STDIN  DETACH       DESCRIPTION (as it is said there)',
    'echo <INT>             7 s   16 MiB  16 MiB  none   60 s, 8 MiB  Echoes a number.',
    'printf n%s <URL_PATH>  7 s   16 MiB  16 MiB  none   60 s, 8 MiB  Echoes a number.',
  ])
  assert.match(shown, /^<INT>: 1 to 999999/m)
  assert.match(shown, /^run one: x0x exec bob -- COMMAND$/m)
  assert.doesNotMatch(shown, /hostname|not told/)
  const answer = JSON.parse(await alice.ok('acl', 'mine', bob.agentId.slice(0, 12), '--json')) as Told
  assert.deepEqual(
    [answer.ok, answer.left_out, answer.rules.map(({ argv }) => argv)],
    [
      true,
      0,
      [
        ['echo', '<INT>'],
        ['printf', 'n%s', '<URL_PATH>'],
      ],
    ],
  )
  assert.equal((await alice.ok('exec', 'bob', '--', 'echo', '414')).trim(), '414')
  // What is allowed and not told of runs all the same.
  await alice.ok('exec', 'bob', '--', 'hostname')
  const line = (await bob.journal()).find(({ request_id }) => request_id === answer.request_id)
  assert.deepEqual([line?.event, line?.['listed'], line?.['agent_id']], ['rules', 2, alice.agentId])
  const { totals } = JSON.parse(await bob.ok('diagnostics', 'exec', '--json')) as ExecDiagnosticsJson & { totals: Record<string, number> }
  assert.equal(totals['rules_answered'], 2)
  assert.match(await alice.ok('audit', 'tail', '--outgoing', '--json'), /"rules_asked"/)
})

test('who is trusted and not listed is told nothing, and what to ask for', async () => {
  const shown = await charlie.ok('acl', 'mine', 'bob')
  assert.match(shown, /^bob tells of no command that this agent may run there from this machine\n/)
  assert.ok(shown.includes(`agent_id = "${charlie.agentId}"`) && shown.includes(`machine_id = "${charlie.machineId}"`), shown)
  const { ok, rules, left_out } = JSON.parse(await charlie.ok('acl', 'mine', 'bob', '--json')) as Told
  assert.deepEqual({ ok, rules, left_out }, { ok: true, rules: [], left_out: 0 })
})

test('who is not trusted is denied, an unknown agent and one that does not answer are errors, as for exec', async () => {
  const denied = await bob.cli(['acl', 'mine', 'alice'])
  assert.equal(denied.status, 255)
  assert.match(denied.stderr, /^x0x: \S+ denied the request \(trust_rejected\): /)
  assert.equal((JSON.parse((await bob.cli(['acl', 'mine', 'alice', '--json'])).stdout.toString()) as Told).denial_reason, 'trust_rejected')
  const unknown = await alice.cli(['acl', 'mine', 'nobody'])
  assert.equal(unknown.status, 255)
  assert.match(unknown.stderr, /no contact is named "nobody"/)
  const nowhere = await alice.cli(['acl', 'mine', 'ab'.repeat(32)])
  assert.equal(nowhere.status, 255)
  await charlie.stop()
  const gone = await alice.cli(['acl', 'mine', charlie.agentId])
  assert.equal(gone.status, 255)
  assert.match(gone.stderr, /x0x: cannot connect to |no address/)
})

test('the route wants one agent and knows no other parameter', async () => {
  const token = (await readFile(join(alice.dir, 'api-token'), 'utf8')).trim()
  for (const query of ['', '?agent=bob&agent_id=' + bob.agentId, '?agent=bob&agent=bob', '?agent=bob&x=1', '?agent_id=short']) {
    const { status } = await httpCall(
      { host: '127.0.0.1', port: alice.apiPort },
      { method: 'GET', path: `/exec/rules${query}`, headers: { host: `127.0.0.1:${alice.apiPort}`, authorization: `Bearer ${token}` } },
    )
    assert.equal(status, 400, query)
  }
})
