import assert from 'node:assert/strict'
import { connect, createServer, type AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'

import { acquaint, proxiedPair } from '../test/support/proxied-pair.ts'
import { TurnProxy } from '../test/support/turn-proxy.ts'
import { SPARE_STREAMS } from '../src/links/stream-pool.ts'

// Round trips are counted, not timed. A proxy sees none of TCP's own handshake, which is one more.

const LIMIT = { timeout: 240_000 }
/** A ping or a pause that happens to fall into an attempt adds a turn to it, and none can take one away: the least is the price. */
const ATTEMPTS = 8

const fewest = async (claimed: number, attempt: () => Promise<number>): Promise<number> => {
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < ATTEMPTS && least > claimed; i++) least = Math.min(least, await attempt())
  return least
}

/** Bob allows alice a command; all that she knows of him is an address on which turns are counted. */
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

test('a warm command costs one round trip from the first byte of its Request to the last of its Exit', LIMIT, async (t) => {
  const { proxy, echo } = await setUp(t)
  await echo()
  const roundTrips = await fewest(1, async () => {
    await proxy.quiet()
    return echo()
  })
  assert.equal(roundTrips, 1)
})

test('the first burst of commands costs two round trips, and the next one, for which streams are kept, one', LIMIT, async (t) => {
  const { alice, bob, proxy, echo } = await setUp(t)
  const burst = async (): Promise<number> => {
    await proxy.quiet()
    proxy.count()
    const results = await Promise.all(Array.from({ length: SPARE_STREAMS + 1 }, async () => alice.exec(bob, ['echo', '7'])))
    assert.deepEqual(new Set(results.map((result) => result.status)), new Set([0]))
    return proxy.roundTrips()
  }
  const first = await fewest(2, async () => {
    // A burst is not remembered across a start.
    await alice.restart()
    await echo()
    return burst()
  })
  assert.equal(first, 2)
  assert.equal(await fewest(1, burst), 1)
})

test("a command on a machine never dialled costs three round trips beside TCP's own", LIMIT, async (t) => {
  const { alice, bob, proxy, echo } = await setUp(t)
  const roundTrips = await fewest(3, async () => {
    // Both forget where the other was: bob would dial by what alice has announced.
    await alice.stop()
    await bob.restart()
    await alice.start()
    assert.equal(proxy.connections, 0)
    return echo()
  })
  assert.equal(roundTrips, 3)
})

test('the proxy counts each wait for an answer once, and nothing that waits for none', LIMIT, async (t) => {
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
