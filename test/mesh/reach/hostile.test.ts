import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import { newRequestId } from '../../../src/identity/request-id.ts'
import { EXEC_PREFIX } from '../../../src/protocol/wire/exec.ts'
import { HostileRelay } from '../../support/hostile-relay.ts'
import { signalOf } from '../../support/hostile-link.ts'
import { introduce, startPeer, type Peer } from '../../support/peer.ts'
import { until } from '../../support/processes.ts'

const LIMIT = { timeout: 120_000 }

/** Alice and bob, who cannot be dialled directly, at a hostile relay. */
const setUp = async (t: TestContext): Promise<{ relay: HostileRelay; alice: Peer; bob: Peer }> => {
  const relay = await new HostileRelay().start(t)
  const [alice, bob] = [
    await startPeer(t, { name: 'alice', listen: null, relays: relay.addresses }),
    await startPeer(t, { name: 'bob', listen: null, relays: relay.addresses }),
  ]
  await until(() => alice.node.addresses().length > 0 && bob.node.addresses().length > 0)
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  bob.dispatcher.route(EXEC_PREFIX, (channel, requestId, body) => void channel.send(requestId, body))
  return { relay, alice, bob }
}

/** The echo that bob sends for a text. Rejects if it does not come. */
const echoed = async (alice: Peer, bob: Peer, text: string): Promise<string> => {
  const channel = await alice.links.openChannel(bob.agentId, signalOf(5_000))
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  channel.onBody = (_id, body) => resolve(Buffer.from(body.subarray(EXEC_PREFIX.length)).toString())
  channel.onClosed = (error) => reject(error ?? new Error('closed'))
  channel.send(newRequestId(), Buffer.concat([EXEC_PREFIX, Buffer.from(text)]))
  const late = AbortSignal.timeout(5_000)
  late.addEventListener('abort', () => channel.abort(new Error('no answer')))
  return promise
}

const drop = (...peers: readonly Peer[]): void => {
  for (const peer of peers)
    for (const connection of peer.node.connections()) if (connection.relay !== null) connection.abort(new Error('anew'))
}

test('a relay sees only encrypted bytes, and both ends see the other machine as their peer', LIMIT, async (t) => {
  const { relay, alice, bob } = await setUp(t)
  const secret = `argv-${randomBytes(16).toString('hex')}`
  assert.equal(await echoed(alice, bob, secret), secret)
  const [connection] = alice.node.connectionsTo(bob.machineId)
  assert.ok(connection?.relay !== null && connection?.relay !== bob.machineId)
  assert.equal(bob.node.connectionsTo(alice.machineId)[0]?.machineId, alice.machineId)
  const carried = Buffer.concat(relay.seen)
  assert.ok(carried.length > 10_000)
  for (const text of [secret, 'alice', 'bob', alice.agentId, Buffer.from(alice.agentId, 'hex').toString('latin1')])
    assert.ok(!carried.includes(Buffer.from(text, 'latin1')), text)
})

const flipAt = (chunk: Uint8Array, at: number): Uint8Array => {
  const bytes = Uint8Array.from(chunk)
  bytes[at % bytes.length]! ^= 1
  return bytes
}

const TRICKS: Readonly<Record<string, (chunk: Uint8Array) => readonly Uint8Array[]>> = {
  'flips a bit': (chunk) => [flipAt(chunk, 37)],
  'leaves a chunk out': () => [],
  'repeats a chunk': (chunk) => [chunk, chunk],
  'cuts a chunk short': (chunk) => [chunk.subarray(0, chunk.length - 1)],
  'puts bytes in between': (chunk) => [randomBytes(64), chunk],
}

test('a relay that changes, drops, repeats or inserts bytes breaks the connection and alters no message', LIMIT, async (t) => {
  const { relay, alice, bob } = await setUp(t)
  for (const [name, trick] of Object.entries(TRICKS)) {
    let times = 0
    for (const at of [0, 4, 8, 11]) {
      drop(alice, bob)
      let done = false
      relay.tamper = (chunk, index) => {
        if (index !== at) return [chunk]
        done = true
        times += 1
        return trick(chunk)
      }
      const text = `text ${at}`
      // If the connection ended before the request, another one was made. A different answer never comes.
      const answer = await echoed(alice, bob, text).catch(() => null)
      assert.ok(answer === null || answer === text, String(answer))
      if (!done) assert.equal(answer, text)
      relay.tamper = null
    }
    assert.ok(times >= 2, `${name}: ${times}`)
    drop(alice, bob)
    await until(async () => (await echoed(alice, bob, 'after all').catch(() => null)) === 'after all')
  }
})

test('a relay that promises a reservation for ever is shown with the latest possible date', LIMIT, async (t) => {
  const relay = new HostileRelay()
  relay.saysUntil = 9_000_000_000_000n
  await relay.start(t)
  const bob = await startPeer(t, { name: 'bob', listen: null, relays: relay.addresses })
  await until(() => bob.node.addresses().length > 0)
  assert.equal(bob.view.diagnostics().reach.relays[0]?.reserved_until, new Date(8.64e15).toISOString())
})

test('a relay that connects another machine or misnames the caller leads to no connection', LIMIT, async (t) => {
  const { relay, alice, bob } = await setUp(t)
  const mallory = await startPeer(t, { name: 'mallory', listen: null, relays: relay.addresses })
  await until(() => mallory.node.addresses().length > 0)
  relay.leadsTo = mallory.machineId
  drop(alice, bob)
  await assert.rejects(echoed(alice, bob, 'hello'))
  assert.deepEqual(alice.node.connectionsTo(mallory.machineId), [])
  assert.deepEqual(alice.node.connectionsTo(bob.machineId), [])
  relay.leadsTo = null
  relay.callsThem = mallory.machineId
  drop(alice, bob)
  await assert.rejects(echoed(alice, bob, 'hello'))
  assert.deepEqual(bob.node.connectionsTo(mallory.machineId), [])
  relay.callsThem = null
  assert.equal(await echoed(alice, bob, 'hello'), 'hello')
})
