import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { ask, outputOf, type Notification } from '../../support/rexd-callers.ts'
import { startRpcHost, type RpcHost } from '../../support/rpc-host.ts'

// Requests of third-party clients, in the form in which they send them.

const TIMEOUT = { timeout: 30_000 }

// oxlint-disable-next-line typescript/no-explicit-any
type Json = any

/** Sends the recorded requests of such a client. Only the IDs differ. */
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

/** The whole output of a command, as clients over HTTP receive it. */
const outputBy = async (send: ReturnType<typeof recorded>, asked: { session_id: string; process_id: string }): Promise<string> => {
  await send('exec.wait', asked)
  const { result } = await send('session.events', { session_id: asked.session_id, cursor: 0 })
  const events = (result.events as Notification[]).filter(({ params }) => params['process_id'] === asked.process_id)
  return outputOf(events).toString()
}

test('a session opens with capability groups and with the requested roots that exist', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { answer } = await opened(host)
  assert.equal(answer.protocol, 'rexd/1')
  assert.deepEqual(answer.workspace_roots, [host.root])
  for (const name of ['exec', 'fs', 'events']) assert.ok(answer.capabilities.includes(name), name)
})

test('a login shell runs a command text, or an argv without changes', TIMEOUT, async (t) => {
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

test('an error of exec.start names the wrong field and what it expects', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { send, session_id } = await opened(host)
  const wrong = async (params: object): Promise<string> => (await send('exec.start', { session_id, ...params })).error.message
  assert.match(await wrong({ argv: [] }), /^argv: expected a list of strings; at least 1, not an empty list$/)
  assert.match(await wrong({ command: 'true' }), /^command: only with shell: true/)
  const half = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.open', params: { client_name: 'x' } }).replace('"x"', '"\\ud800"')
  assert.match((await ask(host, { body: half })).json.error.message, /^client_name: not valid Unicode$/)
})
