import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { ApprovalServiceEvent } from '../../src/clients/desk.ts'
import { lifecycleEvent, runOf, type LifecycleEvent } from '../../src/protocol/events/lifecycle.ts'
import { deskPlace } from '../support/desk-place.ts'
import { questionOf } from '../support/approval-request.ts'

const never = new AbortController().signal
const nothing = (): void => undefined

const event = (n: number): LifecycleEvent =>
  lifecycleEvent(
    {
      type: 'exec.finished',
      owner: 'reviewer',
      session: 's_1',
      door: 'mcp',
      run_id: `r${n}`,
      node: 'gateway',
      code: 0,
      tail: '\u0001'.repeat(20_000),
    },
    { n, ts: '2026-01-01T00:00:00.000Z' },
  )

test('subscribers and listeners get the run events of engines', async (t) => {
  const place = await deskPlace(t)
  const [watching, listening] = [await place.human('page'), await place.human('events')]
  const [seen, heard] = [Promise.withResolvers<ApprovalServiceEvent>(), Promise.withResolvers<ApprovalServiceEvent>()]
  await watching.subscribe(seen.resolve)
  await listening.listen(heard.resolve)
  const engine = place.engine('x0x mcp')
  assert.equal(await engine.override('s_1', null), null)
  engine.event(event(1))
  assert.deepEqual(await seen.promise, { type: 'event', event: event(1) })
  assert.deepEqual(await heard.promise, { type: 'event', event: event(1) })
})

test('B20: a listener is not an approver, so requests use the fallback and the listener does not see them', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human('events')
  const news: ApprovalServiceEvent[] = []
  await human.listen((one) => news.push(one))
  const answer = await place.engine().ask(questionOf(), never, nothing)
  assert.equal(answer.decision, 'no_ui')
  assert.deepEqual(news, [])
})

test('only the approval client that follows a run gets its output events', async (t) => {
  const place = await deskPlace(t)
  const [page, terminal, listening] = [await place.human('page'), await place.human('terminal'), await place.human('events')]
  const news: Record<string, string[]> = { page: [], terminal: [], listening: [] }
  const over = Promise.withResolvers<void>()
  const hear = (who: string) => (one: ApprovalServiceEvent) => {
    if (one.type !== 'event') return
    news[who]!.push(one.event.type)
    if (Object.values(news).every((types) => types.includes('exec.finished'))) over.resolve()
  }
  await page.subscribe(hear('page'))
  await terminal.subscribe(hear('terminal'))
  await listening.listen(hear('listening'))
  const engine = place.engine('x0x mcp')
  await engine.override('s_1', null)
  const { code: _, ...facts } = event(1)
  const told = Promise.withResolvers<readonly string[]>()
  engine.serve({ running: [], follow: told.resolve })
  engine.event({ ...facts, type: 'exec.started', tail: null, code: null })
  // Wait until the service has processed the events so far.
  await engine.override('s_1', null)
  assert.deepEqual(
    (await page.follow([runOf(event(1))])).map(({ type, run_id }) => [type, run_id]),
    [['exec.started', 'r1']],
  )
  assert.deepEqual(await told.promise, [runOf(event(1))])
  // More output events than the service accepts. The finished event always arrives.
  for (let n = 0; n < 40; n++) engine.event({ ...facts, type: 'exec.output', n, code: null })
  engine.event(event(41))
  await over.promise
  const started = ['exec.started', 'exec.finished']
  assert.deepEqual([news['terminal'], news['listening']], [started, started])
  assert.ok(news['page']!.length > 2 && news['page']!.length < 40)
})

test('an engine hears which of its runs are followed, at each change and after a restart of the service', async (t) => {
  const place = await deskPlace(t)
  const { code: _, tail: __, ...facts } = event(1)
  const started = (run_id: string): LifecycleEvent => ({ ...facts, type: 'exec.started', run_id, code: null, tail: null })
  const [mine, other] = [runOf(started('mine')), runOf(started('other'))]
  const engineOf = async (name: string, running: readonly LifecycleEvent[]) => {
    const heard: (readonly string[])[] = []
    let more = nothing
    const engine = place.engine(name)
    engine.serve({ running, follow: (runs) => (heard.push(runs), more()) })
    await engine.override('s_1', null)
    const next = async (count: number): Promise<readonly string[]> => {
      while (heard.length < count) await new Promise<void>((resolve) => (more = resolve))
      return heard[count - 1]!
    }
    return { engine, heard, next }
  }
  const [one, two] = [await engineOf('one', [started('mine')]), await engineOf('two', [started('other')])]
  const [first, second] = [await place.human('first'), await place.human('second')]
  await first.follow([mine, 'nobody has it'])
  assert.deepEqual(await one.next(1), [mine])
  // A second follower causes the engine to send the output so far again.
  await second.follow([mine, other])
  assert.deepEqual([await one.next(2), await two.next(1)], [[mine], [other]])
  await first.follow([])
  second.close()
  assert.deepEqual([await one.next(3), await two.next(2)], [[], []])
  assert.deepEqual([one.heard.length, two.heard.length], [3, 2])
  await place.restart()
  const again = await engineOf('one', [started('mine')])
  await (await place.human()).follow([mine])
  assert.deepEqual(await again.next(1), [mine])
  again.engine.event({ ...event(1), run_id: 'mine' })
  await again.engine.override('s_1', null)
  assert.deepEqual(await (await place.human()).follow([mine]), [])
})
