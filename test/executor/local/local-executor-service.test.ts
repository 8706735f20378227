import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { SinkQueue } from '../../../src/executor/local/run.ts'
import { boundedError } from '../../../src/executor-api/calls.ts'
import type { LocalRunEvent } from '../../../src/executor-api/local.ts'
import {
  FRAME_COST,
  MAX_FRAME_DATA,
  MAX_PORT_CALLS,
  MAX_SEALED_FRAME,
  MAX_TEXT,
  MIN_UNACKED_PER_RUN,
} from '../../../src/protocol/limits/wire.ts'
import { refuses } from '../../support/file-permit.ts'
import { LocalHost, startOf } from '../../support/local-engine.ts'

test('calls above the limit are refused, and later calls are answered again', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  const beyond = 10
  const stat = async (): Promise<object> => host.executor.file({ method: 'fs.stat', session, path: '.' })
  const answers = await Promise.allSettled(Array.from({ length: MAX_PORT_CALLS + beyond }, stat))
  const refused = answers.filter((answer) => answer.status === 'rejected')
  assert.equal(refused.length, beyond)
  for (const { reason } of refused) assert.equal((reason as AppError).code, 'rate_limited')
  await stat()
  await host.close(await host.open())
})

test('a session can be closed even if other calls use up the call limit', async (t) => {
  const host = await LocalHost.start(t)
  const [session, other] = [await host.open(), await host.open()]
  const { run } = await host.run(other, ['sleep', '1000'])
  const stat = async (): Promise<object> => host.executor.file({ method: 'fs.stat', session, path: '.' })
  const calls = Array.from({ length: MAX_PORT_CALLS }, stat)
  assert.equal(await host.executor.close(other), 1)
  await run.ended
  assert.equal(run.signal('CONT'), false)
  await Promise.all(calls)
})

test('the events of a run come one at a time after its acceptance, and its end comes last', async (t) => {
  const host = await LocalHost.start(t, { scripts: { talks: 'for i in 1 2 3; do echo $i; echo $i >&2; sleep 0.02; done' } })
  const said: string[] = []
  let [running, text] = [0, '']
  const run = await host.executor.start(startOf(await host.open(), [host.program('talks')]), {
    event: async (event) => {
      assert.equal(++running, 1)
      await new Promise(setImmediate)
      running -= 1
      said.push(event.type)
      if (event.type === 'stdout') text += Buffer.from(event.data).toString()
    },
  })
  assert.deepEqual(said, [])
  assert.equal((await run.ended)?.code, 0)
  assert.equal(text, '1\n2\n3\n')
  assert.ok(said.filter((type) => type === 'stderr').length >= 1)
})

test('a sink that fails receives no more events, and its run is cancelled', async (t) => {
  const host = await LocalHost.start(t, { scripts: { floods: 'exec cat /dev/zero' } })
  let told = 0
  const run = await host.executor.start(startOf(await host.open(), [host.program('floods')]), {
    event: async () => {
      told += 1
      throw new Error('full')
    },
  })
  assert.equal((await run.ended)?.signal, 15)
  assert.equal(told, 1)
})

test('events that wait for a sink pause the program at the limit and resume it below', async () => {
  const taken: LocalRunEvent[] = []
  let take = (): void => undefined
  let rooms = 0
  const sink = {
    event: (event: LocalRunEvent): Promise<void> => {
      taken.push(event)
      return new Promise((resolve) => (take = resolve))
    },
  }
  const queue = new SinkQueue({ sink }, { onRoom: () => rooms++, onSinkError: () => assert.fail('it does not fail') })
  const event = { type: 'stdout', data: new Uint8Array(MAX_FRAME_DATA) } as const
  let pushed = 1
  while (queue.push(event)) pushed += 1
  assert.equal(pushed, Math.ceil(MIN_UNACKED_PER_RUN / (MAX_FRAME_DATA + FRAME_COST)))
  assert.deepEqual([taken.length, rooms], [1, 0])
  take()
  await new Promise(setImmediate)
  assert.deepEqual([taken.length, rooms], [2, 1])
  assert.equal(queue.push(event), false)
  queue.close()
  assert.deepEqual([rooms, queue.push(event)], [2, true])
  take()
  await queue.idle()
  assert.equal(taken.length, 2)
})

test('a long error is shortened to fit in a message, and an unknown error becomes internal', async (t) => {
  const long = boundedError(new AppError('file_not_found', 'x'.repeat(2 * MAX_TEXT), { data: { argv0: 'x'.repeat(MAX_SEALED_FRAME) } }))
  assert.deepEqual([long.code, long.message.length, long.data], ['file_not_found', MAX_TEXT / 4, {}])
  assert.equal(boundedError(new TypeError('secret')).code, 'internal')
  const host = await LocalHost.start(t)
  host.engine.open = async () => {
    throw new TypeError('secret')
  }
  await refuses(host.open(), 'internal')
})

test('a file call that is aborted before its change changes nothing, even if it had to wait', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  const at = (path: string) =>
    ({
      method: 'fs.write',
      session,
      path,
      mode: 'create',
      mkdir_parents: false,
      atomic: false,
      expected_mtime: null,
      data: Buffer.from('x'),
    }) as const
  const given = new AbortController()
  const one = host.executor.file(at('given-up'), given.signal)
  const others = Array.from({ length: 20 }, async (_one, n) => host.executor.file(at(`other-${n}`)))
  const last = host.executor.file(at('given-up-too'), given.signal)
  given.abort(new AppError('timeout', 'nothing was changed'))
  await Promise.all([one, last].map(async (call) => assert.rejects(call, { code: 'timeout' })))
  await Promise.all(others)
  const read = async (path: string) => host.executor.file({ method: 'fs.read', session, path, offset: 0, length: null })
  for (const path of ['given-up', 'given-up-too']) await assert.rejects(read(path), { code: 'file_not_found' })
  await read('other-19')
})
