import assert from 'node:assert/strict'
import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { before, beforeEach, test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { FrameStream } from '../../src/links/frame-stream.ts'
import type { LinkExecutor } from '../../src/links/link.ts'
import { equalBytes } from '../../src/identity/hash.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { primitives } from '../../src/identity/primitives.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import { LINK_VERSION, MAX_LINK_FRAME } from '../../src/protocol/limits/wire.ts'
import { LINK_PROTOCOL, linkM1, linkM2, linkM2Core, linkM3 } from '../../src/protocol/wire/link.ts'
import { connect, flip, handshake, signalOf, type Tamper } from '../support/hostile-link.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'
import { MAX_PENALTY_MS } from '../../src/mesh/penalties.ts'

const LIMIT = { timeout: 60_000 }

let forgiving = 0
const penaltyClock = { monotonic: () => forgiving }
const afters: (() => Promise<void>)[] = []
let alice: Peer
let bob: Peer

before(async () => {
  const keeper = { after: (fn: () => Promise<void>) => void afters.push(fn) } as Parameters<typeof startPeer>[0]
  alice = await startPeer(keeper, { name: 'alice', penaltyClock })
  bob = await startPeer(keeper, { name: 'bob', penaltyClock })
})

/** Clears all penalties, and waits until connections that may still be closed because of them are gone. */
const beginAnew = async (): Promise<void> => {
  forgiving += MAX_PENALTY_MS
  const between = (): MeshConnection[] => [...alice.node.connectionsTo(bob.machineId), ...bob.node.connectionsTo(alice.machineId)]
  const old = between()
  for (const connection of old) connection.abort(new Error('begin anew'))
  await until(() => between().every((connection) => !old.includes(connection)))
}

beforeEach(beginAnew)

test.after(async () => {
  for (const stop of afters.toReversed()) await stop()
})

/** Expects bob to count one more failed handshake and no new link. The initiator may see any result. */
const refusedByBob = async (tamper: Tamper, parts: Parameters<typeof handshake>[3] = {}): Promise<void> => {
  await beginAnew()
  const [failed, opened] = [bob.counters.get('links_failed'), bob.counters.get('links_opened')]
  const attempt = handshake(alice, bob, tamper, parts)
  await attempt.catch(() => undefined)
  await until(() => bob.counters.get('links_failed') > failed)
  assert.equal(bob.counters.get('links_opened'), opened)
}

/** A `LinkExecutor` with some calls replaced. */
const replacing = (port: LinkExecutor, calls: Partial<LinkExecutor>): LinkExecutor =>
  new Proxy(port, {
    get: (target, name) => {
      const own = Object.hasOwn(calls, name) ? calls[name as keyof LinkExecutor] : undefined
      const value: unknown = own ?? target[name as keyof LinkExecutor]
      return typeof value === 'function' && own === undefined ? value.bind(target) : value
    },
  })

const refusedByAlice = async (tamper: Tamper): Promise<void> => {
  const connection = await connect(alice, bob)
  await assert.rejects(handshake(alice, bob, tamper), (error) => isAppError(error, 'malformed') || isAppError(error, 'peer_rejected'))
  // The responder waits for M3 until the stream ends, so the test ends its connection.
  connection.abort(new Error('done'))
  await until(() => bob.node.connectionsTo(alice.machineId).length === 0)
}

test('both ends learn the agent of the other end, with either of them as the initiator', LIMIT, async () => {
  for (const [one, other] of [
    [alice, bob],
    [bob, alice],
  ] as const) {
    const opened = other.counters.get('links_opened')
    const { facts } = await handshake(one, other)
    assert.equal(facts.agentId, other.agentId)
    assert.ok(equalBytes(facts.agentPublicKey, other.signer.publicKey))
    await until(() => other.counters.get('links_opened') === opened + 1)
    assert.equal(other.links.linkedAgent(one.machineId), one.agentId)
  }
})

test('M1 with an altered list of versions is refused, which prevents a downgrade', LIMIT, async () => {
  for (const versions of [[1], [LINK_VERSION, 1], [LINK_VERSION, LINK_VERSION]]) {
    await refusedByAlice({ sent: (frame, index) => (index === 0 ? linkM1.encode({ ...linkM1.decode(frame), versions }) : frame) })
  }
})

test('an initiator with other versions receives our version and gets no link', LIMIT, async () => {
  for (const versions of [[], [LINK_VERSION - 1], [LINK_VERSION + 1], [1, 2, 3, 4, 5, 6, 7, 8]]) {
    let told: readonly number[] = []
    await refusedByBob({
      sent: (frame, index) => (index === 0 ? linkM1.encode({ ...linkM1.decode(frame), versions }) : frame),
      received: (frame) => {
        told = linkM2Core.decode(linkM2.decode(frame).core).versions
        return frame
      },
    })
    assert.deepEqual(told, [LINK_VERSION])
  }
})

test('a responder with another version causes an error with both versions and the machine to upgrade', LIMIT, async () => {
  for (const [theirs, where] of [
    [LINK_VERSION - 1, /on machine /],
    [LINK_VERSION + 1, /on this machine/],
  ] as const) {
    const connection = await connect(alice, bob)
    const answer = (frame: Uint8Array): Uint8Array => {
      const m2 = linkM2.decode(frame)
      return linkM2.encode({ ...m2, core: linkM2Core.encode({ ...linkM2Core.decode(m2.core), versions: [theirs] }) })
    }
    await assert.rejects(handshake(alice, bob, { received: answer }), (error) => {
      assert.ok(isAppError(error, 'upgrade'))
      assert.match(error.message, new RegExp(`version ${theirs} .* version ${LINK_VERSION}`))
      assert.match(String(error.data['next']), where)
      return true
    })
    connection.abort(new Error('done'))
    await until(() => bob.node.connectionsTo(alice.machineId).length === 0)
  }
})

for (const field of ['agent_signature', 'machine_signature', 'mac'] as const) {
  test(`M2 with an altered ${field} is refused`, LIMIT, async () => {
    await refusedByAlice({
      received: (frame) => {
        const m2 = linkM2.decode(frame)
        return linkM2.encode({ ...m2, [field]: flip(m2[field], 7) })
      },
    })
  })

  test(`M3 with an altered ${field} is refused`, LIMIT, async () => {
    await refusedByBob({
      sent: (frame, index) => {
        if (index !== 1) return frame
        const m3 = linkM3.decode(frame)
        return linkM3.encode({ ...m3, [field]: flip(m3[field], 7) })
      },
    })
  })
}

test('the executor process refuses a wrong agent signature, even with a valid MAC', LIMIT, async () => {
  const forging: Pick<LinkExecutor, 'linkConfirm'> = {
    linkConfirm: async (call) => {
      const ready = await alice.executorClient.linkConfirm(call)
      return { ...ready, agent_signature: flip(ready.agent_signature, 100) }
    },
  }
  await refusedByBob({}, { executor: replacing(alice.executorClient, forging) })
})

test('the executor process refuses a signature by the key of another machine', LIMIT, async () => {
  const other = machineKeyOf(new Uint8Array(32).fill(9))
  await refusedByBob({}, { machineKey: { ...alice.machineKey, sign: (domain, body) => other.sign(domain, body) } })
})

test('a frame longer than a handshake message ends the handshake', LIMIT, async () => {
  await refusedByBob({ sent: () => new Uint8Array(MAX_LINK_FRAME + 1) })
})

test('bytes that are not a handshake message end the handshake', LIMIT, async () => {
  await refusedByBob({ sent: () => new Uint8Array([0x81, 0x00]) })
  await refusedByBob({ sent: () => new Uint8Array(0) })
  await refusedByBob({ sent: (frame, index) => (index === 1 ? frame.subarray(0, frame.length - 1) : frame) })
})

test('a peer that stops answering during the handshake is given up after a timeout', LIMIT, async () => {
  const connection = await connect(alice, bob)
  const stream = await connection.openStream(LINK_PROTOCOL, signalOf())
  const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
  // Counts only this reason, because handshakes of other tests may still fail.
  const givenUp = (): number => bob.counters.snapshot().link_failures['timeout'] ?? 0
  const before = givenUp()
  await assert.rejects(frames.read(signalOf()))
  await until(() => givenUp() > before)
})

test('a handshake forwarded by a man in the middle, or reflected to its sender, is refused', LIMIT, async (t) => {
  const mallory = await startPeer(t, { name: 'mallory' })
  for (const victim of [bob, alice]) {
    // Alice expects mallory's machine. Mallory forwards the messages between alice and the victim.
    const towards = await (await connect(mallory, victim)).openStream(LINK_PROTOCOL, signalOf())
    const far = new FrameStream({ stream: towards }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    const kem = primitives().kemKeygen()
    const { handle, m1 } = await alice.executorClient.linkOpen({ peer_machine: mallory.machineId, kem_public_key: kem.publicKey })
    far.send(m1)
    const m2 = await far.read(signalOf())
    await assert.rejects(alice.executorClient.linkConfirm({ handle, m2 }), (error) => isAppError(error, 'peer_rejected'))
    far.abort(new Error('done'))
  }
})

test('a copied agent key on another machine is rejected by a host that has pinned the contact', LIMIT, async (t) => {
  const dataDir = await tempDir(t)
  await cp(join(alice.dataDir, 'agent.key'), join(dataDir, 'agent.key'))
  const thief = await startPeer(t, { name: 'thief', dataDir })
  const host = await startPeer(t, { name: 'host' })
  await introduce(host, alice, 'trusted', true)
  await introduce(thief, host, 'trusted')
  assert.equal(thief.agentId, alice.agentId)
  assert.notEqual(thief.machineId, alice.machineId)
  const { outcome } = await thief.messages.send(host.agentId, { content_type: 'x', payload: new Uint8Array(1) }, signalOf())
  assert.equal(outcome, 'rejected')
  await until(() => host.counters.get('links_rejected') === 1 && host.node.connectionsTo(thief.machineId).length === 0)
  await rm(dataDir, { recursive: true, force: true })
})
