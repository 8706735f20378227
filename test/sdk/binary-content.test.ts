import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import fc from 'fast-check'
import { WebSocketServer, type WebSocket } from 'ws'

import { contentHead, splitContent } from '../../src/protocol/rexd/binary-message.ts'
import { MAX_RPC_MESSAGE } from '../../src/protocol/limits/rexd.ts'
import { Calls } from '../../src/sdk/calls.ts'
import { RexdProtocolError } from '../../src/sdk/errors.ts'
import { parseIncoming } from '../../src/sdk/incoming.ts'
import { startRexd } from '../support/rexd-server.ts'
import { OPENED, type Asked } from './scripted-server.ts'
import { connectedTo, lost } from './web-server.ts'

const MiB = 1024 * 1024

interface Heard extends Asked {
  readonly isBinary: boolean
  readonly content: Buffer | null
}

/** A server that announces binary content or does not. It answers each call with the text and content of `answer`. */
const serverOf = async (t: TestContext, announces: boolean, answer: (heard: Heard, socket: WebSocket) => void) => {
  const http = createServer()
  const server = new WebSocketServer({ server: http })
  const offered: unknown[] = []
  server.on('headers', (headers, request) => {
    offered.push(request.headers['rexd-content'])
    if (announces) headers.push('rexd-content: bytes')
  })
  server.on('connection', (socket) => {
    socket.on('error', () => undefined)
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      const { json, content } = isBinary ? splitContent(data)! : { json: data, content: null }
      const asked = JSON.parse(json.toString()) as Asked
      if (asked.method === 'session.open') return say(socket, asked, OPENED)
      answer({ ...asked, isBinary, content }, socket)
    })
  })
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  t.after(() => {
    for (const socket of server.clients) socket.terminate()
    http.close()
  })
  return { url: `ws://127.0.0.1:${(http.address() as AddressInfo).port}`, offered }
}

const say = (socket: WebSocket, { id }: Asked, result: object): void => socket.send(JSON.stringify({ jsonrpc: '2.0', id, result }))
const WRITTEN = { bytes_written: 3, mtime: '1', mtime_ms: 1, created: true, atomic: false }
const FILE = { path: 'f', size: 3, mtime: '1', mtime_ms: 1, encoding: 'base64', truncated: false }

test('files of a real server travel as bytes, and a direct fs.read call returns base64', async (t) => {
  const { url, token } = await startRexd(t)
  const client = await connectedTo(t, { url, token })
  const session = await client.open({ clientName: 'bytes' })
  const content = randomBytes(3 * MiB + 5)
  assert.equal((await session.files.write('f', content)).bytesWritten, content.length)
  assert.ok(content.equals((await session.files.readAll('f')).data))
  await session.files.write('empty', '')
  assert.deepEqual((await session.files.readAll('empty')).data.length, 0)
  const result = await client.call('fs.read', { session_id: session.id, path: 'f', length: 3, encoding: 'base64' })
  assert.equal(result.content, content.subarray(0, 3).toString('base64'))
})

for (const announces of [true, false])
  test(`file contents go ${announces ? 'as bytes to a server that announces them' : 'in base64 to any other server'}`, async (t) => {
    const heard: Heard[] = []
    const { url, offered } = await serverOf(t, announces, (asked, socket) => {
      heard.push(asked)
      say(socket, asked, asked.method === 'fs.write' ? WRITTEN : { ...FILE, content: 'YWJj' })
    })
    const session = await (await connectedTo(t, { url, token: 'x' })).open({ clientName: 'x' })
    await session.files.write('f', 'abc')
    assert.equal(await session.files.readText('f'), 'abc', 'a server may answer in base64 all the same')
    const [write, read] = heard
    assert.deepEqual([offered, write!.isBinary, read!.isBinary], [['bytes'], announces, false])
    assert.deepEqual([write!.params['content'], write!.content?.toString()], announces ? ['', 'abc'] : ['YWJj', undefined])
  })

test('unannounced binary messages, and bytes in other messages, break the connection', async (t) => {
  const binary = (json: string): Buffer => Buffer.concat([contentHead(json), Buffer.from('abc')])
  const cases = [
    [false, (id: number) => binary(JSON.stringify({ jsonrpc: '2.0', id, result: { ...FILE, content: '' } }))],
    [true, (id: number) => binary(JSON.stringify({ jsonrpc: '2.0', id, result: { ...FILE, content: 'YQ==' } }))],
    [true, (id: number) => binary(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -1, message: 'x' } }))],
    [true, () => binary(JSON.stringify({ jsonrpc: '2.0', method: 'exec.stdout', params: {} }))],
    [true, () => Buffer.from([0, 0, 1, 0, 0x7b])],
    [true, () => binary('{')],
  ] as const
  for (const [announces, message] of cases) {
    const { url } = await serverOf(t, announces, ({ id }, socket) => socket.send(message(id)))
    const session = await (await connectedTo(t, { url, token: 'x' }, { reconnect: false })).open({ clientName: 'x' })
    await assert.rejects(
      session.files.readText('f'),
      (error) => lost(true, /./)(error) && (error as Error).cause instanceof RexdProtocolError,
    )
  }
})

test('property: any text with binary content is an answer with empty content or a protocol error', () => {
  const json = fc.oneof(
    fc.json(),
    fc.jsonValue().map((result) => JSON.stringify({ jsonrpc: '2.0', id: 1, result })),
  )
  fc.assert(
    fc.property(json, fc.uint8Array(), (text, content) => {
      try {
        const incoming = parseIncoming(text, content)
        assert.ok(incoming.kind === 'result' && incoming.content === content)
        assert.equal((incoming.result as { content: unknown }).content, '')
      } catch (error) {
        assert.ok(error instanceof RexdProtocolError, String(error))
      }
    }),
    { seed: 20_261_128, examples: [['{"jsonrpc":"2.0","id":1,"result":{"content":""}}', new Uint8Array(0)]] },
  )
})

test('binary content counts with its base64 size before it is sent', async () => {
  const calls = new Calls()
  const params = { session_id: 's_1', path: '/a', content: '', encoding: 'base64' } as const
  const add = async (bytes: number): Promise<unknown> =>
    calls.add({ method: 'fs.write', params, content: new Uint8Array(bytes), accept: () => null })
  await assert.rejects(add((MAX_RPC_MESSAGE / 4) * 3), /resource_limit: fs.write: a message has at most/)
  assert.equal(calls.waiting, false)
  void add((MAX_RPC_MESSAGE / 4) * 3 - 1_024)
  assert.equal(calls.waiting, true)
})
