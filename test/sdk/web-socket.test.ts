import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { WebSocketServer, type WebSocket } from 'ws'

import { connect } from '../../src/sdk/client.ts'
import { RexdDisconnected, RexdProtocolError } from '../../src/sdk/errors.ts'
import { MAX_INCOMING_MESSAGE } from '../../src/sdk/transport.ts'
import { MAX_UNSENT, webSocket } from '../../src/sdk/web-socket.ts'
import { certificate, withoutOpenssl } from '../support/certificates.ts'
import { until } from '../support/processes.ts'
import { gone, pidIn, rexdPlace, startRexd } from '../support/rexd-server.ts'
import { OPENED, type Asked } from './scripted-server.ts'
import { watch } from './real-server.ts'
import { connectedTo, lost, proxied } from './web-server.ts'

const MiB = 1024 * 1024

test("a detached program continues after its session closes, and another client's session lists it", async (t) => {
  const { url, token } = await startRexd(t, { security: 'allow_detach = true' })
  const [first, second] = [await connectedTo(t, { url, token }), await connectedTo(t, { url, token })]
  const session = await first.open({ clientName: 'first' })
  const { id } = await session.exec(['sleep', '600'], { detach: true })
  assert.deepEqual(await session.close(), { terminated: 0 })
  const { detached } = await (await second.open({ clientName: 'second' })).info()
  assert.deepEqual(
    detached?.map(({ processId, status }) => [processId, status]),
    [[id, 'running']],
  )
})

test('commands with stdin, files and refusals work over a WebSocket', async (t) => {
  const { url, token, root } = await startRexd(t)
  const client = await connectedTo(t, { url, token: async () => token })
  const session = await client.open({ clientName: 'ws' })
  assert.equal(session.resumeWindowMs, null)
  const content = Buffer.alloc(3 * MiB, 'over a socket ')
  assert.ok(content.equals((await session.run(['cat'], { stdin: content })).stdout))
  await session.files.write('a.bin', content)
  assert.ok(content.equals(await readFile(join(root, 'a.bin'))))
  assert.ok(content.equals((await session.files.readAll('a.bin')).data))
  await assert.rejects(session.run(['no-such-program']), { name: 'file_not_found' })
})

test("an unauthorized client gets the server's reason, and no error contains the token", async (t) => {
  const { url, port } = await startRexd(t)
  const refused = (error: unknown): boolean => {
    assert.doesNotMatch(JSON.stringify([error, String(error), String((error as Error).cause)]), /wr0ng/)
    return lost(false, /ws:\/\/127\.0\.0\.1:\d+\/ws cannot be reached: refused with 401: .*token/)(error)
  }
  await assert.rejects(connect({ transport: webSocket({ url, token: 'wr0ng' }) }), refused)
  await assert.rejects(connect({ transport: webSocket({ url: `${url}/elsewhere`, token: 'wr0ng' }) }), lost(false, /refused with 40[14]/))
  const nobody = async (): Promise<string> => Promise.reject(new Error('no such file'))
  await assert.rejects(connect({ transport: webSocket({ url, token: nobody }) }), lost(false, /no such file/))
  await assert.rejects(connect({ transport: webSocket({ url: `ws://127.0.0.1:${port}`, token: 'a\nb' }) }), RexdDisconnected)
  await assert.rejects(connect({ transport: webSocket({ url: `wss://127.0.0.1:${port}`, token: 'x' }) }), lost(false, /does not use TLS/))
})

test('an invalid URL or missing option throws, and an unreachable one rejects', async () => {
  for (const url of ['ftp://host', 'nonsense', 'unix:relative', '', 'ws://name:secret@host'])
    assert.throws(() => webSocket({ url, token: 'x' }), TypeError, url)
  for (const options of [{ token: 'x' }, { url: 'ws://127.0.0.1' }])
    assert.throws(() => webSocket(options as never), { name: 'TypeError', message: /^(url|token): / })
  assert.equal(webSocket({ url: 'https://host', token: 'x' }).name, 'wss://host/ws')
  assert.equal(webSocket({ url: 'ws://host:1/behind/a/proxy', token: 'x' }).name, 'ws://host:1/behind/a/proxy')
  await assert.rejects(connect({ transport: webSocket({ url: 'unix:/no/such/socket', token: 'x' }) }), lost(false, /ENOENT/))
})

test(
  `over TLS the client accepts only a server with a trusted certificate${withoutOpenssl}`,
  { skip: withoutOpenssl !== '' },
  async (t) => {
    const place = await rexdPlace(t)
    const { certFile, keyFile, cert } = await certificate(place.dir, 'localhost', { extensions: ['subjectAltName=IP:127.0.0.1'] })
    const secure = await rexdPlace(t, { server: `tls_cert = ${JSON.stringify(certFile)}\ntls_key = ${JSON.stringify(keyFile)}` })
    const { url, token } = await startRexd(t, {}, secure)
    assert.match(url, /^https:/)
    const client = await connectedTo(t, { url, token, tls: { ca: cert } })
    assert.equal((await (await client.open({ clientName: 'tls' })).run(['echo', 'x'])).stdoutText, 'x\n')
    await assert.rejects(connect({ transport: webSocket({ url, token }) }), lost(false, /self-signed|certificate/))
  },
)

/** A WebSocket server that is not rexd. */
const listening = async (
  t: TestContext,
  where: string | 0,
  onSocket: (socket: WebSocket) => void,
): Promise<{ http: Server; headers: Record<string, unknown>[] }> => {
  const http = createServer((_request, response) => response.end('not here'))
  const server = new WebSocketServer({ server: http, perMessageDeflate: true })
  const headers: Record<string, unknown>[] = []
  server.on('connection', (socket, request) => {
    headers.push({ ...request.headers, path: request.url })
    socket.on('error', () => undefined)
    onSocket(socket)
  })
  if (where === 0) http.listen(0, '127.0.0.1')
  else http.listen(where)
  await once(http, 'listening')
  t.after(() => {
    for (const socket of server.clients) socket.terminate()
    http.closeAllConnections()
    http.close()
  })
  return { http, headers }
}

const answer = (socket: WebSocket, { id }: Asked, result: object): void => socket.send(JSON.stringify({ jsonrpc: '2.0', id, result }))

test('a unix socket with special characters in its path works, with the token and the host localhost', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x client: '))
  t.after(async () => rm(directory, { recursive: true }))
  const path = join(directory, 'rexd.sock')
  const { headers } = await listening(t, path, (socket) => {
    socket.on('message', (data: Buffer) => answer(socket, JSON.parse(data.toString()) as Asked, OPENED))
  })
  const client = await connectedTo(t, { url: `unix:${path}`, token: 'a-token' })
  assert.equal((await client.open({ clientName: 'x' })).id, 's_1')
  const [{ authorization, host, path: asked } = {}] = headers
  assert.deepEqual({ authorization, host, asked }, { authorization: 'Bearer a-token', host: 'localhost', asked: '/ws' })
})

/** Opens a session on a server that reacts to the first request with this function. */
const asking = async (t: TestContext, onQuestion: (socket: WebSocket) => void): Promise<Promise<unknown>> => {
  const { http } = await listening(t, 0, (socket) => void socket.once('message', () => onQuestion(socket)))
  const { port } = http.address() as AddressInfo
  const client = await connectedTo(t, { url: `ws://127.0.0.1:${port}`, token: 'x' }, { reconnect: false })
  return client.open({ clientName: 'x' })
}

const brokenBy = (text: RegExp) => (error: unknown) => lost(true, text)(error) && (error as Error).cause instanceof RexdProtocolError

test('a binary, oversized or invalid message breaks the connection', async (t) => {
  const binary = async () => asking(t, (socket) => socket.send(Buffer.from('{}')))
  await assert.rejects(binary(), brokenBy(/a message is not text/))
  const long = async () => asking(t, (socket) => socket.send(' '.repeat(MAX_INCOMING_MESSAGE + 1)))
  await assert.rejects(long(), brokenBy(/Max payload size exceeded/))
  const garbage = async () => asking(t, (socket) => socket.send('hello'))
  await assert.rejects(garbage(), brokenBy(/does not speak JSON-RPC; it sent "hello"/))
})

test('an error says how the server ended the connection', async (t) => {
  const refused = async () => asking(t, (socket) => socket.close(1008, 'no more of \u001b[2J you'))
  await assert.rejects(refused(), lost(true, /closed with 1008: no more of +\[2J you/))
  const ended = async () => asking(t, (socket) => socket.close(1000))
  await assert.rejects(ended(), lost(true, /the server ended the connection/))
  const cut = async () => asking(t, (socket) => socket.terminate())
  await assert.rejects(cut(), lost(true, /the connection was lost|ECONNRESET/))
})

test('unsent messages wait in order in the client, and the socket buffers a limited amount', async (t) => {
  const sockets: WebSocket[] = []
  const got: number[] = []
  const { http } = await listening(t, 0, (socket) => {
    sockets.push(socket)
    socket.on('message', (data: Buffer) => {
      const asked = JSON.parse(data.toString()) as Asked
      got.push(asked.id)
      answer(socket, asked, { exists: false })
    })
  })
  const { port } = http.address() as AddressInfo
  const opened: { send(text: string): void | Promise<void> }[] = []
  const factory = webSocket({ url: `ws://127.0.0.1:${port}`, token: 'x' })
  let unsent = 0
  const client = await connect({
    transport: {
      ...factory,
      open: async (events, signal) => {
        const transport = await factory.open(events, signal)
        opened.push(transport)
        return {
          pause: () => transport.pause(),
          resume: () => transport.resume(),
          close: async () => transport.close(),
          send: (text) => {
            unsent += text.length
            return transport.send(text)
          },
        }
      },
    },
  })
  t.after(async () => client.close())
  await until(() => sockets.length === 1)
  sockets[0]!.pause()
  const path = 'x'.repeat(1_000_000)
  const calls = Array.from({ length: 40 }, async () => client.call('fs.stat', { session_id: 's', path }))
  // More data than the system buffers and the socket's limit of unsent bytes.
  await until(() => opened.length === 1 && unsent > MAX_UNSENT)
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve))
  assert.ok(unsent < 30 * MiB, `${unsent}`)
  sockets[0]!.resume()
  assert.equal((await Promise.all(calls)).length, 40)
  assert.deepEqual(
    got,
    Array.from({ length: 40 }, (_, i) => i + 1),
  )
})

test('the client stops reading while the output has no reader, and continues later', async (t) => {
  const { url, token } = await startRexd(t)
  const { factory, watched } = watch(webSocket({ url, token }))
  const client = await connect({ transport: factory })
  t.after(async () => client.close())
  const session = await client.open({ clientName: 'slow' })
  const pausing = watched.nextPause()
  const process = await session.exec({ shell: `yes | head -c ${16 * MiB}` })
  await pausing
  assert.ok(watched.received < 4 * MiB, `${watched.received}`)
  let length = 0
  for await (const data of process.stdout) length += data.length
  assert.equal(length, 16 * MiB)
})

test('by default a session and its programs end with the connection', async (t) => {
  const { server, proxy, url } = await proxied(t)
  const client = await connectedTo(t, { url, token: server.token })
  const session = await client.open({ clientName: 'brief' })
  const process = await session.exec({ shell: 'echo $$ > pid; exec sleep 60' })
  const pid = await pidIn(join(server.root, 'pid'))
  const exited = assert.rejects(process.exited, lost(true, /the session went with its connection/))
  proxy.cut()
  await exited
  await assert.rejects(session.info(), lost(false, /the session went with its connection/))
  await gone(pid)
  // The client remains usable.
  assert.equal((await (await client.open({ clientName: 'next' })).run(['echo', 'on'])).stdoutText, 'on\n')
})

test('dialling can be aborted at every stage and leaves no socket', async (t) => {
  const silent = createServer()
  const sockets = new Set<object>()
  silent.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined)
  })
  // Accepts the connection and never answers the handshake.
  silent.on('upgrade', (_request, socket) => void socket.resume().on('end', () => socket.destroy()))
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  t.after(() => silent.close())
  const { port } = silent.address() as AddressInfo
  const stop = new AbortController()
  const dialling = connect({ transport: webSocket({ url: `ws://127.0.0.1:${port}`, token: 'x' }), signal: stop.signal })
  await until(() => sockets.size === 1)
  stop.abort(new Error('no patience'))
  await assert.rejects(dialling, /no patience/)
  await until(() => sockets.size === 0)
  const never = new AbortController()
  const token = new Promise<string>(() => undefined)
  const waiting = connect({ transport: webSocket({ url: `ws://127.0.0.1:${port}`, token: async () => token }), signal: never.signal })
  never.abort(new Error('no token'))
  await assert.rejects(waiting, /no token/)
})
