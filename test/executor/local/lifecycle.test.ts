import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { LiveRunSource } from '../../../src/desk/desk-link.ts'
import {
  lifecycleEvent,
  lifecycleProblem,
  runOf,
  lifecycleText,
  type LifecycleEvent,
  type LifecycleFacts,
} from '../../../src/protocol/events/lifecycle.ts'
import type { RunPart } from '../../../src/protocol/api/run-events.ts'
import { ruleText } from '../../support/local-policy.ts'
import { LocalHost, soon } from '../../support/local-engine.ts'

/** Run events that one session receives. */
class Heard {
  readonly facts: LifecycleFacts[] = []
  readonly told = (facts: LifecycleFacts): void => {
    const event = lifecycleEvent(facts, { n: this.facts.length + 1, ts: '' })
    assert.equal(lifecycleProblem(event), null)
    this.facts.push(facts)
  }

  /** The texts of the events, without run IDs. */
  get texts(): string[] {
    return this.facts.map((facts) => lifecycleText(lifecycleEvent(facts, { n: 1, ts: '' })).replace(facts.run_id, 'ID'))
  }
}

test('O14: a session receives the start and finish of its run with its code and output tail', async (t) => {
  const host = await LocalHost.start(t, { scripts: { hello: 'echo out; echo err >&2; exit 3' } })
  const heard = new Heard()
  const session = await host.open({ told: heard.told, client_name: 'reviewer' })
  const run = await host.run(session, [host.program('hello')])
  await run.outcome()
  assert.deepEqual(heard.texts, ['Exec started (node=gateway, id=ID)', 'Exec finished (node=gateway, id=ID, code=3)'])
  const [started, finished] = heard.facts
  assert.deepEqual([started?.run_id, finished?.run_id], [run.run.requestId, run.run.requestId])
  assert.deepEqual([finished?.owner, finished?.session, finished?.door], ['reviewer', session, 'stdio'])
  assert.deepEqual([...finished!.tail!].toSorted(), [...'out\nerr\n'].toSorted())
})

test('a signal, a missing program and a refusal have their own events', async (t) => {
  const host = await LocalHost.start(t, { scripts: { dies: 'kill -9 $$' }, rules: ruleText('deny_commands', ['false']) })
  const heard = new Heard()
  const session = await host.open({ told: heard.told })
  await (await host.run(session, [host.program('dies')])).outcome()
  await assert.rejects(host.run(session, ['false']), { code: 'command_denied' })
  await assert.rejects(host.run(session, ['no-such-program-x0x']), { code: 'file_not_found' })
  assert.deepEqual(heard.texts.slice(1), [
    'Exec finished (node=gateway, id=ID, code=null signal=9)',
    'Exec denied (node=gateway, id=ID, command_denied)',
    'Exec denied (node=gateway, id=ID, file_not_found)',
  ])
  assert.equal(new Set(heard.facts.map(({ run_id }) => run_id)).size, 3)
})

test('B28: a session receives no events of other sessions, even under the same label', async (t) => {
  const host = await LocalHost.start(t, { scripts: { secret: 'echo secret' } })
  const [mine, other] = [new Heard(), new Heard()]
  const session = await host.open({ told: mine.told, client_name: 'same' })
  await host.open({ told: other.told, client_name: 'same' })
  const untold = await host.open({ client_name: 'same' })
  await (await host.run(session, [host.program('secret')])).outcome()
  await (await host.run(untold, [host.program('secret')])).outcome()
  assert.deepEqual([mine.facts.length, other.facts.length], [2, 0])
  assert.ok(mine.facts.every((facts) => facts.session === session))
})

test('approval clients receive numbered events of every run on the host', async (t) => {
  const events: LifecycleEvent[] = []
  const host = await LocalHost.start(t, {
    scripts: { hello: 'echo hello' },
    watched: { event: (event) => void events.push(event), serve: () => undefined },
  })
  for (let n = 0; n < 2; n++) await (await host.run(await host.open(), [host.program('hello')])).outcome()
  assert.deepEqual(
    events.map(({ n, type }) => [n, type]),
    [
      [1, 'exec.started'],
      [2, 'exec.finished'],
      [3, 'exec.started'],
      [4, 'exec.finished'],
    ],
  )
  for (const event of events) assert.equal(lifecycleProblem(event), null)
})

test('runs on a target that wait, run, are denied or are lost have events with the requested name', async (t) => {
  const ids = { request_id: 'r', agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64) }
  const exit = {
    type: 'exit',
    ...ids,
    ok: true,
    code: 0,
    signal: null,
    duration_ms: 1,
    stdout_bytes_total: 3,
    stderr_bytes_total: 0,
    truncated: false,
    incomplete: false,
    denial_reason: null,
    warnings: [],
  } as const
  const waiting = {
    type: 'waiting_for_approval',
    ...ids,
    expires_in_ms: 5_000,
    approvals_needed: 0,
    approvals_given: 0,
    reason: 'ask',
  } as const
  const partsOf: Readonly<Record<string, readonly unknown[]>> = {
    good: [waiting, waiting, { type: 'started', ...ids, pid: 1 }, { type: 'stdout', data: Buffer.from('out') }, exit],
    no: [{ ...exit, code: null, denial_reason: 'argv_not_allowed' }],
    lost: [{ type: 'started', ...ids, pid: 1 }],
  }
  const targets = {
    async *run({ argv }: { argv: readonly string[] }): AsyncGenerator<RunPart> {
      yield* partsOf[argv[0]!] as RunPart[]
    },
    openTerminal: () => assert.fail(),
    cancel: async () => undefined,
    reach: async () => assert.fail(),
    files: () => assert.fail(),
    rules: async () => assert.fail(),
    select: async () => assert.fail(),
  }
  const host = await LocalHost.start(t, { targets, security: 'allow_targets = ["bob"]' })
  const heard = new Heard()
  const session = await host.open({ told: heard.told, target: 'bob' })
  await (await host.run(session, ['good'])).outcome()
  await assert.rejects(host.run(session, ['no']), { code: 'command_denied' })
  await (await host.run(session, ['lost'])).outcome()
  assert.deepEqual(heard.texts, [
    'Exec waiting for approval (node=bob, id=ID)',
    'Exec started (node=bob, id=ID)',
    'Exec finished (node=bob, id=ID, code=0)',
    'Exec denied (node=bob, id=ID, argv_not_allowed)',
    'Exec started (node=bob, id=ID)',
    'Exec finished (node=bob, id=ID, code=null incomplete)',
  ])
  assert.deepEqual([heard.facts[0]?.expires_in_ms, heard.facts[2]?.tail], [5_000, 'out'])
})

test('a client that follows a run receives its output until it stops, and the session gets no duplicates', async (t) => {
  const events: LifecycleEvent[] = []
  const served = Promise.withResolvers<LiveRunSource>()
  const host = await LocalHost.start(t, {
    scripts: { slow: 'echo first; read line; echo $line' },
    watched: { event: (event) => void events.push(event), serve: served.resolve },
  })
  const heard = new Heard()
  const session = await host.open({ told: heard.told })
  const run = await host.run(session, [host.program('slow')], { input: true })
  const runs = await served.promise
  assert.ok(await soon(() => runs.running.length === 1))
  runs.follow([runOf(runs.running[0]!), 'another run'])
  assert.ok(await soon(() => events.some(({ type, tail }) => type === 'exec.output' && tail === 'first\n')))
  runs.follow([])
  const told = events.length
  run.run.input(Buffer.from('second\n'), true)
  await run.outcome()
  assert.deepEqual([events.length - told, runs.running], [1, []])
  assert.deepEqual([events[0]?.type, events.at(-1)?.type, events.at(-1)?.tail], ['exec.started', 'exec.finished', 'first\nsecond\n'])
  assert.ok(events.every((event) => lifecycleProblem(event) === null && event.run_id === run.run.requestId))
  assert.deepEqual(
    heard.facts.map(({ type }) => type),
    ['exec.started', 'exec.finished'],
  )
})
