import { createHash } from 'node:crypto'
import { laterVersion } from '../../base/files.ts'
import { loadPrimitives } from '../../identity/primitives.ts'
import { type AgentSigner, agentIdOf, verifyAgent } from '../../identity/signing.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { AGENT_PUBLIC_KEY_BYTES, AGENT_SIGNATURE_BYTES } from '../../protocol/limits/wire.ts'
import { bytes as bytesOf, literal, record, uint } from '../../protocol/wire/schema.ts'

/** Domain of the agent key's signature over the exact bytes of an encoded `acl-statement`. */
export const ACL_BUNDLE_DOMAIN = 'x0x-acl-bundle-v1'

/** An operator's statement that hosts which name this agent as a signer may use an ACL. It never travels over a link. */
export const aclStatement = record('acl-statement', {
  version: literal(1),
  /** Hosts refuse a number below the last one that they accepted. */
  acl_version: uint(),
  /** SHA-256 of the text below the header of the bundle. */
  acl_sha256: bytesOf(32),
})

/** An agent's signature of an ACL, and the version. */
export interface AclSignature {
  readonly version: number
  readonly signer: AgentId
  /** SHA-256 of the signed text as hex. */
  readonly sha256: string
}

/** The parts of a bundle, not verified. */
interface AclBundle extends AclSignature {
  readonly publicKey: Uint8Array
  readonly signature: Uint8Array
  /** The ACL below the header. */
  readonly text: Uint8Array
}

/** First words of every bundle. The header consists of comments, so that a bundle is a valid ACL for all readers of TOML. */
const MAGIC = '# x0x-acl-bundle v'
const FORMAT = 1
const NOTICE = '# A signed ACL. To change it, edit the text below and sign it: x0x acl sign FILE'

const charactersOf = (bytes: number): number => Math.ceil((bytes * 4) / 3)

/** Keys of the header, in their only order, with the form of their values. */
const HEADER = {
  version: '[1-9][0-9]{0,15}',
  signer: '[0-9a-f]{64}',
  public_key: `[A-Za-z0-9_-]{${charactersOf(AGENT_PUBLIC_KEY_BYTES)}}`,
  signature: `[A-Za-z0-9_-]{${charactersOf(AGENT_SIGNATURE_BYTES)}}`,
} as const

const END = '# ---\n'
const PATTERN = new RegExp(
  `^${MAGIC}${FORMAT}\\n${NOTICE.replaceAll('.', '\\.')}\\n${Object.entries(HEADER)
    .map(([key, form]) => `# ${key} = (${form})\\n`)
    .join('')}${END}`,
)
/** More than any header has. */
const MAX_HEADER = 16 * 1024

const sha256Of = (text: Uint8Array): Buffer => createHash('sha256').update(text).digest()

/** The bytes of base64url in its only spelling, or null. */
const decoded = (text: string): Uint8Array | null => {
  const bytes = Buffer.from(text, 'base64url')
  return bytes.toString('base64url') === text ? bytes : null
}

const malformed = (head: string): string => {
  const [, format] = /^# x0x-acl-bundle v([1-9][0-9]{0,5})\n/.exec(head) ?? []
  if (format !== undefined && Number(format) > FORMAT) return laterVersion(Number(format), FORMAT)
  if (head.slice(0, head.indexOf('\n')).endsWith('\r')) return 'the lines of the bundle end in CR LF: a tool has changed them'
  return 'the header of the bundle is damaged'
}

const isBundle = (bytes: Uint8Array): boolean => Buffer.from(bytes.subarray(0, MAGIC.length)).toString('latin1') === MAGIC

/** Reads the header of a bundle without verifying it. Null for a file that is not a bundle. A text states the problem. */
export const readAclBundle = (bytes: Uint8Array): AclBundle | string | null => {
  if (!isBundle(bytes)) return null
  const head = Buffer.from(bytes.subarray(0, MAX_HEADER)).toString('latin1')
  const [header = '', version, signer = '', key = '', signed = ''] = PATTERN.exec(head) ?? []
  const [publicKey, signature] = [decoded(key), decoded(signed)]
  if (header === '' || publicKey === null || signature === null || !Number.isSafeInteger(Number(version))) return malformed(head)
  const text = bytes.subarray(header.length)
  return { version: Number(version), signer, publicKey, signature, text, sha256: sha256Of(text).toString('hex') }
}

/** Verifies a bundle, and returns its signature. Null for a file that is not a bundle. A text states the problem. */
export const verifyAclBundle = async (bytes: Uint8Array): Promise<AclSignature | string | null> => {
  const bundle = readAclBundle(bytes)
  if (bundle === null || typeof bundle === 'string') return bundle
  const { version, signer, publicKey, signature, sha256 } = bundle
  await loadPrimitives()
  if (agentIdOf(publicKey) !== signer) return 'the public key of the bundle is not that of its signer'
  const body = aclStatement.encode({ version: FORMAT, acl_version: version, acl_sha256: Buffer.from(sha256, 'hex') })
  if (!verifyAgent(publicKey, ACL_BUNDLE_DOMAIN, body, signature))
    return 'the signature does not fit: version or text of the bundle were changed after it was signed'
  return { version, signer, sha256 }
}

/** Signs the hash of a text. The text itself can be longer than a request to a daemon. */
export const signAcl = async (signer: AgentSigner, version: number, sha256: Uint8Array): Promise<Uint8Array> =>
  signer.sign(ACL_BUNDLE_DOMAIN, aclStatement.encode({ version: FORMAT, acl_version: version, acl_sha256: sha256 }))

/** The part to sign of an ACL, or of a bundle whose text may have been changed. A text states the problem of the header. */
export const signableText = (bytes: Uint8Array): Uint8Array | string => {
  const bundle = readAclBundle(bytes)
  return bundle === null ? bytes : typeof bundle === 'string' ? bundle : bundle.text
}

/** The bundle of a text and its signature. */
export const writeAclBundle = (
  text: Uint8Array,
  { version, signer, publicKey, signature }: Pick<AclBundle, 'version' | 'signer' | 'publicKey' | 'signature'>,
): Buffer => {
  const values: Readonly<Record<keyof typeof HEADER, string>> = {
    version: String(version),
    signer,
    public_key: Buffer.from(publicKey).toString('base64url'),
    signature: Buffer.from(signature).toString('base64url'),
  }
  const lines = Object.entries(values).map(([key, value]) => `# ${key} = ${value}\n`)
  return Buffer.concat([Buffer.from(`${MAGIC}${FORMAT}\n${NOTICE}\n${lines.join('')}${END}`), text])
}
