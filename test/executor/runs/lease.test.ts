import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { Lease } from '../../../src/executor/runs/lease.ts'
import { LEASE_EXPIRES_MS } from '../../../src/protocol/limits/wire.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { temporaryDirectory } from '../../support/processes.ts'

test('a lease expires after silence, and only then', async () => {
  const clock = new ManualClock()
  let expired = 0
  const lease = new Lease({ clock }, { onExpired: () => expired++ })
  await clock.advance(LEASE_EXPIRES_MS - 1)
  lease.renew()
  await clock.advance(LEASE_EXPIRES_MS - 1)
  assert.equal(expired, 0)
  await clock.advance(1)
  assert.equal(expired, 1)
  assert.equal(clock.pending, 0)
})

test('a renewal that arrived while the event loop was blocked counts', async (t) => {
  const clock = new ManualClock()
  let expired = 0
  const lease = new Lease({ clock }, { onExpired: () => expired++ })
  const path = join(await temporaryDirectory(t), 'socket')
  const server = createServer((socket) => socket.on('data', () => lease.renew())).listen(path)
  t.after(() => server.close())
  const peer = connect(path)
  t.after(() => peer.destroy())
  await Promise.all([once(server, 'connection'), once(peer, 'connect')])
  await clock.advance(LEASE_EXPIRES_MS - 1)
  // A timer of the runtime fires like this, before the next poll for input.
  await sleep(1)
  peer.write('renew')
  await clock.advance(1)
  await clock.advance(LEASE_EXPIRES_MS - 1)
  assert.equal(expired, 0)
  await clock.advance(1)
  assert.equal(expired, 1)
})

test('a lease waits for a renewal that is queued behind the messages of others', async () => {
  // Blocks the loop until the end of the lease, or earlier so that the lease ends while the queue is read.
  for (const before of [LEASE_EXPIRES_MS - 1, 500]) {
    const clock = new ManualClock()
    let expired = 0
    const lease = new Lease({ clock }, { onExpired: () => expired++ })
    await clock.advance(before)
    clock.hold(LEASE_EXPIRES_MS - 1 - before + 600)
    // Turns of the event loop that read messages of others.
    for (let turn = 0; turn < 5; turn++) await clock.advance(50)
    assert.equal(expired, 0)
    lease.renew()
    await clock.advance(LEASE_EXPIRES_MS - 1)
    assert.equal(expired, 0)
    await clock.advance(1)
    assert.equal(expired, 1)
  }
})

test('the lease of a lost requester ends even if the event loop is blocked repeatedly', async () => {
  const clock = new ManualClock()
  let expired = 0
  const lease = new Lease({ clock }, { onExpired: () => expired++ })
  for (let time = 0; time < 2 * LEASE_EXPIRES_MS; time += 1_100) {
    clock.hold(1_100)
    await clock.advance(0)
  }
  assert.equal(expired, 1)
  assert.equal(clock.pending, 0)
  lease.stop()
})

test('a stopped lease leaves no timer', () => {
  const clock = new ManualClock()
  new Lease({ clock }, { onExpired: () => assert.fail('expired') }).stop()
  assert.equal(clock.pending, 0)
})
