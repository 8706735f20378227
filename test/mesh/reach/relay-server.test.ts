import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import type { CircuitRelayService } from '@libp2p/circuit-relay-v2'
import { createLibp2p } from 'libp2p'
import { identify } from '@libp2p/identify'
import { peerIdFromString } from '@libp2p/peer-id'
import { multiaddr } from '@multiformats/multiaddr'

import { machineKeyOf } from '../../../src/identity/machine-key.ts'
import { peerIdOf } from '../../../src/identity/machine-key.ts'
import { relayServer } from '../../../src/mesh/libp2p/relay.ts'
import { MAX_RESERVATIONS } from '../../../src/protocol/limits/mesh.ts'

type Server = CircuitRelayService & {
  readonly reservationStore: { reserve(peer: object, address: object): { readonly status: string } }
  readonly components: { readonly connectionManager: { getConnections(peer: object): unknown[] } }
  onHop(stream: object, connection: object): Promise<void>
}

const peerOf = (n: number) => {
  const seed = new Uint8Array(32)
  new DataView(seed.buffer).setUint32(0, n)
  return peerIdFromString(peerIdOf(machineKeyOf(seed).machineId))
}

const start = async (t: TestContext): Promise<Server> => {
  const relay = relayServer({ mayUse: () => true, carry: () => undefined })
  const node = await createLibp2p({ start: false, services: { identify: identify(), relay } })
  t.after(() => node.stop())
  return node.services.relay as Server
}

test('reservations of machines that left a relay make room for a new machine', async (t) => {
  const server = await start(t)
  const here = peerOf(0)
  const { connectionManager } = server.components
  connectionManager.getConnections = (peer) => (String(peer) === String(here) ? [{}] : [])
  const reserve = (n: number): string => server.reservationStore.reserve(peerOf(n), multiaddr('/ip4/127.0.0.1/tcp/1')).status
  for (let n = 0; n < MAX_RESERVATIONS; n++) assert.equal(reserve(n), 'OK')
  assert.equal(reserve(MAX_RESERVATIONS), 'RESERVATION_REFUSED')
  // Any request of the next machine has this effect. This stream carries no data.
  await server.onHop({ abort: () => undefined }, { remotePeer: peerOf(MAX_RESERVATIONS) }).catch(() => undefined)
  assert.deepEqual([...server.reservations.keys()].map(String), [String(here)])
  assert.equal(reserve(MAX_RESERVATIONS), 'OK')
  server.reservations.forEach(({ signal }) => signal.clear())
})
