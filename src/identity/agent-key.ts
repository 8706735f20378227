import { join } from 'node:path'
import { agentIdOf, type AgentSigner, statement } from './signing.ts'
import { type SeedFile, loadGivenOrCreateSeed } from './key-file.ts'
import { primitives } from './primitives.ts'

/** The signer of a 32-byte ML-DSA-65 seed. */
export const agentSignerOf = (seed: Uint8Array): AgentSigner => {
  const { dsaKeygen, dsaSign } = primitives()
  const { publicKey, secret } = dsaKeygen(seed)
  return { publicKey, agentId: agentIdOf(publicKey), sign: (domain, body) => dsaSign(secret, statement(domain, body)) }
}

export const agentKeyFile = (dataDir: string): SeedFile => ({ path: join(dataDir, 'agent.key'), header: 'x0x-agent-key-v1' })

/**
 * The agent of a data directory, from `agent.key`, which is created on first start. Only the executor process calls this. Throws
 * `loose_permissions`, `bad_key_file`, and `conflict` if `credentials` has the file too. `dirMode` are the permissions of the directory.
 */
export const loadOrCreateAgentKey = async (dataDir: string, dirMode?: number, credentials: string | null = null): Promise<AgentSigner> =>
  agentSignerOf(await loadGivenOrCreateSeed(agentKeyFile(dataDir), credentials, dirMode))
