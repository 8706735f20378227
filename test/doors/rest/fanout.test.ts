import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test, type TestContext } from 'node:test'

import type { Clock } from '../../../src/base/clock.ts'
import type { EventStream } from '../../../src/doors/rest/event-stream.ts'
import { AggregatedFanout, StreamedFanout } from '../../../src/doors/rest/fanout.ts'
import { RequesterCounters } from '../../../src/exec/counters.ts'
import { Fanouts, type FanoutSpec } from '../../../src/exec/fleet/fanouts.ts'
import type { FanoutHost } from '../../../src/exec/fleet/host-end.ts'
import { DEFAULT_FANOUT_PARALLEL, FANOUT_READER_MS, MAX_FANOUT_HOSTS } from '../../../src/protocol/limits/fleet.ts'
import { fanoutEventsOf, NO_FACTS, type FanoutLedgerJson } from '../../../src/protocol/api/fanout.ts'
import { NO_LABELS } from '../../../src/protocol/hosts/labels.ts'
import { MAX_AGGREGATED_OUTPUT, MAX_ARGV_BYTES } from '../../../src/protocol/limits/wire.ts'
import { runOutcome } from '../../support/journal-exit.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/processes.ts'
import { OTHER_AGENT, response, startDoor, TOKEN } from '../../support/rest-server.ts'
import { settle } from '../../support/scripted-peer.ts'
import { fake } from '../../support/fake.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const HOST = { host: 'web1', agent_id: OTHER_AGENT }

test('a host starts only after its begun event has left this process, and other events do not wait', async () => {
  const sent: [type: string, left: (() => void) | undefined][] = []
  const send = (event: { type: string }, left?: () => void): void => void sent.push([event.type, left])
  const sink = new StreamedFanout({ send } as unknown as EventStream)
  let told = false
  const begun = sink.begun(HOST, ID).then(() => (told = true))
  await sink.event(HOST, { type: 'warning', request_id: ID, kind: 'timeout_clamped', message: '' })
  await settle()
  assert.deepEqual([sent.map(([type]) => type), told], [['begun', 'warning'], false])
  sent[0]![1]!()
  await begun
})

test('output of a host that exceeds its share of one answer marks the host as truncated and failed', () => {
  const sink = new AggregatedFanout()
  const hosts = [HOST, { host: 'web2', agent_id: 'c'.repeat(64) }]
  sink.asked({ fanout_id: ID, hosts } as unknown as FanoutSpec)
  const room = MAX_AGGREGATED_OUTPUT / hosts.length
  for (const [at, host] of hosts.entries()) {
    sink.event(host, { type: 'stdout', request_id: ID, seq: 0, data: new Uint8Array(room + at) })
    sink.ended({ ...NO_FACTS, ...host, request_id: ID, end: 'ran', code: 0 })
  }
  const { ok, ran, failed, hosts: ended } = sink.result({ fanout_id: ID } as FanoutLedgerJson)
  assert.deepEqual([ok, ran, failed], [false, 2, 1])
  assert.deepEqual(
    ended.map(({ truncated }) => truncated),
    [false, true],
  )
})

/** Runs that write until they are cancelled, and end when the reader has taken their last line. */
class Writers {
  /** Number of lines that the reader took. */
  taken = 0
  readonly #cancelled = new Set<string>()

  readonly runner: ConstructorParameters<typeof Fanouts>[0]['runner'] = {
    cancel: (id) => void this.#cancelled.add(id),
    run: async ({ request_id = ID, agent_id }, sink) => {
      for (let seq = 0; !this.#cancelled.has(request_id); seq++) {
        await sink.event({ type: 'stdout', request_id, seq, data: new Uint8Array(48 * 1024) })
        this.taken += 1
        await settle()
      }
      return runOutcome({ ok: false, request_id, agent_id, code: null, signal: 15, warnings: ['cancelled'] })
    },
  }
}

const fanoutsOf = ({ runner }: Writers, clock: ManualClock): Fanouts =>
  new Fanouts({
    clock,
    counters: new RequesterCounters(),
    executor: fake({ proveFanout: async () => assert.fail('nothing was proven'), fanoutOver: async () => undefined }),
    runner,
  })

const doorOf = async (t: TestContext, fanouts: Fanouts, clock: Clock, hosts: readonly FanoutHost[] = [HOST]) => {
  const select = () => hosts.map((host) => ({ ...host, labels: NO_LABELS, trust: 'trusted' as const }))
  return startDoor(t, { clock, fanouts, directory: { resolve: (agent) => agent, select } })
}

test('a command that is too large for any request is refused once for all hosts', async (t) => {
  const clock = new ManualClock()
  const { call } = await doorOf(t, fanoutsOf(new Writers(), clock), clock)
  const argv = ['x', 'y'.repeat(MAX_ARGV_BYTES)]
  const { status, json } = await call('POST', '/exec/fanout', { body: { hosts: ['web1'], argv } })
  assert.deepEqual([status, json.error], [400, 'bad_request'])
})

test('if the reader leaves before it reads the begun events, no host starts and the fan-out ends', async (t) => {
  const clock = new ManualClock()
  const writers = new Writers()
  const fanouts = fanoutsOf(writers, clock)
  const hosts = Array.from({ length: MAX_FANOUT_HOSTS }, (_, at) => ({ host: `web${at}`, agent_id: at.toString(16).padStart(64, '0') }))
  const { open } = await doorOf(t, fanouts, clock, hosts)
  const call = open('POST', '/exec/fanout', { viaSocket: true, headers: { 'content-type': 'application/json' } })
  call.end(JSON.stringify({ hosts: ['web*'], argv: ['x'] }))
  // This reader does not read the names of all hosts.
  const deaf = await response(call)
  await until(() => fanouts.sessions()[0]?.begun === DEFAULT_FANOUT_PARALLEL)
  deaf.destroy()
  await until(() => fanouts.sessions().length === 0)
  assert.equal(writers.taken, 0)
})

test('a second fan-out on one connection does not start, and the first ends when its client leaves', async (t) => {
  const clock = new ManualClock()
  const writers = new Writers()
  const fanouts = fanoutsOf(writers, clock)
  const { port } = await doorOf(t, fanouts, clock)
  const body = JSON.stringify({ hosts: ['web1'], argv: ['x'] })
  const head = ['POST /exec/fanout HTTP/1.1', `Host: 127.0.0.1:${port}`, `Authorization: Bearer ${TOKEN}`, 'Content-Type: application/json']
  const question = [...head, `Content-Length: ${body.length}`, '', body].join('\r\n')
  const caller = connect(port, '127.0.0.1')
  t.after(() => caller.destroy())
  caller.write(question + question)
  await until(() => writers.taken > 3)
  assert.equal(fanouts.sessions().length, 1)
  caller.destroy()
  await until(() => fanouts.sessions().length === 0)
})

test('after the deadline a reader that takes nothing is disconnected, and one that reads gets the rest', async (t) => {
  const clock = new ManualClock()
  const writers = new Writers()
  const fanouts = fanoutsOf(writers, clock)
  const { open } = await doorOf(t, fanouts, clock)
  const ask = async () => {
    const call = open('POST', '/exec/fanout', { headers: { 'content-type': 'application/json' } })
    call.end(JSON.stringify({ hosts: ['web1'], argv: ['x'], deadline_ms: 1_000 }))
    const answer = await response(call)
    // The client stops reading until the buffers are full.
    let [taken, looks] = [-1, 0]
    await until(() => {
      looks = taken === writers.taken ? looks + 1 : 0
      taken = writers.taken
      return looks === 40
    })
    return answer
  }
  const deaf = await ask()
  const gone = new Promise((resolve) => deaf.once('error', resolve))
  await clock.advance(1_000 + FANOUT_READER_MS - 1)
  assert.equal(fanouts.sessions().length, 1)
  await clock.advance(1)
  await until(() => fanouts.sessions().length === 0)
  deaf.resume()
  await gone

  const slow = await ask()
  await clock.advance(1_000 + FANOUT_READER_MS - 1)
  const types: string[] = []
  for await (const { type } of fanoutEventsOf(slow)) types.push(type)
  assert.deepEqual(types.slice(-2), ['host', 'ledger'])
  assert.deepEqual([fanouts.sessions().length, clock.pending], [0, 0])
})

test('an error in the body names the field and the value that it expects', async (t) => {
  const clock = new ManualClock()
  const { call } = await doorOf(t, fanoutsOf(new Writers(), clock), clock)
  const id = `${'0'.repeat(8)}-0000-7000-8000-${'0'.repeat(12)}`
  for (const [wrong, message] of [
    [{ hosts: 'web1' }, 'hosts: expected a list of host words, not "web1"'],
    [{ max_failures: '5' }, 'max_failures: expected a whole number of at least 1, or a part of the hosts such as "5%", not "5"'],
    [{ request_ids: { web1: id } }, 'request_ids.web1: expected 64 lower-case hex characters as the name'],
    [{ request_ids: { [HOST.agent_id]: 'x' } }, `request_ids.${HOST.agent_id}: expected a UUID in lower case, not "x"`],
    [{ request_ids: 5 }, 'request_ids: expected a JSON object, not 5'],
  ] as const) {
    const { status, json } = await call('POST', '/exec/fanout', { body: { hosts: ['web1'], argv: ['x'], ...wrong } })
    assert.deepEqual([status, json.message], [400, message])
  }
})
