import assert from 'node:assert/strict'
import { describe, it } from 'node:test'

import fc from 'fast-check'

import {
  asFanoutEvent,
  failuresAllowed,
  FANOUT_ENDS,
  fanoutEventsOf,
  FanoutSums,
  isSuccess,
  ledgerProblem,
  sumsOf,
  type FanoutEventJson,
  type FanoutHostJson,
} from '../../src/protocol/api/fanout.ts'
import {
  DEFAULT_FANOUT_PARALLEL,
  FANOUT_HOSTS_PER_EVENT,
  MAX_FANOUT_HOSTS,
  FANOUT_LEAST_RUNS,
  MAX_FANOUT_PARALLEL,
  MAX_FANOUT_RUNS,
  MAX_FANOUTS,
} from '../../src/protocol/limits/fleet.ts'
import { MAX_NAME, MAX_PORT_RUNS } from '../../src/protocol/limits/wire.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const AGENT = 'a'.repeat(64)

const ended: FanoutHostJson = {
  host: 'web1',
  agent_id: AGENT,
  machine_id: null,
  request_id: null,
  end: 'unreachable',
  code: null,
  signal: null,
  denial_reason: null,
  error: 'peer_unreachable',
  duration_ms: null,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: false,
  incomplete: false,
  warnings: [],
  message: 'no address',
}

const events: readonly FanoutEventJson[] = [
  { type: 'fanout', fanout_id: ID, hosts: [{ host: 'web1', agent_id: AGENT }], more: true },
  { type: 'fanout', fanout_id: ID, hosts: [{ host: 'web2', agent_id: AGENT }] },
  { type: 'begun', host: 'web1', request_id: ID },
  { type: 'started', host: 'web1', request_id: ID, agent_id: AGENT, machine_id: AGENT, pid: 7 },
  { type: 'stdout', host: 'web1', request_id: ID, seq: 0, data_b64: 'YQ==' },
  { type: 'host', ...ended },
  { type: 'ledger', ...sumsOf(ID, [ended]) },
  { type: 'error', fanout_id: ID, error: 'internal', message: 'x' },
]

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

const readAll = async (chunks: Uint8Array[]): Promise<FanoutEventJson[]> => {
  const all: FanoutEventJson[] = []
  for await (const event of fanoutEventsOf(
    (async function* () {
      yield* chunks
    })(),
  ))
    all.push(event)
  return all
}

describe('fan-out events', () => {
  it('events are read from lines, even if chunks split the lines', async () => {
    const whole = bytes(events.map((event) => `${JSON.stringify(event)}\n`).join(''))
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat({ max: whole.length })), async (cuts) => {
        const at = [0, ...cuts.toSorted((a, b) => a - b), whole.length]
        const read = await readAll(at.slice(1).map((end, index) => whole.slice(at[index], end)))
        assert.deepEqual(read, events)
      }),
      { numRuns: 50 },
    )
  })

  it('events with a missing or invalid field are refused', () => {
    for (const event of events)
      for (const key of Object.keys(event)) {
        const { [key as 'type']: value, ...without } = event
        if (key !== 'message' && key !== 'more') assert.throws(() => asFanoutEvent(without), SyntaxError, `${event.type} without ${key}`)
        if (value !== null) assert.throws(() => asFanoutEvent({ ...event, [key]: {} }), SyntaxError, `${event.type}.${key}`)
      }
    assert.throws(() => asFanoutEvent({ type: 'host', ...ended, end: 'vanished' }), SyntaxError)
    assert.throws(() => asFanoutEvent({ type: 'fanout', fanout_id: ID, hosts: [{ host: 'a' }] }), SyntaxError)
  })

  it('any other input is read or gives a SyntaxError', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.uint8Array(), fc.json().map(bytes)), async (foreign) => {
        await readAll([foreign]).catch((error: unknown) => assert.ok(error instanceof SyntaxError, String(error)))
      }),
    )
  })
})

const host = fc.record({
  end: fc.constantFrom(...FANOUT_ENDS),
  code: fc.option(fc.nat({ max: 2 })),
  incomplete: fc.boolean(),
  truncated: fc.boolean(),
})

describe('fan-out totals', () => {
  it('totals add up to the number of selected hosts for all kinds of ends', () => {
    fc.assert(
      fc.property(fc.array(host), (hosts) => {
        const ledger = sumsOf(ID, hosts)
        assert.equal(ledger.asked, hosts.length)
        assert.equal(ledgerProblem(ledger), null)
        assert.equal(ledger.ok, hosts.length > 0 && hosts.every(isSuccess))
        assert.equal(ledger.failed, hosts.filter((each) => each.end === 'ran' && !isSuccess(each)).length)
      }),
    )
  })

  it('totals count each host that started and did not succeed as unsuccessful', () => {
    const sums = new FanoutSums()
    for (const end of FANOUT_ENDS) sums.add({ end, code: 0, incomplete: false, truncated: false })
    assert.equal(sums.unsuccessful, 4)
    sums.add({ end: 'ran', code: 1, incomplete: false, truncated: false })
    sums.add({ end: 'ran', code: 0, incomplete: true, truncated: false })
    sums.add({ end: 'ran', code: 0, incomplete: false, truncated: true })
    assert.equal(sums.unsuccessful, 7)
    assert.equal(sums.failed, 3)
  })

  it('totals from another program are refused if they contradict each other', () => {
    const ledger = sumsOf(ID, [{ end: 'ran', code: 0, incomplete: false, truncated: false }])
    assert.match(ledgerProblem({ ...ledger, asked: 2 }) ?? '', /1 hosts ended, but 2 were requested/)
    assert.match(ledgerProblem({ ...ledger, failed: 2 }) ?? '', /2 hosts failed, but only 1 ran/)
    assert.match(ledgerProblem({ ...ledger, failed: 1 }) ?? '', /ok is true/)
    assert.match(ledgerProblem({ ...ledger, ok: false }) ?? '', /ok is false/)
  })
})

describe('maximum number of failures', () => {
  it('the maximum is a number or a percentage of the hosts', () => {
    assert.equal(failuresAllowed(1, 10), 1)
    assert.equal(failuresAllowed(50, 10), 50)
    assert.equal(failuresAllowed('10%', 10), 1)
    assert.equal(failuresAllowed('10%', 11), 2)
    assert.equal(failuresAllowed('1%', 3), 1)
    assert.equal(failuresAllowed('100%', 7), 7)
  })

  it('any other value is refused, and an invalid maximum does not mean "no maximum"', () => {
    for (const limit of [0, -1, 1.5, Number.NaN, '0%', '101%', '10', '1.5%', ' 5%', '5 %', '%', '05%'])
      assert.throws(() => failuresAllowed(limit, 10), { code: 'bad_request' }, String(limit))
  })
})

describe('fan-out limits', () => {
  it('the limits are consistent with each other and with the limits between the processes', () => {
    assert.ok(MAX_FANOUT_RUNS <= MAX_PORT_RUNS)
    assert.ok(DEFAULT_FANOUT_PARALLEL * MAX_FANOUTS <= MAX_FANOUT_RUNS)
    assert.ok(2 * MAX_FANOUT_PARALLEL <= MAX_FANOUT_RUNS, 'one fan-out leaves as many places to the others')
    assert.ok(MAX_FANOUTS * FANOUT_LEAST_RUNS <= MAX_FANOUT_RUNS - MAX_FANOUT_PARALLEL, 'one alone has what it may ask for')
    // A name has at most four bytes for each character, all of them escaped, and an ID has 64 characters.
    assert.ok(FANOUT_HOSTS_PER_EVENT * (MAX_NAME * 6 + 64 + 32) < 256 * 1024)
    assert.ok(FANOUT_HOSTS_PER_EVENT < MAX_FANOUT_HOSTS)
  })
})
