import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import type { Connection, Stream } from '@libp2p/interface'
import { createLibp2p } from 'libp2p'

import { SMALL_WRITE } from '../../src/mesh/libp2p/write-coalescing.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import { until } from '../support/processes.ts'

const PROTOCOL = '/test/1'
const LAST_WORDS = 'the last words'

const startNode = async (t: TestContext, listen: readonly string[]) => {
  const node = await createLibp2p(await libp2pOptions({ seed: randomBytes(32), listen, announce: [], mdns: false, gater: {} }))
  await node.start()
  t.after(async () => node.stop())
  return node
}

/** An open stream that has carried some text, and the received text. */
const connect = async (t: TestContext) => {
  const [here, there] = [await startNode(t, []), await startNode(t, ['/ip4/127.0.0.1/tcp/0'])]
  const heard = { text: '' }
  await there.handle(PROTOCOL, (stream) => {
    stream.addEventListener('message', ({ data }) => (heard.text += Buffer.from(data.subarray()).toString()))
  })
  const connection = await here.dial(there.getMultiaddrs())
  const stream = await connection.newStream(PROTOCOL)
  stream.send(Buffer.from('first '))
  await until(() => heard.text === 'first ')
  return { here, connection, stream, heard }
}

type Below = { abort(error: Error): void; close(): Promise<void>; sendData(data: unknown): unknown }
const belowOf = (connection: Connection): Below => (connection as unknown as { maConn: Below }).maConn

const WAYS: Record<string, (ended: { connection: Connection; stream: Stream; stop(): Promise<void> }) => unknown> = {
  'the connection is aborted': ({ connection }) => connection.abort(new Error('given up')),
  'the connection is closed': ({ connection }) => connection.close(),
  'the transport below Noise is aborted': ({ connection }) => belowOf(connection).abort(new Error('given up')),
  'the transport below Noise is closed': ({ connection }) => belowOf(connection).close(),
  'the stream is aborted': ({ stream }) => stream.abort(new Error('given up')),
  'the stream is closed': ({ stream }) => stream.close(),
  'the node stops': ({ stop }) => stop(),
}

for (const [how, end] of Object.entries(WAYS))
  test(`text written in the turn in which ${how} still arrives`, { timeout: 60_000 }, async (t) => {
    const { here, connection, stream, heard } = await connect(t)
    stream.send(Buffer.from(LAST_WORDS))
    const ended = end({ connection, stream, stop: async () => here.stop() })
    await until(() => heard.text === `first ${LAST_WORDS}`)
    await ended
  })

test(
  'writes of one turn form one message, including writes that follow from it, and large writes do not wait',
  { timeout: 60_000 },
  async (t) => {
    const { connection, stream, heard } = await connect(t)
    const below = belowOf(connection)
    const sendData = below.sendData.bind(below)
    let messages = 0
    below.sendData = (data) => {
      messages += 1
      return sendData(data)
    }
    await turn()
    const before = heard.text
    stream.send(Buffer.from('the end of one'))
    await Promise.resolve()
    stream.send(Buffer.from(', the beginning of the next'))
    assert.equal(messages, 0)
    await until(() => heard.text === `${before}the end of one, the beginning of the next`)
    assert.equal(messages, 1)
    stream.send(Buffer.alloc(SMALL_WRITE))
    assert.equal(messages, 2)
  },
)
