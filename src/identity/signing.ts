import { createPublicKey, verify } from 'node:crypto'
import { type AgentId, type MachineId, fromHex, isHexId, toHex } from '../protocol/ids.ts'
import { AGENT_SIGNATURE_BYTES, MACHINE_SIGNATURE_BYTES, MAX_BATCH } from '../protocol/limits/wire.ts'
import { sha256 } from './hash.ts'
import { primitives } from './primitives.ts'

const AGENT_ID_DOMAIN = new TextEncoder().encode('x0x-agent-id-v1')

/** SHA-256 of the domain and the ML-DSA-65 public key. */
export const agentIdOf = (publicKey: Uint8Array): AgentId => toHex(sha256(AGENT_ID_DOMAIN, publicKey))

/** Signs as an agent without giving access to the key. */
export interface AgentSigner {
  readonly publicKey: Uint8Array
  readonly agentId: AgentId
  /** The ML-DSA-65 signature of `statement(domain, body)`. */
  sign(domain: string, body: Uint8Array): Promise<Uint8Array>
}

const encoder = new TextEncoder()

/** The signed bytes are domain, NUL and body. A domain contains no NUL, so a signature for one purpose is invalid for all others. */
export const statement = (domain: string, body: Uint8Array): Uint8Array => {
  if (domain === '' || domain.includes('\0')) throw new TypeError('a domain is a text without NUL')
  return Buffer.concat([encoder.encode(domain), Uint8Array.of(0), body])
}

/** True if the agent key made this signature for this domain, or false for all else, of any size. */
export const verifyAgent = (publicKey: Uint8Array, domain: string, body: Uint8Array, signature: Uint8Array): boolean =>
  primitives().dsaVerify(publicKey, statement(domain, body), signature)

/** SubjectPublicKeyInfo of Ed25519 (RFC 8410) before the 32 raw bytes. */
const ED25519_SPKI = fromHex('302a300506032b6570032100')

/** True if the machine's Ed25519 key, which is its ID, made this signature for this domain. */
export const verifyMachine = (machineId: MachineId, domain: string, body: Uint8Array, signature: Uint8Array): boolean => {
  if (!isHexId(machineId) || signature.length !== MACHINE_SIGNATURE_BYTES) return false
  const key = createPublicKey({ key: Buffer.concat([ED25519_SPKI, fromHex(machineId)]), format: 'der', type: 'spki' })
  return verify(null, statement(domain, body), key, signature)
}

/** Domain of the signature over a batch, which covers its size in one byte and its root. */
export const BATCH_DOMAIN = 'x0x-batch-v1'
const HASH_BYTES = 32
/** Two bytes after the signature. They are the number of statements, and the index of this one. */
const PLACE_BYTES = 2

/** Prefixes of hashed statements and of hashed tree nodes, so that one is never mistaken for the other (RFC 9162 §2.1.1). */
const LEAF = Uint8Array.of(0)
const NODE = Uint8Array.of(1)

/** A statement's hash as a leaf of the tree. */
export const batchLeaf = (domain: string, body: Uint8Array): Uint8Array => sha256(LEAF, statement(domain, body))

const rootStatement = (size: number, root: Uint8Array): Uint8Array => Buffer.concat([Uint8Array.of(size), root])

/** Levels of the tree of RFC 9162 §2.1.1, from the leaves to the root. A node without a sibling is its own parent. */
const levelsOf = (leaves: readonly Uint8Array[]): (readonly Uint8Array[])[] => {
  const levels = [leaves]
  for (let level = leaves; level.length > 1; levels.push(level)) {
    const below = level
    level = Array.from({ length: Math.ceil(below.length / 2) }, (_, at) => {
      const [left, right] = [below[2 * at]!, below[2 * at + 1]]
      return right === undefined ? left : sha256(NODE, left, right)
    })
  }
  return levels
}

/**
 * Signs several statements at once. The agent signs the root of their tree. Each statement gets this signature with its index and the
 * hashes from it to the root. These reveal the number of the other statements, but not their content unless it can be guessed.
 */
export const signBatch = async (signer: Pick<AgentSigner, 'sign'>, leaves: readonly Uint8Array[]): Promise<Uint8Array[]> => {
  const levels = levelsOf(leaves)
  const signature = await signer.sign(BATCH_DOMAIN, rootStatement(leaves.length, levels.at(-1)![0]!))
  return leaves.map((_, index) => {
    const path = levels.flatMap((level, height) => level[(index >> height) ^ 1] ?? [])
    return Buffer.concat([signature, Uint8Array.of(leaves.length, index), ...path])
  })
}

/** The root that a statement's index and path lead to, or null if they fit no tree. */
const rootOf = (leaf: Uint8Array, size: number, index: number, path: Uint8Array): Uint8Array | null => {
  if (size < 2 || size > MAX_BATCH || index >= size) return null
  let [node, at, last, used] = [leaf, index, size - 1, 0]
  for (; last > 0; at >>= 1, last >>= 1) {
    // The last node of an odd number has no sibling.
    if (at === last && at % 2 === 0) continue
    const sibling = path.subarray(used, (used += HASH_BYTES))
    node = at % 2 === 0 ? sha256(NODE, node, sibling) : sha256(NODE, sibling, node)
  }
  return used === path.length ? node : null
}

/** As `verifyAgent`, for a signature of this statement alone or of a batch. */
export const verifyInBatch = (publicKey: Uint8Array, domain: string, body: Uint8Array, signature: Uint8Array): boolean => {
  if (signature.length === AGENT_SIGNATURE_BYTES) return verifyAgent(publicKey, domain, body, signature)
  const [of, place] = [signature.subarray(0, AGENT_SIGNATURE_BYTES), signature.subarray(AGENT_SIGNATURE_BYTES)]
  const [size = 0, index = 0] = place
  const root = rootOf(batchLeaf(domain, body), size, index, place.subarray(PLACE_BYTES))
  return root !== null && verifyAgent(publicKey, BATCH_DOMAIN, rootStatement(size, root), of)
}
