import assert from 'node:assert/strict'
import { chmod, mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { asOtherUser } from '../../support/other-user.ts'
import { ask, connect, post, refusedSocket } from '../../support/rexd-callers.ts'
import { rexdPlace, runRexd, startRexd, type RexdPlace } from '../../support/rexd-server.ts'
import { tempDir } from '../../support/temp-dir.ts'

// `http_listen = "unix:…"` with the real program. Access control is the same as over the network.

const TIMEOUT = { timeout: 30_000 }
const NOBODY = { jsonrpc: '2.0', id: 1, method: 'session.info', params: { session_id: 'none' } }

/** A configuration whose socket is `sock/rexd.sock`. Its directory does not exist yet. */
const socketPlace = async (t: TestContext): Promise<RexdPlace & { readonly socket: string; readonly listen: string }> => {
  const socket = join(await tempDir(t), 'sock', 'rexd.sock')
  const listen = `unix:${socket}`
  return { ...(await rexdPlace(t, { listen })), socket, listen }
}

const modeOf = async (path: string): Promise<string> => ((await stat(path)).mode & 0o777).toString(8)

test('over a unix socket, POST and WebSocket require the token and refuse a foreign Host and any Origin', TIMEOUT, async (t) => {
  const place = await socketPlace(t)
  const server = await startRexd(t, {}, place)
  assert.equal(server.url, place.listen)
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  assert.equal((await post(server, 'session.info', { session_id })).session_id, session_id)
  const caller = await connect(t, server)
  assert.match((await caller.call('session.open', { client_name: 'b' })).session_id, /^s_/)
  for (const token of [null, 'x', server.token.slice(1)]) {
    assert.equal((await ask(server, { body: NOBODY, token })).status, 401)
    assert.equal(await refusedSocket(server, token === null ? {} : { headers: { authorization: `Bearer ${token}` } }), 401)
  }
  const authorization = `Bearer ${server.token}`
  for (const headers of [{ host: 'evil.example' }, { host: 'localhost:80' }, { host: '127.0.0.1' }, { origin: 'http://localhost' }]) {
    assert.equal((await ask(server, { body: NOBODY, headers })).status, 403, JSON.stringify(headers))
    assert.equal(await refusedSocket(server, { headers: { authorization, ...headers } }), 403)
  }
})

test('only its user can access the socket and its new directory, and the server removes the socket at its end', TIMEOUT, async (t) => {
  const place = await socketPlace(t)
  const directory = dirname(place.socket)
  const server = await startRexd(t, {}, place)
  assert.ok((await stat(place.socket)).isSocket())
  assert.deepEqual([await modeOf(place.socket), await modeOf(directory)], ['600', '700'])
  if (process.geteuid?.() === 0) {
    const code = `require('net').connect(${JSON.stringify(place.socket)}).on('connect', () => console.log('in')).on('error', (e) => console.log(e.code))`
    const other = asOtherUser(['-e', code])
    assert.equal(other.stdout, 'EACCES\n', other.stderr)
  }
  assert.deepEqual(await server.stop(), [143, null])
  assert.deepEqual(await readdir(directory), [])
})

test('the server replaces the socket of a killed server, but not that of a live one', TIMEOUT, async (t) => {
  const place = await socketPlace(t)
  const first = await startRexd(t, {}, place)
  await first.stop('SIGKILL')
  assert.ok((await stat(place.socket)).isSocket(), 'it was left behind')
  const second = await startRexd(t, {}, place)
  assert.equal((await ask(second, { body: NOBODY })).status, 200)
  const third = await runRexd('--http', '--config', place.config)
  assert.deepEqual([third.status, third.stdout], [1, ''])
  assert.match(third.stderr, /^rexd: another daemon answers on .*rexd\.sock\n$/)
  assert.equal((await ask(second, { body: NOBODY })).status, 200, 'it goes on')
})

test('a file in place of the socket remains, and the server does not start', TIMEOUT, async (t) => {
  const place = await socketPlace(t)
  await mkdir(dirname(place.socket), { mode: 0o700 })
  await writeFile(place.socket, 'mine')
  const { status, stderr } = await runRexd('--http', '--config', place.config)
  assert.equal(status, 1)
  assert.match(stderr, /exists and is not a socket; move it away/)
  assert.ok((await stat(place.socket)).isFile())
})

test('a directory that other users can enter is refused, also by --check, and keeps its mode', TIMEOUT, async (t) => {
  const place = await socketPlace(t)
  const directory = dirname(place.socket)
  await mkdir(directory)
  for (const mode of [0o755, 0o710, 0o770]) {
    await chmod(directory, mode)
    for (const argv of [['--http'], ['--check']]) {
      const { status, stdout, stderr } = await runRexd(...argv, '--config', place.config)
      assert.equal(status, 2, stdout + stderr)
      assert.match(stdout + stderr, /sock is open to other users \(mode 0\d{3}\): the socket needs a private directory/)
    }
    assert.equal(await modeOf(directory), mode.toString(8))
  }
  const shared = await rexdPlace(t, { listen: `unix:${join(tmpdir(), 'x0x-test-rexd.sock')}` })
  const { status, stderr } = await runRexd('--http', '--config', shared.config)
  assert.equal(status, 2)
  assert.match(stderr, /is open to other users/)
  assert.doesNotMatch(stderr, /chmod/, 'not of a directory that others use')
})
