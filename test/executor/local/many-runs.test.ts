import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { verifyJournal } from '../../../src/journal/verify.ts'
import { longOrShort } from '../../support/campaign.ts'
import { LocalHost, soon } from '../../support/local-engine.ts'
import { ruleText } from '../../support/local-policy.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { hasProc } from '../../support/processes.ts'
import { REFUSAL_SUMMARY_MS } from '../../../src/journal/refusals.ts'

const linuxOnly = { skip: !hasProc && 'needs /proc' }
/** One leaked resource per run is visible here. The benchmark measures thousands of runs. */
const RUNS = longOrShort(500, 100)
const AT_ONCE = 16

const descriptors = (): number => readdirSync('/proc/self/fd').length
const children = (): number => readFileSync(`/proc/self/task/${process.pid}/children`, 'latin1').split(' ').filter(Boolean).length
const resources = (): Record<string, number> => {
  const counts: Record<string, number> = {}
  for (const name of process.getActiveResourcesInfo()) counts[name] = (counts[name] ?? 0) + 1
  return counts
}
const standing = (): object => ({ descriptors: descriptors(), children: children(), resources: resources() })

/** Waits until pending file operations are complete. */
const rested = async (): Promise<object> => {
  await soon(() => !Object.keys(resources()).includes('FSReqPromise'))
  return standing()
}

/** Calls `work` `count` times, 16 at once. */
const many = async (count: number, work: (at: number) => Promise<unknown>): Promise<void> => {
  let next = 0
  const worker = async (): Promise<void> => {
    for (let at = next++; at < count; at = next++) await work(at)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}

const asBefore = async (before: object): Promise<void> => {
  await soon(() => JSON.stringify(standing()) === JSON.stringify(before))
  assert.deepEqual(standing(), before)
}

test('many short runs (100, or 500 in a campaign) leak no descriptor, child, timer or entry', linuxOnly, async (t) => {
  const clock = new ManualClock()
  const host = await LocalHost.start(t, { clock, limits: `max_processes_per_session = ${AT_ONCE}` })
  const session = await host.open()
  const once = async (at: number): Promise<void> => {
    const run = await host.run(session, at % 4 === 0 ? ['echo', `${at}`] : ['true'], at % 8 === 1 ? { stdin: Buffer.from('x') } : {})
    assert.equal((await run.outcome()).code, 0)
  }
  await many(AT_ONCE, once)
  await clock.advance(1_000)
  const before = await rested()
  await many(RUNS, once)
  await clock.advance(1_000)
  await asBefore(before)
  assert.deepEqual([clock.pending, host.engine.session(session).slots.active], [0, 0])
  assert.equal(await host.close(session), 0)
  assert.ok((await verifyJournal([host.journalPath!])).ok)
  const counts = Map.groupBy(await host.lines(), ({ event }) => event)
  for (const event of ['request', 'started', 'exit'] as const) assert.equal(counts.get(event)?.length, RUNS + AT_ONCE, event)
  // Other programs of this user may hide their environment while a run ends, which causes a warning.
  const others = [...counts.keys()].filter((event) => !['request', 'started', 'exit', 'warning'].includes(event))
  assert.deepEqual(others, ['session'])
})

test('hundreds of refused, failed and cancelled runs leak no resource', linuxOnly, async (t) => {
  const clock = new ManualClock()
  const host = await LocalHost.start(t, {
    clock,
    limits: `max_processes_per_session = ${AT_ONCE}`,
    rules: ruleText('deny_commands', ['false']),
    scripts: { broken: '' },
  })
  await writeFile(host.program('broken'), '#!/nowhere/interpreter\n')
  await mkdir(join(host.root, 'sub'))
  const session = await host.open()
  const ways: ((at: number) => Promise<unknown>)[] = [
    async () => assert.rejects(host.run(session, ['false'])),
    async () => assert.rejects(host.run(session, ['true'], { cwd: '/' })),
    async () => assert.rejects(host.run(session, ['true'], { cwd: 'gone' })),
    async () => assert.rejects(host.run(session, ['true'], { env: { A: 'b' }, cwd: 'sub' })),
    async () => assert.rejects(host.run(session, ['no-such-program-x0x'], { cwd: 'sub' })),
    async () =>
      assert.equal((await (await host.run(session, [host.program('broken')], { cwd: 'sub' })).outcome()).denial_reason, 'spawn_failed'),
    async () => {
      const run = await host.run(session, ['cat'], { input: true, cwd: 'sub' })
      run.run.input(Buffer.from('x'), false)
      run.run.end('cancelled')
      await run.outcome()
    },
  ]
  const once = async (at: number): Promise<unknown> => ways[at % ways.length]!(at)
  await many(2 * AT_ONCE, once)
  await clock.advance(1_000)
  const before = await rested()
  await many(700, once)
  await clock.advance(1_000)
  await asBefore(before)
  // The number of suppressed lines is in a summary line.
  await clock.advance(REFUSAL_SUMMARY_MS)
  await soon(async () => (await host.lines()).some(({ event }) => event === 'refusals_suppressed'))
  await clock.advance(1_000)
  assert.deepEqual([clock.pending, host.engine.session(session).slots.active, await host.close(session)], [0, 0, 0])
})
