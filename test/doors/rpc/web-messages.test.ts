import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { connect as connectTcp } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { MAX_RPC_BATCH, MAX_RPC_MESSAGE } from '../../../src/protocol/limits/rexd.ts'
import { isAlive } from '../../support/processes.ts'
import { ask, connect, post } from '../../support/rexd-callers.ts'
import { gone, pidIn, sharedRexd, startRexd } from '../../support/rexd-server.ts'

// Messages of authenticated clients, tested with the real program.

const TIMEOUT = { timeout: 30_000 }
const shared = sharedRexd({ limits: 'max_concurrent_sessions = 100' })
const MIB = 1024 * 1024
const call = (id: unknown, method: string, params: object = {}) => ({ jsonrpc: '2.0', id, method, params })
const padded = (size: number): Buffer => {
  const text = JSON.stringify(call(1, 'none', { a: '' }))
  return Buffer.from(text.replace('""', `"${'x'.repeat(size - text.length)}"`))
}

test('a body of the maximum size is answered and a larger one gets an error, whole or in chunks', TIMEOUT, async () => {
  const server = await shared()
  for (const [extra, code] of [
    [0, -32_601],
    [1, -32_008],
    [20 * MAX_RPC_MESSAGE, -32_008],
  ] as const) {
    const body = padded(MAX_RPC_MESSAGE + extra)
    const parts = Array.from({ length: Math.ceil(body.length / 100_000) }, (_, at) => body.subarray(at * 100_000, (at + 1) * 100_000))
    for (const given of [{ body }, { parts }]) {
      const { status, json } = await ask(server, given)
      assert.deepEqual([status, json.error.code, json.id], [200, code, code === -32_601 ? 1 : null])
    }
  }
  const { json } = await ask(server, {
    parts: [
      Buffer.from('{"jsonrpc":"2.0","id":"'),
      Buffer.from('é').subarray(0, 1),
      Buffer.from('é').subarray(1),
      Buffer.from('","method":"none"}'),
    ],
  })
  assert.equal(json.id, 'é', 'a character that two chunks share')
})

test('invalid UTF-8, invalid JSON and an empty body get a parse error', TIMEOUT, async (t) => {
  const server = await shared()
  const bodies = ['', ' ', 'nonsense', '{', Buffer.from([0x7b, 0xff, 0x7d]), Buffer.from('{"jsonrpc":"2.0","id":"\u{d800}x"}', 'utf16le')]
  for (const body of bodies) {
    const { status, json } = await ask(server, { body })
    assert.deepEqual([status, json.id, json.error.code], [200, null, -32_700], String(body))
  }
  const spoilt = Buffer.concat([Buffer.from('{"jsonrpc":"2.0","id":1,"method":"'), Uint8Array.of(0xc3, 0x28), Buffer.from('"}')])
  assert.equal((await ask(server, { body: spoilt })).json.error.code, -32_700)
  const caller = await connect(t, server)
  for (const [text, code] of [
    ['', -32_700],
    ['nonsense', -32_700],
    ['[]', -32_600],
  ] as const) {
    const answer = once(caller.socket, 'message')
    caller.socket.send(text)
    assert.equal((JSON.parse(String((await answer)[0])) as { error: { code: number } }).error.code, code)
  }
  caller.socket.send(spoilt, { binary: false })
  assert.equal((await caller.closed).code, 1007, 'RFC 6455, 8.1')
})

/** The peak memory of a process. */
const mostMemory = async (pid: number): Promise<number> =>
  1024 * Number(/VmHWM:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, 'latin1'))![1])

test(
  'a body in chunks of one byte uses little more memory than its size',
  { ...TIMEOUT, skip: !existsSync('/proc/self/status') && 'needs /proc' },
  async (t) => {
    const server = await startRexd(t)
    const socket = connectTcp(server.port, '127.0.0.1')
    const answered = once(socket, 'data')
    const head = [
      'POST /rpc HTTP/1.1',
      `Host: ${new URL(server.url).host}`,
      `Authorization: Bearer ${server.token}`,
      'Content-Type: application/json',
    ]
    socket.write(`${head.join('\r\n')}\r\nTransfer-Encoding: chunked\r\n\r\n`)
    const before = await mostMemory(server.pid)
    const text = padded(MIB).toString()
    for (let at = 0; at < text.length; at += 8_192)
      if (!socket.write(text.slice(at, at + 8_192).replaceAll(/[^]/g, '1\r\n$&\r\n'))) await once(socket, 'drain')
    socket.write('0\r\n\r\n')
    assert.match(String((await answered)[0]), /^HTTP\/1\.1 200 /)
    const grown = (await mostMemory(server.pid)) - before
    assert.ok(grown < 150 * MIB, `${Math.round(grown / MIB)} MiB for one MiB`)
    socket.destroy()
  },
)

test('a client that disconnects during a request or before its answer ends no session or program', TIMEOUT, async (t) => {
  const server = await shared()
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  const { process_id } = await post(server, 'exec.start', { session_id, shell: true, command: 'echo $$ > pid; exec sleep 1000' })
  const pid = await pidIn(join(server.root, 'pid'))
  const headers = { authorization: `Bearer ${server.token}`, 'content-type': 'application/json', 'content-length': 1000 }
  for (const text of ['{"jsonrpc":', JSON.stringify(call(1, 'exec.wait', { session_id, process_id })).padEnd(1000)]) {
    const asked = request(new URL('/rpc', server.url), { method: 'POST', headers })
    asked.on('error', () => undefined)
    await new Promise<void>((resolve) => asked.write(text, () => resolve()))
    const closed = new Promise<void>((resolve) => asked.once('close', () => resolve()))
    asked.destroy()
    await closed
  }
  const caller = await connect(t, server)
  caller.socket.send(JSON.stringify(call(1, 'session.open', { client_name: 'b' })))
  caller.socket.terminate()
  assert.equal((await post(server, 'session.info', { session_id })).processes[0].status, 'running')
  assert.ok(isAlive(pid))
  await post(server, 'exec.kill', { session_id, process_id })
  await gone(pid)
  assert.equal((await post(server, 'exec.wait', { session_id, process_id })).signal, 'SIGTERM')
})

test('binary frames are refused, and earlier requests keep their answers', TIMEOUT, async (t) => {
  const server = await shared()
  const caller = await connect(t, server)
  const opened = caller.call('session.open', { client_name: 'a' })
  await opened
  caller.socket.send(Buffer.from(JSON.stringify(call(1, 'session.open', { client_name: 'a' }))))
  const { code, reason } = await caller.closed
  assert.deepEqual([code, reason], [1003, 'texts only'])
})

test('compression is used if the client offers it, and does not change the content', TIMEOUT, async (t) => {
  const server = await shared()
  const content = `${'a line that is said again\n'.repeat(20_000)}é😀`
  for (const perMessageDeflate of [true, false]) {
    const caller = await connect(t, server, { perMessageDeflate })
    assert.equal(caller.socket.extensions.includes('permessage-deflate'), perMessageDeflate)
    const { session_id } = await caller.call('session.open', { client_name: 'a' })
    const path = join(server.root, `file-${perMessageDeflate}`)
    const socket = (caller.socket as unknown as { _socket: { bytesRead: number; bytesWritten: number } })._socket
    await caller.call('fs.write', { session_id, path, content })
    assert.equal((await caller.call('fs.read', { session_id, path })).content, content)
    const travelled = Math.max(socket.bytesRead, socket.bytesWritten)
    assert.ok(perMessageDeflate ? travelled < content.length / 20 : travelled > content.length, `${travelled} bytes`)
  }
})

test('base64 content is not compressed, even if it is compressible', TIMEOUT, async (t) => {
  const server = await shared()
  const caller = await connect(t, server, { perMessageDeflate: true })
  const { session_id } = await caller.call('session.open', { client_name: 'a' })
  const [path, size] = [join(server.root, 'zeros'), 600_000]
  await writeFile(path, Buffer.alloc(size))
  const socket = (caller.socket as unknown as { _socket: { bytesRead: number } })._socket
  const before = socket.bytesRead
  const { content } = await caller.call('fs.read', { session_id, path, encoding: 'base64' })
  assert.deepEqual(Buffer.from(content as string, 'base64'), Buffer.alloc(size))
  assert.ok(socket.bytesRead - before > (size * 4) / 3, `${socket.bytesRead - before} bytes`)
})

test('a batch gets one answer without its notifications, and notifications alone get no answer', TIMEOUT, async (t) => {
  const server = await startRexd(t)
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  const path = join(server.root, 'notified')
  const write = { jsonrpc: '2.0', method: 'fs.write', params: { session_id, path, content: 'x' } }
  const { status, json } = await ask(server, { body: [call('a', 'session.info', { session_id }), write, 1, call('b', 'none')] })
  assert.equal(status, 200)
  assert.deepEqual(
    (json as { id: unknown; error?: { code: number } }[]).map(({ id, error }) => [id, error?.code]),
    [
      ['a', undefined],
      [null, -32_600],
      ['b', -32_601],
    ],
  )
  assert.equal((await post(server, 'fs.stat', { session_id, path })).exists, true)
  for (const body of [write, [write, write], { jsonrpc: '2.0', method: 'none' }, { jsonrpc: '2.0', method: 'fs.read', params: [] }]) {
    const answer = await ask(server, { body })
    assert.deepEqual([answer.status, answer.text, answer.headers['content-type']], [204, '', undefined], JSON.stringify(body))
  }
  assert.equal(
    (await ask(server, { body: Array.from({ length: MAX_RPC_BATCH + 1 }, (_, id) => call(id, 'none')) })).json.error.code,
    -32_600,
  )
})
