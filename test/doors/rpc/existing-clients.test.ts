import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { ask, outputOf, type Notification } from '../../support/rexd-callers.ts'
import { startRpcHost, type RpcHost } from '../../support/rpc-host.ts'

// The requests of clients that others have written, in the shapes in which they send them.

const TIMEOUT = { timeout: 30_000 }

// oxlint-disable-next-line typescript/no-explicit-any
type Json = any

/** Sends what such a client sends, byte for byte but for the ids that it was given. */
const recorded = (host: RpcHost) => {
  let id = 0
  return async (method: string, params: object): Promise<Json> => {
    const { status, json } = await ask(host, { body: JSON.stringify({ jsonrpc: '2.0', id: ++id, method, params }) })
    assert.equal(status, 200)
    return json
  }
}

const opened = async (host: RpcHost): Promise<{ send: ReturnType<typeof recorded>; session_id: string; answer: Json }> => {
  const send = recorded(host)
  const { result } = await send('session.open', {
    client_name: 'opencode-rexd-target',
    client_version: '0.3.10',
    workspace_roots: [host.root, '/srv/not-configured', join(host.root, 'gone')],
    requested_capabilities: ['exec', 'exec.shell', 'fs', 'events'],
  })
  return { send, session_id: result.session_id, answer: result }
}

/** The whole output of a command, as clients over HTTP have it. */
const outputBy = async (send: ReturnType<typeof recorded>, asked: { session_id: string; process_id: string }): Promise<string> => {
  await send('exec.wait', asked)
  const { result } = await send('session.events', { session_id: asked.session_id, cursor: 0 })
  const events = (result.events as Notification[]).filter(({ params }) => params['process_id'] === asked.process_id)
  return outputOf(events).toString()
}

test('a session is opened with groups of capabilities, and with the roots that there are', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { answer } = await opened(host)
  assert.equal(answer.protocol, 'rexd/1')
  assert.deepEqual(answer.workspace_roots, [host.root])
  for (const name of ['exec', 'fs', 'events']) assert.ok(answer.capabilities.includes(name), name)
})

test('roots of which none is configured are an error', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { error } = await recorded(host)('session.open', { client_name: 'x', workspace_roots: ['/srv/not-configured', '/etc'] })
  assert.deepEqual([error.code, error.data.allowed_roots], [-32_002, [host.root]])
})

test(
  'a time of 0 is the usual one, and one above the limit is cut to it, as is output; the answer says what counts',
  TIMEOUT,
  async (t) => {
    const host = await startRpcHost(t)
    const { send, session_id } = await opened(host)
    const start = async (params: object): Promise<Json> => (await send('exec.start', { session_id, argv: ['true'], ...params })).result
    assert.equal((await start({ timeout_ms: 0 })).timeout_ms, 30_000)
    assert.equal((await start({ timeout_ms: 3_600_000 })).timeout_ms, 300_000)
    assert.equal((await start({ timeout_ms: 1_000, max_output_bytes: 2 ** 40 })).max_output_bytes, 268_435_456)
  },
)

test('a login shell is one, and runs a text, or an argv as it is', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { send, session_id } = await opened(host)
  const words = ['a b', '$HOME', '"', "'", '']
  const by = async (params: object): Promise<string> => {
    const { result } = await send('exec.start', { session_id, login: true, ...params })
    return outputBy(send, { session_id, process_id: result.process_id })
  }
  assert.equal(await by({ argv: ['printf', '%s\\n', ...words] }), `${words.join('\n')}\n`)
  assert.match(await by({ shell: true, command: 'printf "%s " "$0"; tr "\\0" " " < /proc/$$/cmdline' }), /^\/bin\/sh \/bin\/sh -l -c /)
  const request = (await readFile(join(host.dir, 'log', 'audit.log'), 'utf8'))
    .split('\n')
    .find((line) => line.includes('"event":"request"'))
  assert.deepEqual(JSON.parse(request!).argv, ['/bin/sh', '-l', '-c', 'exec "$0" "$@"', 'printf', '%s\\n', ...words])
})

test('a login shell is refused where no shell is granted, and there alone', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const send = recorded(host)
  const { result } = await send('session.open', { client_name: 'x', requested_capabilities: ['exec', 'fs', 'events'] })
  const asked = { session_id: result.session_id, argv: ['true'] }
  assert.deepEqual((await send('exec.start', { ...asked, login: true })).error.data.capability, 'exec.shell')
  assert.match((await send('exec.start', { ...asked, login: false })).result.process_id, /^p_/)
})

test('what is wrong with a command is told so that it can be mended', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { send, session_id } = await opened(host)
  const wrong = async (params: object): Promise<string> => (await send('exec.start', { session_id, ...params })).error.message
  assert.match(await wrong({ argv: [] }), /^argv: expected a list of strings; at least 1, not an empty list$/)
  assert.match(await wrong({ command: 'true' }), /^command: only with shell: true/)
  const half = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.open', params: { client_name: 'x' } }).replace('"x"', '"\\ud800"')
  assert.match((await ask(host, { body: half })).json.error.message, /^client_name: not valid Unicode$/)
})

test('without a token the answer is one of JSON-RPC, and names no path', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { status, json, text, headers } = await ask(host, {
    token: null,
    body: { jsonrpc: '2.0', id: 1, method: 'session.open', params: {} },
  })
  assert.deepEqual([status, headers['www-authenticate'], json.jsonrpc, json.id, json.error.code], [401, 'Bearer', '2.0', null, -32_001])
  assert.equal(json.error.data.code, 'unauthorized')
  assert.ok(!text.includes(host.dir) && !text.includes('/'), text)
})

test('files are read and written in the shapes that they have', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { send, session_id } = await opened(host)
  await mkdir(join(host.root, 'src'))
  await writeFile(join(host.root, 'src', 'a.txt'), 'one\ntwo\n')
  const read = await send('fs.read', { session_id, path: join(host.root, 'src', 'a.txt'), offset: 0, length: 4, encoding: 'utf8' })
  assert.deepEqual([read.result.content, read.result.truncated], ['one\n', true])
  const write = { session_id, path: 'b.txt', content: 'b', encoding: 'utf8', mode: 'replace', mkdir_parents: true, atomic: true }
  assert.equal((await send('fs.write', write)).result.created, true)
  assert.deepEqual((await send('fs.glob', { session_id, pattern: '**/*.txt', cwd: host.root })).result.matches, [
    join(host.root, 'b.txt'),
    join(host.root, 'src', 'a.txt'),
  ])
})
