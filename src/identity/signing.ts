import { createPublicKey, verify } from 'node:crypto'
import { type AgentId, type MachineId, fromHex, isHexId } from '../protocol/ids.ts'
import { AGENT_SIGNATURE_BYTES, MACHINE_SIGNATURE_BYTES, MAX_BATCH } from '../protocol/limits/wire.ts'
import { sha256 } from './hash.ts'
import { primitives } from './primitives.ts'

/** Who can sign as an agent. The key itself stays inside. */
export interface AgentSigner {
  readonly publicKey: Uint8Array
  readonly agentId: AgentId
  /** The ML-DSA-65 signature of `statement(domain, body)`. */
  sign(domain: string, body: Uint8Array): Promise<Uint8Array>
}

const encoder = new TextEncoder()

/**
 * What is really signed: the domain, a NUL, the body. A domain contains no NUL, so a signature made
 * for one purpose fits no other.
 */
export const statement = (domain: string, body: Uint8Array): Uint8Array => {
  if (domain === '' || domain.includes('\0')) throw new TypeError('a domain is a text without NUL')
  return Buffer.concat([encoder.encode(domain), Uint8Array.of(0), body])
}

/** True when the agent key made this signature for this domain; false for anything else, of whatever size. */
export const verifyAgent = (publicKey: Uint8Array, domain: string, body: Uint8Array, signature: Uint8Array): boolean =>
  primitives().dsaVerify(publicKey, statement(domain, body), signature)

/** SubjectPublicKeyInfo of Ed25519 (RFC 8410) before the 32 raw bytes. */
const ED25519_SPKI = fromHex('302a300506032b6570032100')

/** True when the machine's Ed25519 key, which is its id, made this signature for this domain. */
export const verifyMachine = (machineId: MachineId, domain: string, body: Uint8Array, signature: Uint8Array): boolean => {
  if (!isHexId(machineId) || signature.length !== MACHINE_SIGNATURE_BYTES) return false
  const key = createPublicKey({ key: Buffer.concat([ED25519_SPKI, fromHex(machineId)]), format: 'der', type: 'spki' })
  return verify(null, statement(domain, body), key, signature)
}

/** Domain of the signature over a batch: its size in one byte, and its root. */
const BATCH_DOMAIN = 'x0x-batch-v1'
const HASH_BYTES = 32
/** Behind the signature: how many statements there are, and which of them it is. */
const PLACE_BYTES = 2

/** What a statement, and what two nodes of the tree, are hashed behind: neither can be taken for the other (RFC 9162 §2.1.1). */
const LEAF = Uint8Array.of(0)
const NODE = Uint8Array.of(1)

/** A statement's hash in a tree of such. */
export const batchLeaf = (domain: string, body: Uint8Array): Uint8Array => sha256(LEAF, statement(domain, body))

const rootStatement = (size: number, root: Uint8Array): Uint8Array => Buffer.concat([Uint8Array.of(size), root])

/** Level by level from the leaves to the root; a node without a sibling is its own parent: the tree of RFC 9162 §2.1.1. */
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
 * One signature for many statements, in their order: the agent's signature over the root of their tree, then for each its place and the hashes that
 * lead from it to the root. It tells whoever has it of the others' number and nothing of what they say, as long as they cannot be guessed.
 */
export const signBatch = async (signer: Pick<AgentSigner, 'sign'>, leaves: readonly Uint8Array[]): Promise<Uint8Array[]> => {
  const levels = levelsOf(leaves)
  const signature = await signer.sign(BATCH_DOMAIN, rootStatement(leaves.length, levels.at(-1)![0]!))
  return leaves.map((_, index) => {
    const path = levels.flatMap((level, height) => level[(index >> height) ^ 1] ?? [])
    return Buffer.concat([signature, Uint8Array.of(leaves.length, index), ...path])
  })
}

/** The root that a statement's place and path lead to; null: they fit no tree. */
const rootOf = (leaf: Uint8Array, size: number, index: number, path: Uint8Array): Uint8Array | null => {
  if (size < 2 || size > MAX_BATCH || index >= size) return null
  let [node, at, last, used] = [leaf, index, size - 1, 0]
  for (; last > 0; at >>= 1, last >>= 1) {
    // The last of an odd number has no sibling.
    if (at === last && at % 2 === 0) continue
    const sibling = path.subarray(used, (used += HASH_BYTES))
    node = at % 2 === 0 ? sha256(NODE, node, sibling) : sha256(NODE, sibling, node)
  }
  return used === path.length ? node : null
}

/** As `verifyAgent`, of a signature for this statement alone or for a batch that it is in. */
export const verifyInBatch = (publicKey: Uint8Array, domain: string, body: Uint8Array, signature: Uint8Array): boolean => {
  if (signature.length === AGENT_SIGNATURE_BYTES) return verifyAgent(publicKey, domain, body, signature)
  const [of, place] = [signature.subarray(0, AGENT_SIGNATURE_BYTES), signature.subarray(AGENT_SIGNATURE_BYTES)]
  const [size = 0, index = 0] = place
  const root = rootOf(batchLeaf(domain, body), size, index, place.subarray(PLACE_BYTES))
  return root !== null && verifyAgent(publicKey, BATCH_DOMAIN, rootStatement(size, root), of)
}
