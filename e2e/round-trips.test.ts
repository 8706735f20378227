import assert from 'node:assert/strict'
import { connect, createServer, type AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'

import { acquaint, proxiedPair } from '../test/support/proxied-pair.ts'
import { TurnProxy } from '../test/support/turn-proxy.ts'
import { SPARE_STREAMS } from '../src/links/stream-pool.ts'

// Counts round trips instead of measuring times. The proxy does not see the handshake of TCP, which is one more round trip.

const LIMIT = { timeout: 240_000 }
/** A ping or a pause during an attempt adds a round trip and never removes one. The minimum is therefore the true cost. */
const ATTEMPTS = 8

const fewest = async (claimed: number, attempt: () => Promise<number>): Promise<number> => {
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < ATTEMPTS && least > claimed; i++) least = Math.min(least, await attempt())
  return least
}

/** Bob allows alice a command. She knows only one address of him, which leads through a proxy that counts round trips. */
const setUp = async (t: TestContext) => {
  const pair = await proxiedPair(t, (port) => new TurnProxy(port))
  await acquaint(pair, [['echo', '<INT>']])
  const { alice, bob, proxy } = pair
  const echo = async (): Promise<number> => {
    proxy.count()
    const { status, stdout, stderr } = await alice.exec(bob, ['echo', '7'])
    const roundTrips = proxy.roundTrips()
    assert.deepEqual([status, stdout.toString(), stderr], [0, '7\n', ''])
    assert.equal(proxy.connections, 1)
    return roundTrips
  }
  return { alice, bob, proxy, echo }
}

test('a warm command costs one round trip from the first byte of its Request to the last byte of its Exit', LIMIT, async (t) => {
  const { proxy, echo } = await setUp(t)
  await echo()
  const roundTrips = await fewest(1, async () => {
    await proxy.quiet()
    return echo()
  })
  assert.equal(roundTrips, 1)
})

test('the first burst of commands costs two round trips, and the next one costs one with its spare streams', LIMIT, async (t) => {
  const { alice, bob, proxy, echo } = await setUp(t)
  const burst = async (): Promise<number> => {
    await proxy.quiet()
    proxy.count()
    const results = await Promise.all(Array.from({ length: SPARE_STREAMS + 1 }, async () => alice.exec(bob, ['echo', '7'])))
    assert.deepEqual(new Set(results.map((result) => result.status)), new Set([0]))
    return proxy.roundTrips()
  }
  const first = await fewest(2, async () => {
    // The size of a burst is forgotten at a restart.
    await alice.restart()
    await echo()
    return burst()
  })
  assert.equal(first, 2)
  assert.equal(await fewest(1, burst), 1)
})

test('the first command on a new machine costs three round trips in addition to the TCP handshake', LIMIT, async (t) => {
  const { alice, bob, proxy, echo } = await setUp(t)
  const roundTrips = await fewest(3, async () => {
    // Restarts both, so that neither knows the address of the other. Otherwise bob would dial the address that alice announced.
    await alice.stop()
    await bob.restart()
    await alice.start()
    assert.equal(proxy.connections, 0)
    return echo()
  })
  assert.equal(roundTrips, 3)
})

test('the proxy counts each wait for an answer once, and counts no writes without a wait', LIMIT, async (t) => {
  const server = createServer((socket) => void socket.pipe(socket)).listen(0, '127.0.0.1')
  const proxy = await new TurnProxy(() => (server.address() as AddressInfo).port).listen()
  const client = connect(proxy.port, '127.0.0.1')
  t.after(async () => {
    client.destroy()
    await proxy.close()
    await new Promise((resolve) => server.close(resolve))
  })
  let received = ''
  const answered = async (text: string): Promise<void> => {
    while (!received.endsWith(text)) await new Promise((resolve) => client.once('data', resolve))
  }
  client.on('data', (bytes) => (received += bytes.toString()))
  proxy.count()
  for (const text of ['a', 'b', 'c']) {
    client.write(text)
    await answered(text)
  }
  assert.equal(proxy.roundTrips(), 3)
  await proxy.quiet()
  proxy.count()
  for (const text of ['d', 'e', 'f']) {
    client.write(text)
    await new Promise((resolve) => setImmediate(resolve))
  }
  await answered('f')
  assert.equal(proxy.roundTrips(), 1)
})
