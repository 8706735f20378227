import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { MAX_FILE_CHUNK, MAX_RPC_MESSAGE } from '../../../src/protocol/limits/rexd.ts'
import { contentHead, splitContent } from '../../../src/protocol/rexd/binary-message.ts'
import { connect, type SocketCaller } from '../../support/rexd-callers.ts'
import { sharedRexd, type RexdServer } from '../../support/rexd-server.ts'

const TIMEOUT = { timeout: 30_000 }
const shared = sharedRexd({ limits: 'max_concurrent_sessions = 100' })

/** A client that requests binary content and has an open session. */
const announced = async (t: TestContext, server: RexdServer): Promise<{ caller: SocketCaller; session_id: string }> => {
  const caller = await connect(t, server, { headers: { authorization: `Bearer ${server.token}`, 'rexd-content': 'bytes' } })
  const { session_id } = await caller.call('session.open', { client_name: 'a' })
  // From here on, the tests read the raw messages.
  caller.socket.removeAllListeners('message')
  return { caller, session_id }
}

const request = (method: string, params: object): object => ({ jsonrpc: '2.0', id: 7, method, params })

interface Heard {
  readonly isBinary: boolean
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any
  readonly content: Buffer | null
}

/** Returns the answer to this message. */
const answer = async ({ socket }: SocketCaller, message: string | Buffer): Promise<Heard> => {
  const heard = once(socket, 'message') as Promise<[Buffer, boolean]>
  socket.send(message)
  const [data, isBinary] = await heard
  if (!isBinary) return { isBinary, json: JSON.parse(data.toString()) as unknown, content: null }
  const { json, content } = splitContent(data)!
  return { isBinary, json: JSON.parse(json.toString()) as unknown, content }
}

const writing = (session_id: string, path: string, content: Uint8Array): Buffer =>
  Buffer.concat([contentHead(JSON.stringify(request('fs.write', { session_id, path, encoding: 'base64', content: '' }))), content])

test('a client that announces binary content reads and writes a file as bytes', TIMEOUT, async (t) => {
  const server = await shared()
  const { caller, session_id } = await announced(t, server)
  const [path, bytes] = [join(server.root, 'bytes'), randomBytes(MAX_FILE_CHUNK / 2)]
  const { json } = await answer(caller, writing(session_id, path, bytes))
  assert.deepEqual([json.id, json.result.bytes_written], [7, bytes.length])
  assert.ok(bytes.equals(await readFile(path)))
  const read = await answer(caller, JSON.stringify(request('fs.read', { session_id, path, length: bytes.length, encoding: 'base64' })))
  assert.deepEqual(
    [read.isBinary, read.json.result.content, read.json.result.encoding, read.json.result.size],
    [true, '', 'base64', bytes.length],
  )
  assert.ok(bytes.equals(read.content!))
})

test('reads in utf8, batches and writes in base64 remain text messages', TIMEOUT, async (t) => {
  const server = await shared()
  const { caller, session_id } = await announced(t, server)
  const path = join(server.root, 'text')
  const written = await answer(caller, JSON.stringify(request('fs.write', { session_id, path, content: 'YWI=', encoding: 'base64' })))
  assert.equal(written.json.result.bytes_written, 2)
  const utf8 = await answer(caller, JSON.stringify(request('fs.read', { session_id, path })))
  assert.deepEqual([utf8.isBinary, utf8.json.result.content], [false, 'ab'])
  const batch = await answer(caller, JSON.stringify([request('fs.read', { session_id, path, encoding: 'base64' })]))
  assert.deepEqual([batch.isBinary, batch.json[0].result.content], [false, 'YWI='])
})

test('binary content has the same size limits as base64', TIMEOUT, async (t) => {
  const server = await shared()
  const { caller, session_id } = await announced(t, server)
  const path = join(server.root, 'large')
  const { json } = await answer(caller, writing(session_id, path, Buffer.alloc(MAX_FILE_CHUNK + 1)))
  assert.deepEqual([json.error.code, json.error.data.limit, json.error.data.max], [-32_008, 'content', MAX_FILE_CHUNK])
  caller.socket.send(writing(session_id, path, Buffer.alloc(MAX_RPC_MESSAGE)))
  assert.equal((await caller.closed).code, 1009)
  await assert.rejects(readFile(path), { code: 'ENOENT' })
})

test("binary content for another client's session is refused like any call", TIMEOUT, async (t) => {
  const server = await shared()
  const [mine, theirs] = [await announced(t, server), await announced(t, server)]
  const { json } = await answer(mine.caller, writing(theirs.session_id, join(server.root, 'foreign'), Buffer.from('x')))
  assert.equal(json.error.data.code, 'unknown_session')
})

test('only a client that announces "bytes" exactly gets and may send binary messages', TIMEOUT, async (t) => {
  const server = await shared()
  const path = join(server.root, 'unannounced')
  await writeFile(path, 'ab')
  for (const others of [{}, { 'rexd-content': 'other' }, { 'rexd-content': 'bytes, bytes' }]) {
    const caller = await connect(t, server, { headers: { authorization: `Bearer ${server.token}`, ...others } })
    const { session_id } = await caller.call('session.open', { client_name: 'a' })
    assert.equal((await caller.call('fs.read', { session_id, path, encoding: 'base64' })).content, 'YWI=')
    caller.socket.send(writing(session_id, path, Buffer.from('changed')))
    assert.deepEqual(await caller.closed, { code: 1003, reason: 'texts only' })
  }
  assert.equal(await readFile(path, 'utf8'), 'ab')
})
