import { readFile, realpath, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { AppError, isMissing } from '../base/errors.ts'
import { readPrivateFile } from '../base/file-permissions.ts'
import { readBounded, unreadable, writeFileAtomic } from '../base/files.ts'
import { standardErrorLog } from '../base/log-output.ts'
import type { Environment } from '../base/runtime.ts'
import { shownLine } from '../base/visible-text.ts'
import type { DaemonConfig } from '../config/config.ts'
import { initialAcl } from '../config/first-files.ts'
import type { EnrolledAcl, HostEnrolmentInit } from '../executor/enrolment/host-enrolment.ts'
import { isUntouched, withEntries } from '../policy/mesh/enrolled-entries.ts'
import { type LoadAclInit, type LoadedAcl, loadAcl } from '../policy/mesh/load-acl.ts'
import { MAX_ENROL_TOKEN } from '../protocol/limits/enrolment.ts'
import { asCopied } from '../protocol/text.ts'
import { nameProblem } from '../trust/contact.ts'
import { decodeEnrolToken } from '../trust/enrolment-token.ts'
import { type PendingEnrolment, enrolTokenDigest, loadEnrolment, saveEnrolment } from '../trust/pending-enrolment.ts'

/** Name of the credential of systemd that holds a token. */
const CREDENTIAL = 'x0x-enrol'

export interface EnrolFlags {
  /** The token, or @ and the file that holds it. */
  readonly enrol: string | null
  readonly enrolAs: string | null
  readonly append: boolean
}

/** The token of `--enrol`, X0X_ENROL or the credential x0x-enrol, in this order, or null. */
const givenToken = async ({ enrol }: EnrolFlags, env: Environment): Promise<string | null> => {
  const given = enrol ?? env['X0X_ENROL'] ?? null
  if (given !== null) return asCopied(given.startsWith('@') ? await tokenIn(given.slice(1)) : given)
  const directory = env['CREDENTIALS_DIRECTORY']
  if (directory === undefined) return null
  try {
    return asCopied((await readPrivateFile(join(directory, CREDENTIAL), { groupMayRead: true })).toString('utf8'))
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return null
    throw error
  }
}

const tokenIn = async (path: string): Promise<string> => {
  try {
    return (await readBounded(path, { max: 2 * MAX_ENROL_TOKEN, pipes: true })).toString('utf8')
  } catch (error) {
    throw unreadable('bad_enrolment', path, error, `the enrolment token ${path}`)
  }
}

/**
 * Notes the token that `--init` was given, so that the daemon has this machine enrolled. A token that was used already is left alone, so
 * that a unit can give it at each start. Throws `bad_enrolment`, and `conflict` if the ACL was edited.
 */
export const beginEnrolment = async (config: DaemonConfig, flags: EnrolFlags, env: Environment): Promise<void> => {
  const token = await givenToken(flags, env)
  if (token === null) return
  const { hasAcl } = decodeEnrolToken(token)
  const token_sha256 = enrolTokenDigest(token)
  const before = await loadEnrolment(config.paths.enrolment)
  const { enrolAs: name, append } = flags
  const problem = name === null ? null : nameProblem(name)
  if (problem !== null) throw new AppError('bad_enrolment', `--enrol-as: ${problem}`)
  if (before?.token_sha256 === token_sha256) {
    // The options may be the remedy for a start that failed.
    const isChanged = before.state === 'pending' && (append || name !== null)
    if (isChanged) await saveEnrolment(config.paths.enrolment, { ...before, name: name ?? before.name, append: append || before.append })
    return
  }
  if (hasAcl && config.acl_signers.length > 0)
    throw new AppError(
      'conflict',
      'the token brings ACL entries, and acl_signers of this host accepts only signed ACLs: use a token without entries',
    )
  if (hasAcl && !append) assertInitial(config, await contentOf(config.exec_acl), '')
  await saveEnrolment(config.paths.enrolment, { state: 'pending', token, token_sha256, name, append, attempt: null })
}

const contentOf = async (path: string): Promise<string | null> => {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (isMissing(error)) return null
    throw unreadable('bad_acl', path, error)
  }
}

const assertInitial = (
  { exec_acl: path, paths }: Pick<DaemonConfig, 'exec_acl' | 'paths'>,
  content: string | null,
  entries: string,
): void => {
  if (content !== null && isUntouched(content, initialAcl(paths), entries)) return
  throw new AppError(
    'conflict',
    `the token brings ACL entries, and ${path} ${content === null ? 'is missing' : 'is not as --init made it'}`,
    {
      data: { file: path, next: 'Try: add --append, so that the entries are added at its end' },
    },
  )
}

type AclSettings = Pick<DaemonConfig, 'exec_acl' | 'paths'>

/** The ACL file of this daemon, to which an enrolment adds entries. */
export class EnrolledAclFile implements EnrolledAcl {
  readonly #load: (init: Pick<LoadAclInit, 'path'>) => Promise<LoadedAcl>
  readonly #config: AclSettings
  readonly #append: boolean

  /** `load` loads an ACL as at the start of the daemon. */
  constructor(components: { load(init: Pick<LoadAclInit, 'path'>): Promise<LoadedAcl> }, init: { config: AclSettings; append: boolean }) {
    this.#load = async (file) => components.load(file)
    this.#config = init.config
    this.#append = init.append
  }

  async add(entries: string): Promise<LoadedAcl> {
    const { exec_acl: path, paths } = this.#config
    const content = await contentOf(path)
    if (!this.#append) assertInitial(this.#config, content, entries)
    const next = withEntries(content ?? initialAcl(paths), entries)
    if (next !== content) {
      await this.#check(next)
      // The file may be a link, which stays.
      await writeFileAtomic(content === null ? path : await realpath(path), next)
    }
    return this.#load({ path })
  }

  /** Throws `bad_acl` if the daemon could not start with this ACL. */
  async #check(text: string): Promise<void> {
    const candidate = `${this.#config.paths.execAcl}.enrolled`
    try {
      await writeFileAtomic(candidate, text)
      await this.#load({ path: candidate })
    } finally {
      await rm(candidate, { force: true })
    }
  }
}

/** Whether this machine was enrolled by an operator. */
export const isEnrolled = async ({ paths }: Pick<DaemonConfig, 'paths'>): Promise<boolean> =>
  (await loadEnrolment(paths.enrolment))?.state === 'done'

/** The enrolment that a daemon must still complete, or null. Throws `bad_enrolment`. */
export const pendingEnrolment = async ({ paths }: Pick<DaemonConfig, 'paths'>): Promise<PendingEnrolment | null> => {
  const pending = await loadEnrolment(paths.enrolment)
  if (pending === null || pending.state === 'done') return null
  decodeEnrolToken(pending.token ?? '')
  return pending
}

/** Services of the host's side of an enrolment. */
export const hostEnrolment = (
  { paths, exec_acl, display_name: displayName }: DaemonConfig,
  pending: PendingEnrolment,
  judge: Pick<LoadAclInit, 'judge' | 'signing'>,
): HostEnrolmentInit => {
  const load = async (file: Pick<LoadAclInit, 'path'>): Promise<LoadedAcl> =>
    loadAcl({ ...judge, ...file, explicit: true, dataDir: paths.dir })
  const acl = new EnrolledAclFile({ load }, { config: { exec_acl, paths }, append: pending.append })
  const say = (line: string): void => standardErrorLog().write(`x0xd: ${shownLine(line)}\n`)
  return { pending, path: paths.enrolment, displayName, acl, say }
}
