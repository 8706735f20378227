import { type AgentId, isHexId, shortId } from '../../protocol/ids.ts'
import { type JsonPath, fileOf, readJsonFile, refuse, textOf, within, writeJsonFile } from '../../trust/json-file.ts'
import { Revocations } from '../../trust/revocations.ts'
import type { AclSignature } from './acl-bundle.ts'

const FILE_VERSION = 1

type Accepted = Pick<AclSignature, 'version' | 'sha256'>

const acceptedOf = (value: unknown, file: string): Accepted => {
  const place: JsonPath = { file, code: 'bad_acl', path: '' }
  const { acl_version: version, acl_sha256 } = fileOf(value, FILE_VERSION, ['acl_version', 'acl_sha256'], place)
  const sha256 = textOf(acl_sha256, within(place, 'acl_sha256'))
  if (typeof version !== 'number' || !Number.isSafeInteger(version) || version < 1)
    return refuse(within(place, 'acl_version'), 'expected a whole number')
  if (!isHexId(sha256)) return refuse(within(place, 'acl_sha256'), 'expected 64 hex digits')
  return { version, sha256 }
}

export interface AclSigningInit {
  /** Agents whose signature this host accepts. */
  readonly signers: readonly AgentId[]
  /** The file that remembers the last accepted version. */
  readonly path: string
  readonly revocations: Pick<Revocations, 'of'>
}

/** The rules for ACLs of a host that names signers: who may sign, and that no version goes back. */
export class AclSigning {
  readonly #init: AclSigningInit
  #accepted: Accepted | null

  private constructor(init: AclSigningInit, accepted: Accepted | null) {
    this.#init = init
    this.#accepted = accepted
  }

  /** Null without signers. Throws `bad_acl` if the remembered version cannot be read, because an older ACL could then pass. */
  static async open(init: AclSigningInit): Promise<AclSigning | null> {
    if (init.signers.length === 0) return null
    const value = await readJsonFile(init.path, 'bad_acl')
    return new AclSigning(init, value === undefined ? null : acceptedOf(value, init.path))
  }

  /** Why this host does not accept the ACL, or null. `signature` is null for a file without a valid one. */
  problem(signature: AclSignature | null): string | null {
    if (signature === null) return `is not signed, and acl_signers requires a signature (x0x acl sign)`
    const { version, signer, sha256 } = signature
    const { signers, path, revocations } = this.#init
    const accepted = this.#accepted
    if (!signers.includes(signer)) return `agent ${signer} signed it, which acl_signers does not name`
    if (accepted?.version === version && accepted.sha256 === sha256) return null
    if (revocations.of(signer).revoked) return `agent ${signer} signed it, and has revoked its key`
    if (accepted === null || version > accepted.version) return null
    return version === accepted.version
      ? `has version ${version}, but not the text that was accepted as version ${version} (${path})`
      : `has version ${version}, and this host has accepted version ${accepted.version} (${path})`
  }

  /** Remembers the version of an ACL that takes effect. Resolves when it is on disk. */
  async remember(signature: AclSignature | null): Promise<void> {
    if (signature === null || (this.#accepted !== null && signature.version <= this.#accepted.version)) return
    const { version, sha256 } = signature
    await writeJsonFile(this.#init.path, { version: FILE_VERSION, acl_version: version, acl_sha256: sha256 })
    this.#accepted = { version, sha256 }
  }
}

/** What `inspectAcl` needs of the rules. */
export type AclSignatureRule = Pick<AclSigning, 'problem'>

/** Rule for the file of another host: one of these agents must have signed it. Only that host knows which version it accepted last. */
export const signedBy = (signers: readonly AgentId[]): AclSignatureRule => ({
  problem: (signature) => {
    if (signature === null) return 'is not signed, and --signer requires a signature (x0x acl sign)'
    return signers.includes(signature.signer) ? null : `agent ${signature.signer} signed it, which --signer does not name`
  },
})

/** The rules as the files of a data directory have them, for programs other than the daemon. */
export const aclSigningOf = async ({
  acl_signers: signers,
  paths,
}: {
  readonly acl_signers: readonly AgentId[]
  readonly paths: { readonly aclVersion: string; readonly revocations: string }
}): Promise<AclSigning | null> => {
  if (signers.length === 0) return null
  const revocations = new Revocations({ path: paths.revocations })
  await revocations.load()
  return AclSigning.open({ signers, path: paths.aclVersion, revocations })
}

/** Version and signer for a line of text. */
export const signatureText = ({ version, signer }: AclSignature): string => `version ${version}, signed by agent ${shortId(signer)}`
