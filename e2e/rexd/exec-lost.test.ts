import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { WebSocketServer } from 'ws'

import { proxied, type Proxied } from '../../test/sdk/web-server.ts'
import { until } from '../../test/support/processes.ts'

// `rexd exec` over a WebSocket whose connection is lost during the command: its messages, and its end after a signal.

const REXD = fileURLToPath(new URL('../../deploy/bin/rexd.mjs', import.meta.url))
const TIMEOUT = { timeout: 60_000 }
const LOST = /^rexd: .+; reconnecting for some minutes \(Ctrl-C stops this\)\r?$/m
const AGAIN = /^rexd: connected again\r?$/m
const GIVEN_UP = /^rexd: stopped waiting; the server ends the command if no client returns within a minute\r?$/m

type Way = Pick<Proxied, 'url' | 'server'>

const argvOf = ({ url, server }: Way, ...rest: readonly string[]): string[] => [
  REXD,
  'exec',
  '--url',
  url.replace('http:', 'ws:'),
  '--token-file',
  server.tokenFile,
  ...rest,
]

interface Begun {
  readonly child: ChildProcess
  readonly said: { stdout: string; stderr: string }
  readonly status: Promise<number | null>
}

const begin = (t: TestContext, way: Way, ...rest: readonly string[]): Begun => {
  const child = spawn(process.execPath, argvOf(way, ...rest), { stdio: ['ignore', 'pipe', 'pipe'] })
  t.after(() => child.kill('SIGKILL'))
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) child[name].on('data', (bytes: Buffer) => (said[name] += bytes.toString()))
  return { child, said, status: once(child, 'close').then(([status]) => status as number | null) }
}

test('rexd exec reports a lost connection and the next one, and the command continues', TIMEOUT, async (t) => {
  const way = await proxied(t)
  const { said, status } = begin(t, way, '--', 'sh', '-c', 'echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 3')
  await until(() => said.stdout === 'before\n')
  way.proxy.refuse()
  await until(() => LOST.test(said.stderr))
  await writeFile(join(way.server.root, 'go'), '')
  way.proxy.allow()
  assert.deepEqual([await status, said.stdout], [3, 'before\nafter\n'])
  assert.deepEqual(
    said.stderr.split('\n').map((line) => [LOST.test(line), AGAIN.test(line)]),
    [
      [true, false],
      [false, true],
      [false, false],
    ],
    said.stderr,
  )
})

for (const [name, expected] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)
  test(`while the connection is lost, one ${name} ends rexd exec`, TIMEOUT, async (t) => {
    const way = await proxied(t)
    const { child, said, status } = begin(t, way, '--', 'sh', '-c', 'echo there; exec sleep 600')
    await until(() => said.stdout === 'there\n')
    way.proxy.refuse()
    await until(() => LOST.test(said.stderr))
    child.kill(name)
    assert.equal(await status, expected)
    assert.match(said.stderr, GIVEN_UP)
  })

test('a signal that was lost with the connection is sent again', TIMEOUT, async (t) => {
  const way = await proxied(t)
  const { child, said, status } = begin(t, way, '--', 'sh', '-c', 'trap "echo asked; exit 5" INT; echo there; while :; do sleep 0.05; done')
  await until(() => said.stdout === 'there\n')
  way.proxy.swallow()
  child.kill('SIGINT')
  await until(() => way.proxy.swallowed > 100)
  way.proxy.refuse()
  await until(() => LOST.test(said.stderr))
  way.proxy.allow()
  assert.deepEqual([await status, said.stdout], [5, 'there\nasked\n'])
})

/** A server that closes the connection when it receives this method. */
const breakingAt = async (t: TestContext, method: string): Promise<string> => {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 })
  await once(server, 'listening')
  t.after(() => server.close())
  server.on('connection', (socket) =>
    socket.on('message', (data: Buffer) => {
      const { id, method: asked } = JSON.parse(data.toString()) as { id: number; method: string }
      if (asked === method) return socket.terminate()
      const opened = { session_id: 's_1', protocol: 'rexd/1', server_version: '1', capabilities: [], workspace_roots: ['/'], limits: {} }
      const result = asked === 'session.open' ? { ...opened, resume_token: 'x', resume_window_ms: 60_000 } : {}
      return socket.send(JSON.stringify({ jsonrpc: '2.0', id, result }))
    }),
  )
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}`
}

test('if the connection is lost before the command started, rexd exec reports what is unknown', TIMEOUT, async (t) => {
  const { server } = await proxied(t)
  for (const [method, text] of [
    ['session.open', /^rexd: session\.open: .+\n$/],
    ['exec.start', /^rexd: exec\.start: .+; whether the command was started is not known\n$/],
  ] as const) {
    const url = await breakingAt(t, method)
    const { said, status } = begin(t, { url, server }, '--', 'true')
    assert.equal(await status, 255)
    assert.match(said.stderr, text)
  }
})
