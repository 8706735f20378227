import assert from 'node:assert/strict'
import { duplexPair } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { LocalPortSession } from '../../../src/executor/local/local-port-session.ts'
import { PortChannel } from '../../../src/executor/port/codec.ts'
import { LocalExecutorClient } from '../../../src/executor/port/local-client.ts'
import {
  localFrame,
  toLocalDoor,
  toLocalExecutor,
  type LocalFrame,
  type ToLocalDoor,
  type ToLocalExecutor,
} from '../../../src/executor/port/local-messages.ts'
import { PendingCalls } from '../../../src/executor/port/pending-calls.ts'
import { MAX_PORT_CALLS } from '../../../src/protocol/limits.ts'
import { NO_BYTES } from '../../../src/protocol/schema.ts'
import { refuses } from '../../support/file-permit.ts'
import { LocalHost, openingOf, soon, startOf } from '../../support/local-engine.ts'
import { silent, until } from '../../support/processes.ts'

/** A door that says whatever it likes, and keeps what it is told. */
class RawDoor {
  readonly told: ToLocalDoor[] = []
  readonly channel: PortChannel<ToLocalDoor, ToLocalExecutor>
  readonly port: LocalPortSession
  #id = 0

  constructor(host: LocalHost) {
    const [near, far] = duplexPair()
    this.port = new LocalPortSession({ engine: host.engine, duplex: far })
    this.channel = new PortChannel(
      { duplex: near, incoming: toLocalDoor, outgoing: toLocalExecutor },
      {
        onMessage: (message) => this.told.push(message),
        onMalformed: () => assert.fail('the executor said what nobody understands'),
        onClosed: () => undefined,
        holdWhenBehind: false,
      },
    )
  }

  /** Says it, and answers what it is told for it. */
  async ask(message: Record<string, unknown> & { type: ToLocalExecutor['type'] }): Promise<Extract<ToLocalDoor, { id: number }>> {
    const id = ++this.#id
    this.channel.send({ id, ...message } as unknown as ToLocalExecutor)
    const answer = () => this.told.find((one): one is Extract<ToLocalDoor, { id: number }> => 'id' in one && one.id === id)
    await until(() => answer() !== undefined)
    return answer()!
  }

  async open(): Promise<string> {
    const answer = await this.ask({ type: 'session_open', ...openingOf() })
    assert.ok(answer.type === 'session_opened')
    return answer.session
  }

  frame(run: number, frame: LocalFrame): void {
    this.channel.send({ type: 'run_frame', run, frame: NO_BYTES }, localFrame.encode(frame))
  }

  framesOf(run: number): LocalFrame[] {
    return this.told.flatMap((one) => (one.type === 'run_frame' && one.run === run ? [localFrame.decode(one.frame)] : []))
  }

  isClosed(run: number): boolean {
    return this.told.some((one) => one.type === 'run_closed' && one.run === run)
  }
}

const rawDoor = async (t: TestContext): Promise<{ host: LocalHost; door: RawDoor; session: string }> => {
  const host = await LocalHost.start(t, { scripts: { waits: 'echo ready; exec sleep 1000' } })
  const door = new RawDoor(host)
  return { host, door, session: await door.open() }
}

const codeOf = (answer: ToLocalDoor): string => (answer.type === 'failed' ? answer.code : answer.type)

test('a run is accepted before anything is told of it, and closed behind its outcome', async (t) => {
  const { door, session } = await rawDoor(t)
  await door.ask({ type: 'run_start', ...startOf(session, ['echo', 'x']), run: 7 })
  await until(() => door.isClosed(7))
  const types = door.told.slice(1).map((one) => (one.type === 'run_frame' ? localFrame.decode(one.frame).type : one.type))
  assert.deepEqual(types, ['run_accepted', 'started', 'stdout', 'outcome', 'run_closed'])
})

test('a number that a run has cannot be given to another, and is free again afterwards', async (t) => {
  const { host, door, session } = await rawDoor(t)
  const start = { type: 'run_start', ...startOf(session, [host.program('waits')]), run: 1 } as const
  assert.equal(codeOf(await door.ask(start)), 'run_accepted')
  assert.equal(codeOf(await door.ask(start)), 'malformed')
  await until(() => door.framesOf(1).length > 0)
  door.frame(1, { type: 'cancel', request_id: door.framesOf(1)[0]!.request_id })
  await until(() => door.isClosed(1))
  assert.equal(codeOf(await door.ask(start)), 'run_accepted')
})

test('a number whose command was refused is free', async (t) => {
  const { door, session } = await rawDoor(t)
  const start = { type: 'run_start', ...startOf(session, ['no-such-program-x0x']), run: 1 } as const
  assert.equal(codeOf(await door.ask(start)), 'file_not_found')
  assert.equal(codeOf(await door.ask({ ...start, argv: ['true'] })), 'run_accepted')
})

test('frames of a run that is not there are passed over, also those that are none', async (t) => {
  const { door, session } = await rawDoor(t)
  for (const run of [0, 1, 99]) {
    door.channel.send({ type: 'run_frame', run, frame: Buffer.from('nonsense') })
    door.frame(run, { type: 'cancel', request_id: '01890a5d-ac96-774b-bcce-b302099a8057' })
  }
  assert.equal(codeOf(await door.ask({ type: 'file_stat', session, path: '.' })), 'file_done')
})

test('a frame that no door may send ends its run, and neither the session nor another run', async (t) => {
  const { host, door, session } = await rawDoor(t)
  const start = (run: number) => door.ask({ type: 'run_start', ...startOf(session, [host.program('waits')]), run })
  const id = '01890a5d-ac96-774b-bcce-b302099a8057'
  const frames: LocalFrame[] = [
    { type: 'stdout', request_id: id, seq: 0, data: Buffer.from('x') },
    { type: 'started', request_id: id, pid: 1 },
    { type: 'stdin', request_id: id, seq: 0, data: Buffer.from('not asked for'), eof: false },
    { type: 'ack', request_id: id, stdin: 0, stdout: 1_000, stderr: 0 },
  ]
  await start(0)
  for (const [at, frame] of frames.entries()) {
    await start(at + 1)
    door.frame(at + 1, frame)
    await until(() => door.isClosed(at + 1))
  }
  await start(9)
  door.channel.send({ type: 'run_frame', run: 9, frame: Buffer.from('nonsense') })
  await until(() => door.isClosed(9))
  assert.equal(door.isClosed(0), false)
  assert.ok(await soon(() => host.engine.session(session).slots.active === 1))
})

test('a message that is none ends the channel, and what it had running', async (t) => {
  const { host, door, session } = await rawDoor(t)
  await door.ask({ type: 'run_start', ...startOf(session, [host.program('waits')]), run: 1 })
  const { client, port, duplex } = host.connect()
  const other = await host.run(await host.open({}, client), [host.program('waits')], {}, client)
  duplex.write(Buffer.from([0, 0, 0, 3, 1, 2, 3]))
  await port.closed
  assert.equal(await other.run.ended, null)
  assert.equal(codeOf(await door.ask({ type: 'file_stat', session, path: '.' })), 'file_done')
})

test('so many calls are answered at once; what is beyond is refused, and the next are answered again', async (t) => {
  const { host, door, session } = await rawDoor(t)
  const beyond = 10
  for (let id = 1_001; id <= 1_000 + MAX_PORT_CALLS + beyond; id++) door.channel.send({ type: 'file_stat', id, session, path: '.' })
  await until(() => door.told.filter((one) => 'id' in one && one.id > 1_000).length === MAX_PORT_CALLS + beyond)
  const codes = door.told.filter((one) => 'id' in one && one.id > 1_000).map(codeOf)
  assert.deepEqual(
    [codes.filter((code) => code === 'file_done').length, codes.filter((code) => code === 'rate_limited').length],
    [MAX_PORT_CALLS, beyond],
  )
  assert.equal(codeOf(await door.ask({ type: 'file_stat', session, path: '.' })), 'file_done')
  await host.close(await host.open())
})

test('whoever waits for an answer when the executor goes is told so, and so is whoever asks afterwards', async (t) => {
  const host = await LocalHost.start(t)
  const { client, duplex } = host.connect()
  const session = await host.open({}, client)
  const waiting = [host.run(session, ['true'], {}, client), client.call('file_stat', { session, path: '.' })]
  duplex.destroy()
  for (const one of waiting) await refuses(one, 'shutting_down')
  await refuses(client.call('file_stat', { session, path: '.' }), 'shutting_down')
  assert.equal(await client.closed, null)
})

test('a door that is told what it never asked for goes on', async () => {
  const [near, far] = duplexPair()
  const client = new LocalExecutorClient({ duplex: near, log: silent })
  const executor = new PortChannel(
    { duplex: far, incoming: toLocalExecutor, outgoing: toLocalDoor },
    {
      onMessage: (message) => 'id' in message && executor.send({ type: 'done', id: message.id, json: '{}' }),
      onMalformed: () => assert.fail('malformed'),
      onClosed: () => undefined,
      holdWhenBehind: true,
    },
  )
  executor.send({ type: 'done', id: 99, json: '{}' })
  executor.send({ type: 'run_closed', run: 99 })
  executor.send({ type: 'run_frame', run: 99, frame: Buffer.from('nonsense') })
  assert.deepEqual(await client.call('session_close', { session: 's' }), { json: '{}' })
  await refuses(client.call('file_stat', { session: 's', path: '.' }), 'internal')
  client.stop()
})

test('an answer goes to its own call, once, and only where it is of the right kind', async () => {
  const calls = new PendingCalls()
  const [first, second, third] = [calls.begin('done'), calls.begin('done'), calls.begin('file_done')]
  assert.deepEqual([first.id, second.id, third.id], [1, 2, 3])
  assert.equal(calls.settle({ type: 'done', id: 2 }), true)
  assert.equal(calls.settle({ type: 'done', id: 2 }), false)
  assert.equal(calls.settle({ type: 'done', id: 4 }), false)
  assert.deepEqual(await second.answer, { type: 'done', id: 2 })
  calls.settle({ type: 'done', id: 3 })
  await assert.rejects(third.answer, { code: 'internal', message: 'the executor answered done instead of file_done' })
  const failed = { type: 'failed', id: 1, code: 'resource_limit', message: 'no', data: '{"max":3}' }
  calls.settle(failed)
  await assert.rejects(first.answer, { code: 'resource_limit', message: 'no', data: { max: 3 } })
})

test('an error of a code that is not known is one inside, and calls that nobody answers fail once', async () => {
  const calls = new PendingCalls()
  const strange = calls.begin('done')
  calls.settle({ type: 'failed', id: strange.id, code: 'toString', message: 'x', data: '{}' } as never)
  await assert.rejects(strange.answer, { code: 'internal' })
  const waiting = [calls.begin('done'), calls.begin('done')]
  const cause = new Error('gone')
  calls.fail(cause)
  for (const { answer } of waiting) await assert.rejects(answer, { code: 'shutting_down', cause })
  assert.equal(calls.settle({ type: 'done', id: waiting[0]!.id }), false)
  calls.fail(null)
})
