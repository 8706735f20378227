import { type AgentId, toHex } from '../protocol/ids.ts'
import { sha256 } from './hash.ts'

const AGENT_ID_DOMAIN = new TextEncoder().encode('x0x-agent-id-v1')

/** SHA-256 of the domain and the ML-DSA-65 public key. */
export const agentIdOf = (publicKey: Uint8Array): AgentId => toHex(sha256(AGENT_ID_DOMAIN, publicKey))
