import assert from 'node:assert/strict'
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { loadOrCreateAgentKey } from '../../src/identity/agent-key.ts'
import { signCard, verifyCard } from '../../src/identity/card.ts'
import { loadOrCreateMachineKey } from '../../src/identity/machine-key.ts'
import { CARD_DOMAIN } from '../../src/protocol/card.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { signalOf } from '../../test/support/hostile-link.ts'
import { startPeer, type Peer } from '../../test/support/peer.ts'
import { until } from '../../test/support/processes.ts'
import { tempDir } from '../../test/support/temp-dir.ts'

const NODES = 20
/** Four places to both sides of the ring. */
const STANDING = 8
const NAMED = { trust: 'trusted' } as const

/** Directories of daemons that are one another's trusted contacts, by cards that name no address. */
const directories = async (t: TestContext): Promise<string[]> => {
  const path = join(await tempDir(t), 'contacts.json')
  const shared = new Contacts({ path })
  await shared.load()
  const dirs: string[] = []
  for (let i = 0; i < NODES; i++) {
    const dir = await tempDir(t)
    const [signer, machine] = [await loadOrCreateAgentKey(dir), await loadOrCreateMachineKey(dir)]
    const now = Date.now()
    const body = { version: 1 as const, agent_public_key: signer.publicKey, machine_id: machine.machineId, name: `n${i}`, addresses: [] }
    const card = await signCard(signer, { ...body, issued_at_ms: now, expires_at_ms: now + 3_600_000 }, CARD_DOMAIN)
    await shared.importCard(verifyCard(card, CARD_DOMAIN, now), NAMED)
    await shared.pin(signer.agentId, machine.machineId)
    dirs.push(dir)
  }
  for (const dir of dirs) await copyFile(path, join(dir, 'contacts.json'))
  return dirs
}

test(
  'twenty daemons that know one neighbour find one another by name, with a few connections each, also after some have moved',
  { timeout: 240_000 },
  async (t) => {
    const dirs = await directories(t)
    const start = async (i: number, bootstrap: readonly string[]): Promise<Peer> =>
      startPeer(t, { name: `n${i}`, dataDir: dirs[i]!, bootstrap, standing: STANDING })
    const hub = await start(0, [])
    const peers = [hub]
    for (let i = 1; i < NODES; i++) peers.push(await start(i, hub.node.addresses()))
    const asksAll = async (round: number): Promise<void> => {
      for (const [i, asker] of peers.entries()) {
        const asked = peers[(i * 7 + 13 + round) % NODES]!
        if (asked === asker) continue
        await until(() => asker.book.candidates(asked.agentId).some(({ addresses }) => addresses.length > 0))
        assert.equal((await asker.links.link(asked.agentId, signalOf())).machineId, asked.machineId)
      }
    }
    const standing = (): number[] => peers.map(({ reconnect }) => reconnect.status().length)
    assert.ok(Math.max(...standing()) <= STANDING + 1, String(standing()))
    await until(() => peers.every(({ reconnect }) => reconnect.status().every(({ connected }) => connected)))
    // Of the hub everybody is a neighbour; the pairs of the others are chosen by both ends.
    const others = peers.slice(1).map(({ node }) => new Set(node.connections().map(({ machineId }) => machineId)).size)
    assert.ok(Math.max(...others) <= STANDING + 1, String(others))
    await asksAll(0)
    for (let i = 5; i < NODES; i += 6) {
      await peers[i]!.stop()
      peers[i] = await start(i, hub.node.addresses())
    }
    await asksAll(1)
  },
)
