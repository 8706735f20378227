import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { once } from 'node:events'
import { chmod, mkdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

import fc from 'fast-check'

import { systemClock } from '../../src/base/clock.ts'
import {
  NO_WORK,
  type HandoverEvent,
  type WorkList,
  joinedWork,
  readHandoverEvent,
  readWorkList,
  shortArgv,
  workListOf,
} from '../../src/protocol/handover.ts'
import { MAX_DRAIN_MS, MAX_WORK_LISTED } from '../../src/protocol/limits/daemon.ts'
import { Drain } from '../../src/supervision/drain.ts'
import { HandoverServer } from '../../src/supervision/handover-server.ts'
import { drainText, workLine } from '../../src/programs/x0xd/replace-progress.ts'
import { asOtherUser } from '../support/other-user.ts'
import { until } from '../support/mesh-of-daemons.ts'
import { silent } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

const one = { kind: 'run', id: '1', who: 'alice', argv: ['sleep', '9'] } as const

/** A daemon with one running command. */
const daemonIn = async (t: TestContext) => {
  const dir = await tempDir(t)
  const part = { isDraining: false, work: workListOf([one]) as WorkList | null, drain: (on: boolean) => void (part.isDraining = on) }
  const deps = { clock: systemClock, log: silent }
  const drain = new Drain(deps, [part])
  let replaced = 0
  const path = join(dir, 'handover.sock')
  const server = new HandoverServer({ ...deps, drain }, { path, onReplaced: () => void (replaced += 1) })
  await server.start()
  t.after(() => server.stop())
  return { dir, part, drain, path, server, replaced: () => replaced }
}

const ask = async (t: TestContext, path: string, line: string | Uint8Array) => {
  const socket: Socket = connect(path)
  t.after(() => socket.destroy())
  const events: HandoverEvent[] = []
  let text = ''
  socket
    .on('error', () => undefined)
    .on('data', (chunk) => {
      text += String(chunk)
      const lines = text.split('\n')
      text = lines.pop()!
      for (const whole of lines) events.push(readHandoverEvent(JSON.parse(whole)))
    })
  await once(socket, 'connect')
  socket.write(line)
  return { socket, events }
}

const DRAIN = `${JSON.stringify({ drain_ms: 60_000 })}\n`

test('a drain lasts until the work has ended, and then the daemon is replaced', async (t) => {
  const { part, path, replaced } = await daemonIn(t)
  const { events } = await ask(t, path, DRAIN)
  await until('it drains', () => events[0]?.type === 'draining' && events[0].total === 1)
  assert.ok(part.isDraining)
  part.work = null
  await until('unknown work counts', () => events.length > 1 && events.every(({ type }) => type === 'draining'))
  assert.equal(replaced(), 0)
  part.work = NO_WORK
  await until('it ends', () => events.at(-1)?.type === 'ending')
  assert.deepEqual([events.at(-1), replaced(), part.isDraining], [{ type: 'ending', total: 0, work: [] }, 1, true])
})

test('a client that disconnects cancels its drain, and only one client drains at a time', async (t) => {
  const { part, path, replaced } = await daemonIn(t)
  const { socket, events } = await ask(t, path, DRAIN)
  await until('it drains', () => events.length > 0)
  const second = await ask(t, path, DRAIN)
  await until('the second is refused', () => second.events[0]?.type === 'refused')
  assert.ok(part.isDraining)
  socket.destroy()
  await until('it serves again', () => !part.isDraining)
  const third = await ask(t, path, `{"drain_ms":1}\n`)
  await until('the deadline is over', () => third.events.at(-1)?.type === 'ending')
  assert.deepEqual([third.events.at(-1), replaced()], [{ type: 'ending', total: 1, work: [one] }, 1])
})

test('only a valid request on the socket starts a drain', async (t) => {
  const { part, path, replaced } = await daemonIn(t)
  const bad = fc.oneof(
    fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.concat([bytes, Buffer.from('\n')])),
    fc.json().map((json) => Buffer.from(`${json.replaceAll('\n', ' ')}\n`)),
    fc
      .record({ drain_ms: fc.oneof(fc.constant(-1), fc.constant(MAX_DRAIN_MS + 1), fc.double(), fc.string()), more: fc.nat() })
      .map((value) => Buffer.from(`${JSON.stringify(value)}\n`)),
  )
  await fc.assert(
    fc.asyncProperty(bad, async (bytes) => {
      const { socket, events } = await ask(t, path, bytes)
      await until('it is refused', () => events.length > 0 || socket.destroyed)
      assert.ok(
        events.every(({ type }) => type === 'refused'),
        JSON.stringify(events),
      )
      socket.destroy()
    }),
    { numRuns: 60 },
  )
  assert.deepEqual([part.isDraining, replaced()], [false, 0])
})

test('other users cannot open the handover socket', { skip: process.geteuid?.() !== 0 && 'needs root' }, async (t) => {
  const { dir, path } = await daemonIn(t)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  await chmod(dir, 0o755)
  const script = `require('net').connect(${JSON.stringify(path)}).on('error', (e) => { console.log(e.code); process.exit(3) })`
  assert.equal(asOtherUser(['-e', script]).status, 3)
})

test('a daemon starts even if it cannot listen on the handover socket, and logs a warning', async (t) => {
  const dir = await tempDir(t)
  const path = join(dir, 'x'.repeat(200), 'handover.sock')
  await mkdir(join(dir, 'x'.repeat(200)))
  await writeFile(join(dir, 'file'), '')
  const warned: string[] = []
  const log = { ...silent, warn: (_facts: unknown, text?: string) => void warned.push(String(text)) } as typeof silent
  const deps = { clock: systemClock, log }
  for (const where of [path, join(dir, 'file')]) {
    const server = new HandoverServer({ ...deps, drain: new Drain(deps, []) }, { path: where, onReplaced: () => undefined })
    await server.start()
    server.stop()
  }
  assert.equal(warned.length, 2)
})

test('a list of work is limited in size, and contains no control characters from a requester', () => {
  const many = workListOf(Array.from({ length: 200 }, () => one))
  assert.deepEqual([many.total, many.work.length], [200, MAX_WORK_LISTED])
  assert.equal(joinedWork([many, many]).total, 400)
  fc.assert(
    fc.property(fc.array(fc.string({ unit: 'binary', maxLength: 2_000 }), { maxLength: 700 }), (argv) => {
      const list = workListOf([{ ...one, argv: shortArgv(argv) }])
      assert.deepEqual(readWorkList(JSON.stringify(list)), list)
      assert.ok(JSON.stringify(list.work[0]!.argv).length < 8_000)
    }),
  )
  assert.doesNotMatch(workLine({ ...one, argv: ['a\u001b[2Jb\n'] }), /\p{Cc}/u)
  assert.deepEqual([drainText(3, 252_000), drainText(1, 900)], ['draining: 3 runs, 4 min 12 s left', 'draining: 1 run, 1 s left'])
  for (const bad of [
    '',
    '[]',
    '{"total":1}',
    '{"total":0,"work":[],"more":1}',
    '{"total":0,"work":[{"kind":"RUN","id":null,"who":null,"argv":[]}]}',
  ])
    assert.throws(() => readWorkList(bad), /list of runs/)
})
