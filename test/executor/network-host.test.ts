import assert from 'node:assert/strict'
import { duplexPair } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { ExecutorClient } from '../../src/executor-api/client.ts'
import type { NetworkSettings } from '../../src/executor-api/messages.ts'
import type { NetworkSession } from '../../src/executor/network-session.ts'
import { ExecutorHost } from '../support/executor-host.ts'

const SETTINGS: NetworkSettings = {
  display_name: 'bob',
  api_port: 12_700,
  listen: ['/ip4/0.0.0.0/tcp/5483'],
  announce: [],
  keep: [],
  dht: 'auto',
  bootstrap: ['/dns4/bob.example/tcp/5483/p2p/12D3KooWHpwmeP8QTYRsP6DiFoAEKRmTNYjyViNgbozydCaDqwrh'],
  relay: false,
  relays: [],
  mdns: false,
  strangers: true,
  log_level: 'info',
  machine_seed: Buffer.alloc(32, 1),
  api_token: Buffer.alloc(32, 2),
  metrics_token: null,
  otlp: null,
}

interface Started {
  readonly client: ExecutorClient
  readonly session: NetworkSession
  readonly ready: number[]
  readonly failed: AppError[]
}

/** A network process that the executor process started. */
const startNetworkProcess = async (t: TestContext): Promise<Started> => {
  const host = await ExecutorHost.start(t)
  const [ours, theirs] = duplexPair()
  const [ready, failed]: [number[], AppError[]] = [[], []]
  const session = host.executor.attach(ours, {
    settings: SETTINGS,
    onReady: (port) => void ready.push(port),
    onFailed: (error) => void failed.push(error),
  })
  const client = new ExecutorClient({ duplex: theirs, log: silentLogger })
  t.after(() => client.stop())
  await client.start()
  return { client, session, ready, failed }
}

test('a network process gets its settings and reports its port', async (t) => {
  const { client, ready, failed } = await startNetworkProcess(t)
  const { machine_seed, api_token, ...settings } = await client.settings()
  assert.deepEqual({ ...settings, machine_seed: Buffer.from(machine_seed), api_token: Buffer.from(api_token) }, SETTINGS)
  client.ready(40_000)
  await client.query('contacts')
  assert.deepEqual([ready, failed], [[40_000], []])
})

test('a network process that cannot start reports why, without control characters', async (t) => {
  const { client, session, ready, failed } = await startNetworkProcess(t)
  await client.failed(new AppError('conflict', 'the port is in use\u001b[2J\nchoose another'))
  assert.equal(await session.closed, null)
  assert.deepEqual(ready, [])
  assert.deepEqual(
    failed.map(({ code, message }) => [code, message]),
    [['conflict', 'the port is in use?[2J\nchoose another']],
  )
})

test('a network process without hello, such as one of another release, can still report its failure', async (t) => {
  const host = await ExecutorHost.start(t)
  const [ours, theirs] = duplexPair()
  const failed: string[] = []
  const session = host.executor.attach(ours, {
    settings: SETTINGS,
    onReady: () => assert.fail('it is not ready'),
    onFailed: ({ message }) => void failed.push(message),
  })
  await new ExecutorClient({ duplex: theirs, log: silentLogger }).failed(new AppError('conflict', 'of another release'))
  assert.equal(await session.closed, null)
  assert.deepEqual(failed, ['of another release'])
})

test('a network process that is asked to stop is notified, and its calls are still answered', async (t) => {
  const { client, session } = await startNetworkProcess(t)
  session.askToStop()
  await client.stopAsked
  assert.deepEqual(await client.query('contacts'), [])
})

test('a network process that was attached without settings gets none', async (t) => {
  const host = await ExecutorHost.start(t)
  const [ours, theirs] = duplexPair()
  host.executor.attach(ours)
  const client = new ExecutorClient({ duplex: theirs, log: silentLogger })
  t.after(() => client.stop())
  await client.start()
  await assert.rejects(client.settings(), { code: 'not_found' })
})
