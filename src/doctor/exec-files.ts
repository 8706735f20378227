import { constants } from 'node:fs'
import { access, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { errorText } from '../base/errors.ts'
import { shellWord } from '../base/format.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'
import { ownName } from '../supervision/network-user.ts'
import { type Finding, fail, ok } from './findings.ts'

const isThere = async (path: string): Promise<boolean> => (await stat(path).catch(() => null)) !== null

const nearestExisting = async (directory: string): Promise<string> =>
  (await isThere(directory)) || dirname(directory) === directory ? directory : nearestExisting(dirname(directory))

const makeDirectory = (directory: string): string => `sudo install -d -o ${ownName()} -m 0700 ${shellWord(directory)}`

/** Whether this user could enter the directory or create files in it. */
const mayUse = async (directory: string, mode: number): Promise<string | null> => {
  try {
    if (!(await stat(directory)).isDirectory()) return `${directory} is not a directory`
    await access(directory, mode | constants.X_OK)
    return null
  } catch (error) {
    return errorText(error)
  }
}

interface JournalKind {
  readonly topic: string
  /** What does not work without it. */
  readonly loss: string
  /** The remedy if its directory is not writable. */
  readonly elsewhere: string
}

const RUNS: JournalKind = {
  topic: 'audit log',
  loss: 'every request would be denied',
  elsewhere: 'let audit_log_path name a file in a directory that this user may write',
}

const OF_REXD: JournalKind = {
  topic: 'REXD audit log',
  loss: 'every session would be refused',
  elsewhere: 'let audit.path name a file in a directory that this user may write',
}

const ASKED: JournalKind = {
  topic: 'request log',
  loss: 'this agent could not send requests',
  elsewhere: 'let this user write its data directory',
}

const OTHERS_MAY_WRITE = 0o022

const checkJournal = async (path: string, { topic, loss, elsewhere }: JournalKind): Promise<Finding> => {
  const why = (reason: string): string => `${path} cannot be written: ${reason}; ${loss}`
  const info = await stat(path).catch(() => null)
  if (info !== null) {
    if (!info.isFile()) return fail(topic, why('it is not a regular file'), elsewhere)
    if ((info.mode & OTHERS_MAY_WRITE) !== 0) return fail(topic, why('others may write it'), `chmod go-w ${shellWord(path)}`)
    const reason = await access(path, constants.W_OK).then(() => null, errorText)
    return reason === null ? ok(topic, path) : fail(topic, why(reason), `sudo chown ${ownName()} ${shellWord(path)}`)
  }
  const directory = dirname(path)
  const existing = await nearestExisting(directory)
  const reason = await mayUse(existing, constants.W_OK)
  if (reason === null) return ok(topic, existing === directory ? path : `${path}; its directory will be made at the first start`)
  // No chmod for a directory that others use already, because they would lose access.
  const remedy = existing === directory ? elsewhere : makeDirectory(directory)
  return fail(topic, why(reason), remedy)
}

const checkDirectory = async (directory: string): Promise<Finding> => {
  const reason = await mayUse(directory, 0)
  if (reason === null) return ok('default_cwd', directory)
  const remedy = (await isThere(directory)) ? 'let default_cwd name a directory that this user may enter' : makeDirectory(directory)
  return fail('default_cwd', `nothing can start in ${directory}: ${reason}`, remedy)
}

/** Runs need a journal that this user can write and a directory to start in. */
export const checkExecFiles = async (aclPath: string): Promise<Finding[]> => {
  const { acl } = await inspectAcl(aclPath)
  if (acl === null || acl.audit_log_path === null) return [ok('audit log', 'none is configured, and none is needed while exec is disabled')]
  return [await checkJournal(acl.audit_log_path, RUNS), ...(acl.default_cwd === null ? [] : [await checkDirectory(acl.default_cwd)])]
}

/** Requests to other agents need the request log, with or without an ACL. */
export const checkOutgoing = async (path: string): Promise<Finding> => checkJournal(path, ASKED)

/** Sessions of REXD need a journal that this user can write. */
export const checkRexdJournal = async (path: string): Promise<Finding> => checkJournal(path, OF_REXD)
