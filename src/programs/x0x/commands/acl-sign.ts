import { createHash } from 'node:crypto'
import { AppError, isAppError } from '../../../base/errors.ts'
import { writeFileAtomic } from '../../../base/files.ts'
import { readToml } from '../../../base/toml.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { operate } from '../../../clients/operator.ts'
import { type AclSignature, readAclBundle, signableText, verifyAclBundle, writeAclBundle } from '../../../policy/mesh/acl-bundle.ts'
import { readAcl } from '../../../policy/mesh/read-acl.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printJson, printNotice } from '../print.ts'

/** Everybody may read a signed ACL; the signature protects it. */
const BUNDLE_MODE = 0o644

/** Digits of a time in a version, to the second. */
const TIME_DIGITS = 14

/** The time as a version, such as 20261129103000, which grows without a record of earlier ones. */
const timeVersion = (now: Date): number => Number(now.toISOString().replaceAll(/\D/g, '').slice(0, TIME_DIGITS))

const versionOf = (text: string | null): number => {
  if (text === null) return timeVersion(new Date())
  const version = Number(text)
  if (/^[1-9][0-9]{0,15}$/.test(text) && Number.isSafeInteger(version)) return version
  throw usageError(`--version must be a whole number from 1 to ${Number.MAX_SAFE_INTEGER}, not ${JSON.stringify(text)}`)
}

const BYTE_ORDER_MARK = Buffer.from('\ufeff')

/** The text to sign. Throws `bad_acl` for a text that no host could load. Programs and directories of the hosts are not checked. */
const aclText = async (file: string): Promise<Uint8Array> => {
  const document = await readToml(file, 'bad_acl', { bigints: true, pipes: true }).catch((error: unknown) => {
    throw isAppError(error, 'not_found') ? new AppError('bad_acl', error.message, { cause: error, data: error.data }) : error
  })
  const { acl, problems } = readAcl(document)
  if (problems.length > 0) throw new AppError('bad_acl', problems.join('\n'), { data: { file, problems } })
  if (acl === null) throw new AppError('bad_acl', `${file}: has no [exec]`, { data: { file } })
  const text = signableText(document.bytes)
  if (typeof text === 'string') throw new AppError('bad_acl', `${file}: ${text}`)
  if (BYTE_ORDER_MARK.equals(text.subarray(0, BYTE_ORDER_MARK.length)))
    throw new AppError('bad_acl', `${file}: begins with a byte order mark; save it without one`)
  return text
}

/** Throws `bad_acl` if hosts that have the earlier file would refuse the new one. */
const assertNewer = async (out: string, version: number): Promise<void> => {
  const earlier = await readToml(out, 'bad_acl').catch(() => null)
  const bundle = earlier === null ? null : readAclBundle(earlier.bytes)
  if (bundle === null || typeof bundle === 'string' || bundle.version < version) return
  throw new AppError('bad_acl', `${out} has version ${bundle.version}, and hosts that have it would refuse version ${version}`, {
    data: { next: `Try: --version ${bundle.version + 1}` },
  })
}

interface Signed {
  readonly agent_id: string
  readonly public_key: string
  readonly signature: string
}

const bytesOf = (text: string): Buffer => Buffer.from(text, 'base64url')

/** Lets the daemon sign the text. Throws `internal` for a signature that no host would accept. */
const signed = async (context: CliContext, text: Uint8Array, version: number): Promise<{ bundle: Buffer; signature: AclSignature }> => {
  const acl_sha256 = createHash('sha256').update(text).digest('hex')
  const { agent_id, public_key, signature } = await operate<Signed>(context, '/acl/sign', { acl_version: version, acl_sha256 })
  const parts = { version, signer: agent_id, publicKey: bytesOf(public_key), signature: bytesOf(signature) }
  const bundle = writeAclBundle(text, parts)
  const verified = await verifyAclBundle(bundle)
  if (verified === null || typeof verified === 'string') throw new AppError('internal', `the daemon made a wrong signature: ${verified}`)
  return { bundle, signature: verified }
}

/** `x0x acl sign FILE [--version N] [--out BUNDLE]`. */
export const runAclSign = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [[file = ''], out, version] = [line.words, line.value('out'), versionOf(line.ownValue('version'))]
  const text = await aclText(file)
  if (out !== null) await assertNewer(out, version)
  const { bundle, signature } = await signed(context, text, version)
  if (out !== null) await writeFileAtomic(out, bundle, BUNDLE_MODE)
  if (context.json) {
    const { signer: agent_id, sha256: acl_sha256 } = signature
    const place = out === null ? { acl: bundle.toString() } : { file: out }
    await printJson(context, { ok: true, acl_version: version, agent_id, acl_sha256, ...place })
    return 0
  }
  if (out === null) await write(context.stdout, bundle)
  await printNotice(context, `signed version ${version} by agent ${signature.signer}`)
  if (out !== null) await printNotice(context, shownLine(`on each host, place ${out}, then run: x0xd --check`))
  return 0
}
