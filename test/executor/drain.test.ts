import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { rm, writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import { NO_WORK } from '../../src/protocol/handover.ts'
import { DENIAL_BURST } from '../../src/protocol/limits/wire.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty } from '../support/fake-network.ts'
import { until } from '../support/mesh-of-daemons.ts'

const scripts = (root: string): Record<string, string> => ({
  hello: 'echo hi',
  gate: `while [ ! -e ${root} ]; do sleep 0.02; done; exit 7`,
})

test('during a drain, new runs are denied and active ones end normally', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: scripts(`/tmp/x0x-gate-${randomUUID()}`) })
  const open = /\[ ! -e (\S+) \]/.exec(host.scripts['gate']!)![1]!
  t.after(async () => rm(open, { force: true }))
  const run = await link.ask([host.program('gate')])
  await until('it runs', () => run.frames.some(({ type }) => type === 'started'))
  const told: boolean[] = []
  network.client.onDrain((on) => told.push(on))
  host.executor.drain(true)
  assert.equal(host.executor.work, null, 'nobody knows yet what clients wait for')
  await until('the network process is told', () => told.length === 1)
  network.client.clientWork({ total: 1, work: [{ kind: 'copy', id: null, who: 'carol', argv: ['/etc/hosts'] }] })
  const work = await until('its work is known', () => host.executor.work)
  assert.deepEqual(
    work.work.map(({ kind, id }) => [kind, id]),
    [
      ['run', run.id],
      ['copy', null],
    ],
  )
  const denied = await link.ask([host.program('hello')])
  assert.equal(await denied.denial(), 'draining')
  assert.deepEqual(await host.events(denied.id), ['denial'])
  const unknown = await network.link(newParty())
  assert.notEqual(await (await unknown.ask([host.program('hello')])).denial(), 'draining', 'an agent that is not accepted learns nothing')

  await writeFile(open, '')
  assert.equal((await run.exit()).code, 7)
  network.client.clientWork(NO_WORK)
  await until('nothing is left', () => host.executor.work?.total === 0)

  host.executor.drain(false)
  await until('it is told again', () => told.at(-1) === false)
  const again = await link.ask([host.program('hello')], { fields: { request_id: denied.id } })
  assert.equal((await again.exit()).code, 0, 'the denied request did not use up its ID')
  const operations = (await host.lines()).flatMap((line) => ('operation' in line ? [line.operation] : []))
  assert.deepEqual(operations, ['drain', 'drain_cancelled'])
})

test('during a drain, a requester that repeats its requests gets an answer each time', async (t) => {
  const { host, link } = await ExecutorHost.linked(t)
  host.executor.drain(true)
  for (let n = 0; n < DENIAL_BURST + 10; n++) assert.equal(await (await link.ask([host.program('hello')])).denial(), 'draining')
})

test('a network process that starts during a drain learns of it, and its false reports only delay it', async (t) => {
  const { host, network } = await ExecutorHost.linked(t)
  host.executor.drain(true)
  await until('the first hears it', () => network.client.isDraining)
  network.client.clientWork(NO_WORK)
  await until('nothing is left', () => host.executor.work?.total === 0)
  const later = await host.connect()
  await until('the second hears it', () => later.client.isDraining)
  assert.equal(host.executor.work, null)
  const send = (json: string): void =>
    (later.client as unknown as { clientWork(work: object): void }).clientWork({ toJSON: () => JSON.parse(json) as unknown })
  for (const json of ['{"total":0}', '{"total":-1,"work":[]}', '{"total":0,"work":[{"kind":"run"}]}', '[]', 'null', '7']) send(json)
  later.client.clientWork({ total: 3, work: [] })
  const work = await until('the last one counts', () => host.executor.work)
  assert.equal(work.total, 3)
})
