import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'

import { EXEC_COUNTERS } from '../src/executor/exec-counters.ts'
import { DM_COUNTERS } from '../src/links/counters.ts'
import { NETWORK_METRICS } from '../src/doors/rest/metrics.ts'
import { REQUESTER_COUNTERS } from '../src/exec/counters.ts'
import { EXEC_METRICS } from '../src/executor/views.ts'
import { DatagramReceiver } from '../test/support/datagram-receiver.ts'
import { TraceCollector, type Span } from '../test/support/trace-collector.ts'
import { tempDir } from '../test/support/temp-dir.ts'
import { MeshOfDaemons, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { readAnswer, response } from '../test/support/rest-server.ts'

const perl = existsSync('/usr/bin/perl')

const scrape = async ({ dir }: TestDaemon): Promise<string> => {
  const token = (await readFile(join(dir, 'metrics-token'), 'utf8')).trim()
  const asked = request({
    socketPath: join(dir, 'api.sock'),
    path: '/metrics',
    headers: { host: 'localhost', authorization: `Bearer ${token}` },
  })
  asked.end()
  const answer = await readAnswer(await response(asked))
  assert.equal(answer.status, 200, answer.text)
  return answer.text
}

const samplesOf = (text: string): Map<string, number> =>
  new Map(
    text.split('\n').flatMap((line) => {
      const at = line.lastIndexOf(' ')
      return line === '' || line.startsWith('#') ? [] : [[line.slice(0, at), Number(line.slice(at))] as const]
    }),
  )

test('a collector with the metrics token reads the numbers of the diagnostics and no names', { timeout: 120_000 }, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const socket = join(await tempDir(t), 'log.sock')
  const env = { X0X_METRICS_TOKEN: 'true', X0X_LOG_LEVEL: 'info', ...(perl ? { X0X_SYSLOG: socket } : {}) }
  const syslog = perl ? await DatagramReceiver.start(t, socket) : null
  const collector = await TraceCollector.start(t)
  const otlp = { X0X_OTLP: collector.url }
  const [alice, bob] = [mesh.add('alice', { env: otlp }), mesh.add('bob', { env: { ...env, ...otlp } })]
  await alice.start()
  await bob.writeAcl([{ agent: alice, commands: [['echo', '<INT>'], ['false']], keys: 'detach = true\n' }])
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
  assert.equal((await stat(join(bob.dir, 'metrics-token'))).mode & 0o777, 0o600)
  await assert.rejects(stat(join(alice.dir, 'metrics-token')), { code: 'ENOENT' })
  for (const argv of [['echo', '7'], ['false'], ['echo', 'secret-word']]) await alice.exec(bob, argv)
  await until('the slots are free', async () => (await bob.diagnostics()).active_sessions === 0)

  const diagnosed = async (): Promise<Record<string, unknown>[]> =>
    Promise.all(
      ['exec', 'dm'].map(async (what) => JSON.parse((await bob.ok('--json', 'diagnostics', what)) || '{}') as Record<string, unknown>),
    )
  const before = await diagnosed()
  const text = await scrape(bob)
  const samples = samplesOf(text)
  await t.test('each counter equals that of the diagnostics', async () => {
    // Presence messages and lease renewals continue during the test.
    const between = (metric: string, read: (diagnostics: Record<string, unknown>[]) => unknown): void => {
      const [least, value, most] = [Number(read(before)), samples.get(metric)!, Number(read(after))]
      assert.ok(least <= value && value <= most, `${metric}: ${least} ≤ ${value} ≤ ${most}`)
    }
    const after = await diagnosed()
    const totals = (all: Record<string, unknown>[]) => all[0]!['totals'] as Record<string, unknown>
    for (const name of Object.keys(EXEC_COUNTERS)) between(`x0x_exec_${name}_total`, (all) => totals(all)[name])
    for (const name of Object.keys(REQUESTER_COUNTERS))
      between(`x0x_requester_${name}_total`, ([exec]) => (exec!['requester'] as Record<string, number>)[name])
    for (const name of Object.keys(DM_COUNTERS)) between(`x0x_dm_${name}_total`, ([, dm]) => dm![name])
    assert.deepEqual(totals(after)['denial_breakdown'], { argv_not_allowed: 1 })
  })
  await t.test('runs are counted by how they ended', () => {
    const numbers = {
      'x0x_exec_denials_total{reason="argv_not_allowed"}': 1,
      'x0x_exec_denials_total{reason="trust_rejected"}': 0,
      'x0x_exec_outcomes_total{outcome="succeeded"}': 1,
      'x0x_exec_outcomes_total{outcome="failed"}': 1,
      'x0x_exec_output_bytes_total{stream="stdout"}': 2,
      x0x_exec_duration_seconds_count: 2,
      'x0x_exec_duration_seconds_bucket{le="+Inf"}': 2,
      'x0x_journal_writable{journal="exec"}': 1,
      x0x_exec_network_halves_total: 1,
      x0x_exec_sessions_active: 0,
      x0x_dm_links: 1,
    }
    for (const [name, value] of Object.entries(numbers)) assert.equal(samples.get(name), value, name)
    for (const process of ['executor', 'network'])
      assert.ok(samples.get(`x0x_process_resident_memory_bytes{process="${process}"}`)! > 1e6, process)
  })
  await t.test('every metric is present, and none contains an agent, a machine, a command or a path', () => {
    const told = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => `${name} ${type}`)
    const known = new Set([...NETWORK_METRICS, ...EXEC_METRICS].map(({ name, type }) => `${name} ${type}`))
    assert.deepEqual(told, [...known])
    for (const secret of [alice.agentId, alice.machineId, bob.agentId, bob.machineId, 'echo', 'secret-word', bob.dir, 'alice'])
      assert.ok(!text.includes(secret.slice(0, 16)), secret)
  })
  await t.test('log lines about a run have the same request ID as the audit log', async () => {
    const logged = (await bob.log())
      .split('\n')
      .flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as Record<string, unknown>] : []))
    const ofRuns = logged.filter(({ request_id }) => request_id !== undefined).map(({ request_id, msg }) => [request_id, msg])
    const journal = await bob.journal()
    const said: Record<string, string> = { started: 'a program was started', exit: 'a program has ended', denial: 'a request was denied' }
    const expected = journal.flatMap(({ event, request_id }) => (said[event] === undefined ? [] : [[request_id, said[event]]]))
    assert.equal(expected.length, 5)
    assert.deepEqual(ofRuns.toSorted(), expected.toSorted())
  })
  await t.test(
    'syslog gets a copy of every journal line except signatures',
    { skip: syslog === null ? 'there is no perl' : false },
    async () => {
      const read = async (file: string) =>
        (await readFile(join(bob.dir, file), 'utf8'))
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as Record<string, unknown>)
      const lines = (await Promise.all(['exec.log', 'requests.jsonl', 'approvals.jsonl'].map(read)))
        .flat()
        .filter(({ event }) => event !== 'head')
      const names = lines.map(({ chain, event, n }) => `${String(event)} [x0x@32473 chain="${String(chain)}" n="${String(n)}"`)
      await syslog!.has((messages) => messages.length >= names.length)
      const told = syslog!.messages.map((message) =>
        message.replace(/^<8[4-6]>1 \S+ \S+ x0xd \d+ (\S+ \[x0x@32473 chain="[^"]+" n="\d+").*$/, '$1'),
      )
      for (const name of names) assert.ok(told.includes(name), name)
      assert.equal(samples.get('x0x_exec_syslog_lost_total'), 0)
      assert.ok(syslog!.messages.some((message) => message.includes(' argv="[\\"echo\\",\\"secret-word\\"\\]"')))
    },
  )
  await t.test('a trace has the steps of a run on both machines and no names', async () => {
    const [traceId, caller] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']
    const { status } = await alice.cli(['exec', 'bob', '--', 'echo', '8'], { env: { TRACEPARENT: `00-${traceId}-${caller}-01` } })
    assert.equal(status, 0)
    const inTrace = () => collector.spans.filter((span) => span.traceId === traceId)
    const named = (name: string): Span => {
      const all = inTrace().filter((span) => span.name === `x0x ${name}`)
      assert.equal(all.length, 1, name)
      return all[0]!
    }
    await collector.has(() => ['x0x exec', 'x0x run'].every((name) => inTrace().some((span) => span.name === name)))
    const [exec, run] = [named('exec'), named('run')]
    assert.deepEqual([exec.service, exec.kind, exec.parentSpanId], ['alice', 3, caller])
    assert.deepEqual([run.service, run.kind, run.parentSpanId], ['bob', 2, exec.spanId])
    for (const name of ['connect', 'sign', 'wait for exit', 'verify']) assert.equal(named(name).parentSpanId, exec.spanId, name)
    for (const name of ['decide', 'journal', 'spawn', 'program', 'sign exit']) assert.equal(named(name).parentSpanId, run.spanId, name)
    assert.equal(new Set(inTrace().map(({ spanId }) => spanId)).size, inTrace().length)
    for (const { startTimeUnixNano: from, endTimeUnixNano: to, name } of inTrace()) {
      assert.ok(BigInt(from) <= BigInt(to), name)
      assert.ok(Math.abs(Number(BigInt(from) / 1_000_000n) - Date.now()) < 60_000, name)
    }
    const request = (await bob.journal()).find(({ event, argv }) => event === 'request' && Array.isArray(argv) && argv[1] === '8')
    const attributes = { 'x0x.request_id': request?.request_id, 'x0x.outcome': 'ended', 'process.exit.code': '0' }
    assert.deepEqual([exec.attributes, run.attributes], [attributes, { 'x0x.request_id': request?.request_id }])
    for (const secret of [alice.agentId, alice.machineId, bob.agentId, bob.machineId, 'echo', bob.dir])
      assert.ok(!collector.text.includes(secret), secret)
  })
  await t.test('a denied request is a failed trace, and an unsampled request creates none', async () => {
    const denied = (span: Span) => span.attributes['x0x.denial_reason'] === 'argv_not_allowed'
    await collector.has(() => collector.spans.some(denied))
    const span = collector.spans.find(denied)!
    assert.deepEqual([span.parentSpanId, span.status], [undefined, { code: 2 }])
    assert.ok(
      collector.spans.some(
        ({ name, traceId, parentSpanId }) => name === 'x0x run' && traceId === span.traceId && parentSpanId === span.spanId,
      ),
    )
    await alice.cli(['exec', 'bob', '--', 'echo', '9'], { env: { TRACEPARENT: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-00` } })
    await alice.cli(['exec', 'bob', '--', 'echo', '10'], { env: { TRACEPARENT: `00-${'3'.repeat(32)}-${'2'.repeat(16)}-01` } })
    await collector.has(() => collector.spans.some(({ traceId, name }) => traceId === '3'.repeat(32) && name === 'x0x exec'))
    assert.ok(!collector.text.includes('1'.repeat(32)))
  })
  await t.test('a detached run is in the trace of its request, until its end on the target', async () => {
    const traceId = '5'.repeat(32)
    const { status } = await alice.cli(['exec', 'bob', '--detach', '--', 'echo', '11'], {
      env: { TRACEPARENT: `00-${traceId}-${'2'.repeat(16)}-01` },
    })
    assert.equal(status, 0)
    const named = (name: string) => collector.spans.find((span) => span.traceId === traceId && span.name === `x0x ${name}`)
    await collector.has(() => named('exec') !== undefined && named('run') !== undefined)
    const [exec, run] = [named('exec')!, named('run')!]
    assert.deepEqual([exec.service, exec.attributes['x0x.outcome'], exec.status], ['alice', 'begun', undefined])
    assert.deepEqual([run.service, run.parentSpanId], ['bob', exec.spanId])
    for (const part of ['connect', 'sign', 'wait for begin']) assert.equal(named(part)?.parentSpanId, exec.spanId, part)
    for (const part of ['decide', 'journal', 'spawn', 'program', 'sign exit']) assert.equal(named(part)?.parentSpanId, run.spanId, part)
  })
  await t.test('promtool accepts the metrics', (t) => {
    const { status, stdout, stderr, error } = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' })
    if (error !== undefined) return t.skip('there is no promtool')
    assert.deepEqual([status, stdout, stderr], [0, '', ''])
  })
})
