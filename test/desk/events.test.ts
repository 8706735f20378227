import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { DeskNews } from '../../src/local-api/desk-human.ts'
import { lifecycleEvent, type LifecycleEvent } from '../../src/protocol/lifecycle.ts'
import { deskPlace } from '../support/desk-place.ts'
import { questionOf } from '../support/question.ts'

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

test('whoever watches or listens hears of the runs of engines, and an engine hears nothing', async (t) => {
  const place = await deskPlace(t)
  const [watching, listening] = [await place.human('page'), await place.human('events')]
  const [seen, heard] = [Promise.withResolvers<DeskNews>(), Promise.withResolvers<DeskNews>()]
  await watching.subscribe(seen.resolve)
  await listening.listen(heard.resolve)
  const engine = place.engine('x0x mcp')
  assert.equal(await engine.override('s_1', null), null)
  engine.event(event(1))
  assert.deepEqual(await seen.promise, { type: 'event', event: event(1) })
  assert.deepEqual(await heard.promise, { type: 'event', event: event(1) })
})

test('B20: who only listens is nobody who could decide: what is asked falls back, and is not told to him', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human('events')
  const news: DeskNews[] = []
  await human.listen((one) => news.push(one))
  const answer = await place.engine().ask(questionOf(), never, nothing)
  assert.equal(answer.decision, 'no_ui')
  assert.deepEqual(news, [])
})

test('what runs write while they go on is told to the window that asks for it, and to nobody else', async (t) => {
  const place = await deskPlace(t)
  const [page, terminal, listening] = [await place.human('page'), await place.human('terminal'), await place.human('events')]
  const news: Record<string, string[]> = { page: [], terminal: [], listening: [] }
  const over = Promise.withResolvers<void>()
  const hear = (who: string) => (one: DeskNews) => {
    if (one.type !== 'event') return
    news[who]!.push(one.event.type)
    if (Object.values(news).every((types) => types.includes('exec.finished'))) over.resolve()
  }
  await page.subscribe(hear('page'), { output: true })
  await terminal.subscribe(hear('terminal'))
  await listening.listen(hear('listening'))
  const engine = place.engine('x0x mcp')
  await engine.override('s_1', null)
  const { code: _, ...facts } = event(1)
  // More than the desk is told of: how a run ended is told in any case.
  for (let n = 0; n < 40; n++) engine.event({ ...facts, type: 'exec.output', n, code: null })
  engine.event(event(41))
  await over.promise
  assert.deepEqual([news['terminal'], news['listening']], [['exec.finished'], ['exec.finished']])
  assert.ok(news['page']!.length > 1 && news['page']!.length < 40)
})
