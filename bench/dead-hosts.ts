import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'

import { agentSignerOf } from '../src/identity/agent-key.ts'
import { encodeCardLink, signCard } from '../src/identity/card.ts'
import { randomBytes } from '../src/identity/hash.ts'
import { machineKeyOf } from '../src/identity/machine-key.ts'
import { peerIdOf } from '../src/identity/machine-key.ts'
import { CARD_DOMAIN } from '../src/protocol/wire/card.ts'

const CARD_MS = 3_600_000

/** Cards of hosts that accept a connection and never answer, so that each dial lasts until its time limit. */
export const startDeadHosts = async (count: number): Promise<{ cards: readonly string[]; stop(): void }> => {
  const held = new Set<Socket>()
  const server = createServer((socket) => {
    held.add(socket)
    socket.on('error', () => undefined)
    socket.once('close', () => held.delete(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const cards: string[] = []
  for (let index = 0; index < count; index++) {
    const [signer, { machineId }] = [agentSignerOf(randomBytes(32)), machineKeyOf(randomBytes(32))]
    const now = Date.now()
    const body = { version: 1 as const, agent_public_key: signer.publicKey, machine_id: machineId, name: 'dead' }
    const addresses = [`/ip4/127.0.0.1/tcp/${port}/p2p/${peerIdOf(machineId)}`]
    const card = { ...body, addresses, issued_at_ms: now, expires_at_ms: now + CARD_MS }
    cards.push(encodeCardLink(await signCard(signer, card, CARD_DOMAIN)))
  }
  const stop = (): void => {
    server.close()
    for (const socket of held) socket.destroy()
  }
  return { cards, stop }
}
