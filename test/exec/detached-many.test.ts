import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { AskPace } from '../../src/exec/detached/detached-client.ts'
import { DetachedRunEvents } from '../../src/exec/detached/detached-events.ts'
import { DetachedRuns } from '../../src/exec/detached-runs.ts'
import { answerAsked, type DetachedRequestCall } from '../../src/executor/network-calls.ts'
import { DetachedRequestStore } from '../../src/executor/requested-detached.ts'
import { DetachedRequestCalls } from '../../src/executor-api/client.ts'
import { ASK_PACE, MAX_ATTACHED_PER_AGENT } from '../../src/protocol/limits/detached.ts'
import type { RequestId } from '../../src/protocol/ids.ts'
import { DETACH_KEYS, DetachedMemory, never } from '../support/detached.ts'
import { execPair, type ExecPair } from '../support/exec-pair.ts'
import { newLifecycleLog } from '../support/lifecycle.ts'
import { soon } from '../support/local-engine.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'
import { fake } from '../support/fake.ts'

/** More runs than attached clients are allowed on the target. */
const MANY = MAX_ATTACHED_PER_AGENT + 4

/** Starts these runs on a host, and stores them as a daemon does that requested them. */
const begunThere = async (t: TestContext, script: string): Promise<{ pair: ExecPair; runs: DetachedRuns; ids: RequestId[] }> => {
  const keys = `max_concurrent_per_agent = ${MANY}\nmax_concurrent_total = ${MANY}`
  const pair = await execPair(t, { scripts: { one: script }, entryKeys: DETACH_KEYS, keys })
  const clock = systemClock
  const store = new DetachedRequestStore({ clock, log: silent }, { path: join(await tempDir(t), 'detached-runs.json') })
  await store.load()
  const asked = new DetachedRequestCalls(async (type, call) => {
    const json = JSON.stringify(await answerAsked(store, clock, { type, id: 1, ...call } as unknown as DetachedRequestCall))
    return { json } as never
  })
  const identity = { agentId: pair.requester.own.signer.agentId } as never
  const runEvents = new DetachedRunEvents({ executor: fake({ identity }), lifecycle: newLifecycleLog() })
  const runs = new DetachedRuns({ engine: pair.detached, asked, clock, events: runEvents })
  const { agentId: agent_id } = pair.responder.own.signer
  const spec = { agent_id, argv: [pair.responder.program('one')], cwd: null, clamp: false, lifetime_ms: null, keep_bytes: 10 }
  const ids = Array.from({ length: MANY }, () => randomUUID())
  for (const request_id of ids) await runs.start({ ...spec, request_id }, null, never())
  return { pair, runs, ids }
}

test('a daemon can wait for more runs than it may attach to, and leaves room for a reader', async (t) => {
  const go = join(await tempDir(t), 'go')
  const { pair, runs, ids } = await begunThere(t, `echo hi; while [ ! -e ${go} ]; do sleep 0.05; done; exit 3`)
  const waited = ids.map(async (id) => runs.wait(id, never()))
  await soon(() => pair.responder.totals().runs_attached >= MAX_ATTACHED_PER_AGENT / 2)
  const sink = new DetachedMemory()
  const read = runs.attach(ids.at(-1)!, { from: 0, follow: true }, sink, never())
  await soon(() => sink.bytes.length > 0)
  await writeFile(go, '')
  assert.deepEqual(
    (await Promise.all(waited)).map(({ run, outcome }) => [run.state, run.code, outcome?.code]),
    ids.map(() => ['ended', 3, 3]),
  )
  assert.deepEqual([(await read).outcome?.code, sink.text('stdout')], [3, 'hi\n'])
})

test('queries to one agent follow its rate limit, in order', async () => {
  const clock = new ManualClock()
  const pace = new AskPace({ clock })
  const asked: number[] = []
  const leaving = new AbortController()
  const turns = Array.from({ length: ASK_PACE.burst + 3 }, async (_, n) => {
    await pace.turn('a', n === ASK_PACE.burst + 1 ? leaving.signal : never())
    asked.push(n)
  })
  await clock.advance(0)
  assert.equal(asked.length, ASK_PACE.burst)
  await pace.turn('b', never())
  leaving.abort(new Error('left'))
  await assert.rejects(turns[ASK_PACE.burst + 1]!, /left/)
  await clock.advance(1_000)
  assert.deepEqual(asked.slice(-2), [ASK_PACE.burst, ASK_PACE.burst + 2])
  await Promise.all(turns.toSpliced(ASK_PACE.burst + 1, 1))
})
