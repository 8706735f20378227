import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { ConsoleConnection, type ConsoleService } from '../../../src/doors/console/connection.ts'
import type { ConsoleSubscriber } from '../../../src/doors/console/host.ts'
import {
  CONSOLE_LINE_MS,
  CONSOLE_REST_MS,
  MAX_CONSOLE_LINE,
  type ConsoleReply,
  type ConsoleRequest,
} from '../../../src/protocol/console/messages.ts'
import { RawClient } from '../../support/console-place.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/processes.ts'
import { tempDir } from '../../support/temp-dir.ts'

const REQUEST = { whoami: 'Codex', dir: '/', envs: {}, exec: ['true'] }

/** Executes nothing. The test decides when a command ends. */
class FakeService implements ConsoleService {
  readonly asked: { request: ConsoleRequest; gone: AbortSignal; reply: (reply: ConsoleReply) => void }[] = []
  readonly attached = new Set<ConsoleSubscriber>()

  async run(request: ConsoleRequest, gone: AbortSignal): Promise<ConsoleReply> {
    return new Promise((resolve) => {
      this.asked.push({ request, gone, reply: resolve })
      gone.addEventListener('abort', () => resolve({ exit: 143, output: '', error: 'aborted' }), { once: true })
    })
  }

  isFull = false

  attach(one: ConsoleSubscriber): (() => void) | null {
    if (this.isFull) return null
    this.attached.add(one)
    return () => this.attached.delete(one)
  }
}

const start = async (t: TestContext) => {
  const path = join(await tempDir(t), 's')
  const [service, clock, sockets] = [new FakeService(), new ManualClock(), new Set<Socket>()]
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    void new ConsoleConnection({ service, clock }, { socket })
  })
  server.listen(path)
  await once(server, 'listening')
  const clients: RawClient[] = []
  t.after(() => {
    for (const { socket } of clients) socket.destroy()
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const client = (): RawClient => {
    const one = new RawClient(path)
    clients.push(one)
    return one
  }
  const asked = async (count: number) => {
    await until(() => service.asked.length >= count)
    return service.asked[count - 1]!
  }
  return { service, clock, client, asked, sockets }
}

const refusal = async (client: RawClient): Promise<string> => {
  const reply = await client.next()
  assert.deepEqual([reply?.['exit'], reply?.['output'], reply?.['error']], [127, '', 'refused'])
  return String(reply?.['message'])
}

test('the old protocol runs one command without a ping, sends one reply and closes the connection', async (t) => {
  const { client, asked } = await start(t)
  const one = client()
  one.send(REQUEST)
  const { request, reply } = await asked(1)
  assert.deepEqual(request.exec, ['true'])
  reply({ exit: 0, output: 'hi\n' })
  assert.deepEqual(await one.next(), { exit: 0, output: 'hi\n' })
  assert.equal(await one.next(), null)
})

test('the new protocol requires a ping before each command and keeps the connection open', async (t) => {
  const { client, asked } = await start(t)
  const one = client()
  one.send({ action: 'ping' })
  assert.deepEqual(await one.next(), { result: 'pong' })
  for (const turn of [1, 2, 3]) {
    one.send({ action: 'ping' })
    assert.deepEqual(await one.next(), { result: 'pong' })
    one.send(REQUEST)
    const { reply } = await asked(turn)
    reply({ exit: turn, output: '' })
    assert.deepEqual(await one.next(), { exit: turn, output: '' })
  }
  one.send(REQUEST)
  assert.match(await refusal(one), /send a ping/)
  assert.equal(await one.next(), null)
})

test('ping and command may arrive in one piece', async (t) => {
  const { client, asked } = await start(t)
  const one = client()
  one.send(`{"action":"ping"}\n${JSON.stringify(REQUEST)}`)
  assert.deepEqual(await one.next(), { result: 'pong' })
  const { reply } = await asked(1)
  reply({ exit: 0, output: '' })
  assert.deepEqual(await one.next(), { exit: 0, output: '' })
})

for (const [how, end] of [
  ['abort', (one: RawClient) => one.send({ action: 'abort' })],
  ["the end of the client's input", (one: RawClient) => one.socket.end()],
] as const)
  test(`${how} aborts the command, and the client still gets the reply`, async (t) => {
    const { client, asked } = await start(t)
    const one = client()
    one.send(REQUEST)
    const { gone } = await asked(1)
    end(one)
    assert.deepEqual(await one.next(), { exit: 143, output: '', error: 'aborted' })
    assert.equal(gone.aborted, true)
    assert.equal(await one.next(), null)
  })

for (const [what, line, problem] of [
  ['a line that is not JSON', 'hello', /not JSON/],
  ['a line over the size limit', 'x'.repeat(MAX_CONSOLE_LINE + 1), /at most/],
  ['a command without a program', JSON.stringify({ ...REQUEST, exec: [] }), /exec/],
] as const)
  test(`the console refuses ${what} and runs no command`, async (t) => {
    const { client, service } = await start(t)
    const one = client()
    one.send(line)
    assert.match(await refusal(one), problem)
    assert.equal(await one.next(), null)
    assert.equal(service.asked.length, 0)
  })

test('the console refuses a line over the size limit before its end, and reads one of exactly the limit to its end', async (t) => {
  const { client, service } = await start(t)
  const [long, longer] = [client(), client()]
  long.socket.write('x'.repeat(MAX_CONSOLE_LINE))
  longer.socket.write('x'.repeat(MAX_CONSOLE_LINE + 1))
  assert.match(await refusal(longer), /at most/)
  assert.equal(await longer.next(), null)
  long.socket.write('\n')
  assert.match(await refusal(long), /not JSON/)
  assert.equal(service.asked.length, 0)
})

test('after the line timeout, a client with an unfinished line gets a refusal, and a silent client is disconnected', async (t) => {
  const { client, clock, sockets } = await start(t)
  const [half, silent] = [client(), client()]
  await Promise.all([once(half.socket, 'connect'), once(silent.socket, 'connect')])
  half.socket.write('{"whoami":"C')
  await until(() => sockets.size === 2 && [...sockets].some(({ bytesRead }) => bytesRead > 0))
  await clock.advance(CONSOLE_LINE_MS)
  assert.match(await refusal(half), /not finished/)
  assert.equal(await half.next(), null)
  assert.equal(await silent.next(), null)
})

test('an unfinished line during a command aborts the command after the line timeout', async (t) => {
  const { client, clock, asked, sockets } = await start(t)
  const one = client()
  one.send(REQUEST)
  const { gone } = await asked(1)
  const [socket] = sockets
  const before = socket?.bytesRead ?? 0
  one.socket.write('{"action":')
  await until(() => (socket?.bytesRead ?? 0) > before)
  await clock.advance(CONSOLE_LINE_MS)
  await refusal(one)
  assert.equal(gone.aborted, true)
})

test('a command may run for any time, but a connection that is idle after it is closed', async (t) => {
  const { client, clock, asked } = await start(t)
  const one = client()
  one.send({ action: 'ping' })
  await one.next()
  one.send(REQUEST)
  const { gone, reply } = await asked(1)
  await clock.advance(10 * CONSOLE_REST_MS)
  assert.equal(gone.aborted, false)
  reply({ exit: 0, output: '' })
  assert.deepEqual(await one.next(), { exit: 0, output: '' })
  await clock.advance(CONSOLE_REST_MS)
  assert.equal(await one.next(), null)
})

test('an attached client gets events until it leaves, and a client that does not read is disconnected', async (t) => {
  const { client, service, sockets } = await start(t)
  const [reads, sleeps] = [client(), client()]
  for (const one of [reads, sleeps]) one.send({ action: 'attach', ansi: false })
  await until(() => service.attached.size === 2)
  sleeps.socket.pause()
  const entry = { whoami: 'C', dir: '/', envs: {}, exec: ['x'], exit: 0, output: 'x'.repeat(1_000_000), time: '2026-01-01T00:00:00Z' }
  for (let told = 0; sockets.size === 2 && told < 100; told++) {
    for (const one of service.attached) one.emit(entry)
    assert.equal((await reads.next())?.['event'], 'transcript')
  }
  await until(() => service.attached.size === 1)
  reads.socket.end()
  await until(() => service.attached.size === 0)
})

test('a client that sends requests without reading the answers is disconnected', async (t) => {
  const { client, sockets } = await start(t)
  const one = client()
  one.socket.pause()
  await until(() => sockets.size === 1)
  const pings = '{"action":"ping"}\n'.repeat(10_000)
  await until(() => {
    if (sockets.size > 0) one.socket.write(pings)
    return sockets.size === 0
  })
})

test('the console refuses to attach a client if 16 are attached', async (t) => {
  const { service, client } = await start(t)
  service.isFull = true
  const one = client()
  one.send({ action: 'attach' })
  assert.equal(await refusal(one), '16 are attached; no others are allowed')
  assert.equal(await one.next(), null)
})
