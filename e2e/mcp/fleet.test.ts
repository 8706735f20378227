import assert from 'node:assert/strict'
import { after, before, test, type TestContext } from 'node:test'

import type { FleetAnswer } from '../../src/doors/tools/fleet-answers.ts'
import type { FleetResult } from '../../src/doors/tools/tool-fleet.ts'
import { jsonIn, startMcp, type McpServer, type McpSettings } from '../../test/support/mcp-server.ts'
import { MeshOfDaemons, until, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'

// One call for many hosts. Each host is asked, allowed or denied alone, and equal answers are grouped.

type Told = FleetResult & { readonly success: boolean; readonly state: string; readonly fleet_id: string; readonly parallel: number }

let mesh: MeshOfDaemons
let alice: TestDaemon
let web: readonly TestDaemon[]
let pid: string

before(async () => {
  mesh = await MeshOfDaemons.create()
  alice = mesh.add('alice')
  web = ['web1', 'web2', 'web3', 'db1', 'off1'].map((name) => mesh.add(name))
  pid = await mesh.program('pid', 'echo $$; seq 5000')
  await alice.start()
  const asked = { agent: alice, commands: [['echo', 'asked']], description: 'asked', keys: 'ask = "always"\n' }
  await Promise.all(
    web.map(async (daemon) => {
      const commands = [['echo', '<INT>'], ['sleep', '<INT>'], ...(daemon.name === 'web3' ? [] : [['wc', '-c'], ['false'], [pid]])]
      await daemon.writeAcl([{ agent: alice, commands }, asked])
      await daemon.start()
      await daemon.meet(alice, 'trusted')
      await alice.meet(daemon, 'known')
    }),
  )
  await web[4]!.stop()
})

after(async () => mesh.stop())

/** `db1` is allowed only by its ID, `off1` does not run, and alice herself is not an allowed target. */
const beside = async (t: TestContext, more: McpSettings = {}): Promise<McpServer> => {
  const security = `allow_targets = ["web1", "web2", "web3", ${JSON.stringify(web[3]!.agentId)}, "off1"]\n`
  return startMcp(t, { security, ...more }, { env: { X0X_DATA_DIR: alice.dir } })
}

const told = async (server: McpServer, args: Record<string, unknown>, name = 'exec_fleet'): Promise<Told> => {
  const answer = await server.ask(name, args)
  assert.deepEqual(jsonIn(answer), answer.structuredContent, JSON.stringify(answer.content))
  const result = answer.structuredContent as Told
  const { asked, ran, denied, unreachable, not_started, cancelled, unknown, going } = result
  assert.equal(ran + denied + unreachable + not_started + cancelled + unknown + going, asked)
  assert.equal(answer.isError, result.state === 'ended' && ran < asked)
  return result
}

const shape = ({ hosts, count, exit_code, stdout }: FleetAnswer): unknown[] => [hosts, count, exit_code, stdout]
const reasons = ({ not_run }: Told): unknown[] => not_run.map(({ end, hosts, reason }) => [end, hosts, reason]).toSorted()

test('equal answers are grouped, and each host that did not run the command is named with a reason', async (t) => {
  const server = await beside(t)
  await alice.ok('contacts', 'label', 'db1', 'role=db')
  const all = await told(server, { hosts: ['web[1-3]', 'role=db', '!web3'], command: 'echo', args: ['42'] })
  assert.deepEqual([all.success, all.state, all.asked, all.ran, all.failed], [true, 'ended', 3, 3, 0])
  assert.deepEqual(all.answers.map(shape), [['db1,web[1-2]', 3, 0, '42\n']])
  const { structuredContent } = await server.ask('exec_output', { run_id: all.answers[0]!.run_id })
  assert.equal((structuredContent as { text: string }).text, '42\n')

  const mixed = await told(server, { hosts: ['web[1-3],off1', alice.agentId, 'db1'], command: 'wc', args: ['-c'], stdin: 'twelve bytes' })
  assert.deepEqual([mixed.success, mixed.ran, mixed.denied, mixed.unreachable], [false, 3, 2, 1])
  assert.deepEqual(mixed.answers.map(shape), [['db1,web[1-2]', 3, 0, '12\n']])
  assert.deepEqual(reasons(mixed), [
    ['denied', alice.agentId, 'unsupported_capability'],
    ['denied', 'web3', 'argv_not_allowed'],
    ['unreachable', 'off1', 'peer_unreachable'],
  ])
  assert.match(String(mixed.not_run.find(({ hosts }) => hosts === alice.agentId)?.detail), /not in security\.allow_targets/)

  const failed = await told(server, { hosts: ['web[1-2]'], command: 'false' })
  assert.deepEqual([failed.success, failed.ran, failed.failed, failed.answers[0]?.exit_code], [false, 2, 2, 1])
})

test('each host has its own lines in both journals, and a repeated key asks no host twice', async (t) => {
  const server = await beside(t)
  const asked = { hosts: ['web[1-2]', alice.agentId], command: 'echo', args: ['4711'], idempotency_key: 'once' }
  const first = await told(server, asked)
  assert.equal((await told(server, asked)).fleet_id, first.fleet_id)
  const conflict = await server.ask('exec_fleet', { ...asked, args: ['1'] })
  assert.match(JSON.stringify(conflict.content), /conflict: idempotency_key/)
  const lines = await server.lines()
  const requests = lines.filter((line) => line.event === 'request' && 'argv' in line && String(line.argv) === 'echo,4711')
  assert.deepEqual(requests.map((line) => 'target' in line && line.target).toSorted(), ['web1', 'web2'])
  assert.equal(lines.filter(({ event }) => event === 'refused').length, 1)
  // A later server of the same name finds the results.
  const place = { dir: server.dir, root: server.root, config: server.config, journal: server.journal }
  await server.close()
  const later = await startMcp(t, {}, { place, env: { X0X_DATA_DIR: alice.dir } })
  const again = await told(later, asked)
  assert.deepEqual([again.ran, again.failed, again.denied], [2, 0, 1])
  for (const daemon of web.slice(0, 2)) {
    const there = (await daemon.journal()).filter(({ event, argv }) => event === 'request' && String(argv) === 'echo,4711')
    assert.equal(there.length, 1, daemon.name)
  }
})

const sleeping = async (daemon: TestDaemon, argv: string, event: string): Promise<boolean> => {
  const lines = await daemon.journal()
  const request = lines.find((line) => line.event === 'request' && String(line['argv']) === argv)
  return request !== undefined && lines.some((line) => line.event === event && line.request_id === request.request_id)
}

test('a call that is cancelled ends its running commands and starts no more', async (t) => {
  const server = await beside(t)
  const cancel = new AbortController()
  const progress: string[] = []
  const onprogress = ({ message }: { message?: string | undefined }): void => void progress.push(message ?? '')
  const args = { hosts: ['web[1-2]', 'db1'], command: 'sleep', args: ['295'], timeout_seconds: 300, parallel: 2 }
  const call = server.ask('exec_fleet', args, { signal: cancel.signal, onprogress })
  await until('two run', async () =>
    (await Promise.all(web.slice(0, 2).map((one) => sleeping(one, 'sleep,295', 'started')))).every(Boolean),
  )
  assert.match(String(progress[0]), /^0 of 3 hosts have ended/)
  cancel.abort()
  await assert.rejects(call)
  await until('both ended', async () =>
    (await Promise.all(web.slice(0, 2).map((one) => sleeping(one, 'sleep,295', 'exit')))).every(Boolean),
  )
  assert.equal(await sleeping(web[3]!, 'sleep,295', 'started'), false)
})

test('exec_fleet_wait can cancel a fleet command, and reports how each host ended', async (t) => {
  const server = await beside(t)
  const args = { hosts: ['web[1-2]', 'db1'], command: 'sleep', args: ['296'], timeout_seconds: 300, parallel: 2, answer_within_ms: 0 }
  const { fleet_id } = await told(server, args)
  await until('two run', async () =>
    (await Promise.all(web.slice(0, 2).map((one) => sleeping(one, 'sleep,296', 'started')))).every(Boolean),
  )
  const ended = await told(server, { fleet_id, cancel: true }, 'exec_fleet_wait')
  assert.deepEqual(reasons(ended), [
    ['cancelled', 'web[1-2]', null],
    ['not_started', 'db1', 'fanout_cancelled'],
  ])
})

test('output is bounded for each answer and in total, and exec_output returns the rest', async (t) => {
  const server = await beside(t)
  const bounded = await told(server, { hosts: ['web[1-2]', 'db1'], command: pid, max_stdout_bytes: 1_000, max_total_bytes: 2_500 })
  assert.deepEqual(
    bounded.answers.map(({ count }) => count),
    [1, 1, 1],
  )
  const [one, , last] = bounded.answers
  assert.match(one!.stdout, /bytes are left out/)
  assert.ok(one!.stdout.length < 1_100 && one!.stdout_omitted_bytes > 20_000)
  assert.deepEqual([last!.stdout, last!.stdout_omitted_bytes > 23_000], ['', true])
  const { structuredContent } = await server.ask('exec_output', { run_id: last!.run_id, max_bytes: 100_000 })
  assert.match((structuredContent as { text: string }).text, /^\d+\n1\n2\n[^]*\n5000\n$/)
})
