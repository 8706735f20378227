import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import type { PeerId } from '@libp2p/interface'

import { forgetGonePeers, SWEEPS_GONE } from '../../src/mesh/libp2p/peer-store.ts'
import { eventsOf, join, startNode, type Node } from '../support/table-node.ts'

const LIMIT = { timeout: 60_000 }
const HOUR_MS = 60 * 60_000

/** Whom this server names to who asks, with addresses or without. */
const namedBy = async (server: Node, asker: Node): Promise<string[]> => {
  const answers = await eventsOf(asker, server, { type: 'FIND_NODE', key: randomBytes(34) })
  assert.ok(answers.some(({ name }) => name === 'PEER_RESPONSE'))
  return answers.flatMap(({ closer = [] }) => closer.map(({ id }) => id.toString()))
}

test(
  'a server names another for as long as this is connected, and for an hour after; libp2p would forget where it is at once',
  LIMIT,
  async (t) => {
    const [server, other, asker] = [
      await startNode(t, { server: true }),
      await startNode(t, { server: true }),
      await startNode(t, { server: false }),
    ]
    await join(server, other)
    await join(asker, server)
    assert.deepEqual(await namedBy(server, asker), [other.peerId.toString()])
    const now = Date.now.bind(Date)
    t.mock.method(Date, 'now', () => now() + 48 * HOUR_MS)
    assert.deepEqual(await namedBy(server, asker), [other.peerId.toString()])
    const [gone, { peerStore }] = [new Map<string, number>(), server]
    const sweep = async (times: number, isHere = false): Promise<void> => {
      const getConnections = (peer?: PeerId) => (isHere || peer?.equals(asker.peerId) ? server.getConnections(peer) : [])
      for (let i = 0; i < times; i++) await forgetGonePeers({ getConnections, peerStore }, gone)
    }
    await sweep(SWEEPS_GONE - 1)
    await sweep(1, true)
    await sweep(SWEEPS_GONE - 1)
    assert.deepEqual(await namedBy(server, asker), [other.peerId.toString()])
    await sweep(1)
    assert.deepEqual([await namedBy(server, asker), gone.size], [[], 0])
  },
)
