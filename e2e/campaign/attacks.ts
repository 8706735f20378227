import { connect as openSocket } from 'node:net'
import type { TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { newRequestId } from '../../src/identity/request-id.ts'
import { decodeCardLink, verifyCard } from '../../src/identity/card.ts'
import { CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { directMessage, MESSAGE_PREFIX } from '../../src/protocol/wire/dm.ts'
import { LINK_PROTOCOL } from '../../src/protocol/wire/link.ts'
import { handshake } from '../../test/support/hostile-link.ts'
import { startPeer } from '../../test/support/peer.ts'
import {
  firstMessage,
  muxerHead,
  openGossip,
  push,
  resets,
  UnlistedPeer,
  type Hold,
  wronglySigned,
} from '../../test/support/unlisted-peer.ts'

/** Address and card of the victim, and the signal that ends the attack. */
export interface Target {
  readonly address: string
  readonly card: string
  readonly signal: AbortSignal
}

/** Does harm at full speed until the signal ends it. */
export type Attack = (t: Pick<TestContext, 'after'>, target: Target) => Promise<void>

/** Runs the attack on `count` connections at a time, and opens a new connection when one has ended. */
const onConnections =
  (count: number, attack: (hold: Hold, peer: UnlistedPeer, signal: AbortSignal) => Promise<void>): Attack =>
  async (t, { address, signal }) => {
    const one = async (): Promise<void> => {
      while (!signal.aborted) {
        const peer = await UnlistedPeer.start(t)
        const hold = await peer.connect(address).catch(() => null)
        if (hold === null) await sleep(20)
        else await attack(hold, peer, signal).catch(() => sleep(5))
        await peer.node.stop()
      }
    }
    await Promise.all(Array.from({ length: count }, one))
  }

/** Sends bytes below the muxer again and again. */
const flood = (bytes: (round: number) => Uint8Array): ReturnType<typeof onConnections> =>
  onConnections(1, async ({ wire }, _stranger, signal) => {
    for (let round = 0; !signal.aborted && (await push(wire, bytes(round))); round++) await sleep(0)
  })

const rapidReset = flood((round) => resets(1_001 + round * 500, 250))
const pings = (() => {
  const batch = Buffer.concat(Array.from({ length: 2_000 }, (_, i) => muxerHead(2, 1, 0, i)))
  return flood(() => batch)
})()
const bytes = (() => {
  const batch = Buffer.concat([muxerHead(0, 0, 99, 60_000), Buffer.alloc(60_000)])
  return flood(() => batch)
})()

/** Sends the longest permitted frame except its last byte, on fifty connections. */
const endlessFrames = onConnections(50, async ({ wire, connection }, _stranger, signal) => {
  await sleep(300)
  const frame = 2 * 1024 * 1024
  await push(wire, muxerHead(0, 0, 99, frame))
  for (let sent = 0; sent + 60_000 < frame; sent += 60_000) if (!(await push(wire, Buffer.alloc(60_000)))) return
  while (!signal.aborted && connection.status === 'open') await sleep(50)
})

const gossip = onConnections(1, async (hold, peer, signal) => {
  const stream = await openGossip(hold)
  const batches = Array.from({ length: 8 }, () => wronglySigned(peer.node, 64))
  for (let round = 0; !signal.aborted && stream.status === 'open'; round++) {
    if (!stream.send(batches[round % batches.length]!)) await sleep(1)
    await sleep(0)
  }
})

const echo = onConnections(2, async ({ connection }, _stranger, signal) => {
  while (!signal.aborted && connection.status === 'open') {
    const stream = await connection.newStream('/ipfs/ping/1.0.0').catch(() => null)
    // After a goodbye of the muxer no stream opens and `stream` is null at once. The end of the connection is noticed only in a later turn
    // of the event loop.
    if (stream === null) await sleep(0)
    else stream.send(Buffer.alloc(60_000))
  }
})

/** Starts handshakes, waits for the two signatures of the victim and then leaves. */
const handshakesLeft = onConnections(8, async ({ connection }, _stranger, signal) => {
  while (!signal.aborted && connection.status === 'open') {
    const stream = await connection.newStream(LINK_PROTOCOL)
    const answered = new Promise<void>((resolve) => {
      stream.addEventListener('message', () => resolve())
      stream.addEventListener('close', () => resolve())
    })
    if (stream.status !== 'open') continue
    stream.send(firstMessage())
    await Promise.race([answered, sleep(1_000)])
    stream.abort(new Error('left'))
  }
})

/** Opens as many connections as one machine may have, from one key after another. */
const connections: Attack = async (t, { address, signal }) => {
  const peers = await Promise.all(Array.from({ length: 16 }, () => UnlistedPeer.start(t)))
  const one = async (peer: UnlistedPeer): Promise<void> => {
    while (!signal.aborted) await peer.connect(address).catch(() => sleep(5))
  }
  await Promise.all(peers.map(one))
}

/** Opens connections from twenty addresses of this host and sends nothing. */
const silence: Attack = async (_t, { address, signal }) => {
  const port = Number(address.split('/')[4])
  const open = new Set<ReturnType<typeof openSocket>>()
  for (let i = 0; !signal.aborted; i++) {
    const socket = openSocket({ host: '127.0.0.1', port, localAddress: `127.0.0.${100 + (i % 20)}` })
    socket.on('error', () => undefined).on('close', () => open.delete(socket))
    open.add(socket)
    if (i % 4 === 0) await sleep(1)
  }
  for (const socket of open) socket.destroy()
}

/** An unlisted peer with an agent, which opens a whole link and sends over it what it may. */
const asAgent =
  (attack: (mallory: Awaited<ReturnType<typeof startPeer>>, target: Target, agentId: string, machineId: string) => Promise<void>): Attack =>
  async (t, target) => {
    const card = verifyCard(decodeCardLink(target.card), CARD_DOMAIN, Date.now())
    const mallory = await startPeer(t, { name: 'mallory' })
    await mallory.contacts.importCard(card, { trust: 'trusted' })
    await sleep(200)
    await attack(mallory, target, card.agentId, card.machineId)
  }

const messages = asAgent(async (mallory, { signal }, agentId) => {
  const body = Buffer.concat([MESSAGE_PREFIX, directMessage.encode({ content_type: '', payload: new Uint8Array(0) })])
  while (!signal.aborted) {
    const channel = await mallory.links.openChannel(agentId, AbortSignal.timeout(2_000)).catch(() => null)
    if (channel === null) {
      await sleep(20)
      continue
    }
    for (let i = 0; !signal.aborted && !channel.closed; i++) {
      channel.send(newRequestId(), body)
      if (i % 100 === 99) await sleep(0)
    }
  }
})

const handshakesEnded = asAgent(async (mallory, { address, signal }, _agentId, machineId) => {
  const bob = { machineId, node: { addresses: () => [address] } }
  while (!signal.aborted) {
    const made = await handshake(mallory, bob).catch(() => null)
    if (made === null) await sleep(5)
  }
})

export const ATTACKS: Readonly<Record<string, Attack>> = {
  'streams that open and reset': rapidReset,
  'pings of the muxer': pings,
  'bytes for a stream that does not exist': bytes,
  'frames that never end, on 50 connections': endlessFrames,
  'gossip with wrong signatures': gossip,
  'opens of an echo protocol that the target does not offer': echo,
  'handshakes that are left unfinished, on 8 connections': handshakesLeft,
  'handshakes, one after another': handshakesEnded,
  'messages of an agent that is not accepted': messages,
  'connections of 16 machines of one host': connections,
  'silent connections from 20 addresses': silence,
}
