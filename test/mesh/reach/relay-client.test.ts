import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import { KEEP_ALIVE } from '@libp2p/interface'
import { createLibp2p } from 'libp2p'

import { libp2pOptions } from '../../../src/mesh/libp2p/options.ts'
import { RelayClient } from '../../../src/mesh/libp2p/relay.ts'
import type { RelayServerRules } from '../../../src/mesh/libp2p/relay.ts'
import { machineIdOf } from '../../../src/mesh/addresses.ts'
import { until } from '../../support/processes.ts'

const start = async (t: TestContext, init: { listen: readonly string[]; server: RelayServerRules | null }) => {
  const client = new RelayClient({ isRelay: () => true })
  const reach = { client, mayAsk: () => false, onReview: () => undefined, server: init.server }
  const node = await createLibp2p(
    await libp2pOptions({ seed: randomBytes(32), listen: init.listen, announce: [], mdns: false, gater: {}, reach }),
  )
  await node.start()
  t.after(async () => node.stop())
  return { node, client }
}

test('the relay client sets no keep-alive tags, and removes those of libp2p', { timeout: 60_000 }, async (t) => {
  const server = { mayUse: () => true, carry: () => undefined }
  const relay = await start(t, { listen: ['/ip4/127.0.0.1/tcp/0'], server })
  const { node, client } = await start(t, { listen: [], server: null })
  const { peerId } = relay.node
  const machineId = machineIdOf(peerId)!
  await node.dial(relay.node.getMultiaddrs())
  await until(async () => client.isOffered(machineId))
  await client.reserve(machineId)
  assert.notEqual(client.reservedUntil(machineId), null)
  const tags = async (): Promise<string[]> => [...(await node.peerStore.get(peerId)).tags.keys()]
  assert.deepEqual(
    (await tags()).filter((tag) => tag.startsWith(KEEP_ALIVE)),
    [],
  )
  client.release(machineId)
  assert.equal(client.reservedUntil(machineId), null)
  await node.peerStore.patch(peerId, { tags: { [`${KEEP_ALIVE}-otherwise`]: { value: 1 }, another: { value: 1 } } })
  assert.deepEqual(await tags(), ['another'])
})
