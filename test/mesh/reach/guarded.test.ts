import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Connection, StreamHandler, Topology } from '@libp2p/interface'
import { peerIdFromString } from '@libp2p/peer-id'

import { machineKeyOf } from '../../../src/identity/machine-key.ts'
import { peerIdOf } from '../../../src/identity/machine-key.ts'
import { guarded } from '../../../src/mesh/libp2p/guarded.ts'

const machineOf = (n: number): string => machineKeyOf(new Uint8Array(32).fill(n)).machineId

class FakeConnection extends EventTarget {
  readonly remotePeer
  status = 'open'

  constructor(machineId: string) {
    super()
    this.remotePeer = peerIdFromString(peerIdOf(machineId))
  }

  close(): void {
    this.status = 'closed'
    this.dispatchEvent(new Event('close'))
  }
}

test('a libp2p service learns once of each connected contact, even a later one, but not of closed connections', async () => {
  const contacts = new Set([machineOf(1)])
  const [reviews, heard] = [[] as (() => void)[], [] as unknown[]]
  let topology: Topology = {}
  const registrar = {
    handle: async (_protocol: string | string[], _handler: StreamHandler) => undefined,
    register: async (_protocol: string, registered: Topology) => {
      topology = registered
      return 'id'
    },
  }
  const own = guarded(
    { registrar },
    (machineId) => contacts.has(machineId),
    (review) => reviews.push(review),
  )
  await own.registrar.register('/service/1', { onConnect: (_peer, connection) => void heard.push(connection) })
  const connections = [1, 2, 3, 4].map((n) => new FakeConnection(machineOf(n)))
  for (const connection of connections) void topology.onConnect?.(connection.remotePeer, connection as unknown as Connection)
  assert.deepEqual(heard, [connections[0]])
  connections[2]!.close()
  for (const n of [2, 3]) contacts.add(machineOf(n))
  for (let twice = 0; twice < 2; twice++) for (const review of reviews) review()
  assert.deepEqual(heard, [connections[0], connections[1]])
})
