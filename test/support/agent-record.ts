import type { AgentSigner } from '../../src/identity/signing.ts'
import { signCard } from '../../src/identity/card.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { ANNOUNCE_DOMAIN, signedCard } from '../../src/protocol/wire/card.ts'
import { RECORD_TTL_MS } from '../../src/protocol/limits/wire.ts'

/** An agent's record for the DHT, as its daemon makes it. */
export const recordOf = async (
  by: AgentSigner,
  issued: number,
  { domain = ANNOUNCE_DOMAIN, at = machineKeyOf(Buffer.alloc(32, 'm')).machineId, port = 1 } = {},
) => {
  const addresses = [`/ip4/127.0.0.1/tcp/${port}/p2p/${peerIdOf(at)}`]
  const body = { version: 1 as const, agent_public_key: by.publicKey, machine_id: at, name: '', addresses }
  return signedCard.encode(await signCard(by, { ...body, issued_at_ms: issued, expires_at_ms: issued + RECORD_TTL_MS }, domain))
}
