import { open, readFile, rm, stat } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { AppError, errnoOf, errorText } from '../base/errors.ts'
import { writeFileAtomic } from '../base/files.ts'
import { type ProcessIdentity, identityFrom, identityOf, identityText, processState } from '../base/process-info.ts'
import type { Startable } from '../base/startable.ts'
import { answers } from '../base/unix-sockets.ts'
import type { DaemonConfig } from '../config/config.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'

/** Says which process is meant, for whoever looks and for the next start: its pid, and what tells it from any other. */
export const writePidFile = async (path: string, pid: number): Promise<void> => {
  await writeFileAtomic(path, `${identityText(identityOf(pid), ' ')}\n`, 0o600)
}

/** Null where there is none, or it is not ours to understand. */
export const readPidFile = async (path: string): Promise<ProcessIdentity | null> => {
  const text = await readFile(path, 'utf8').catch(() => '')
  return text.endsWith('\n') ? identityFrom(text.slice(0, -1)) : null
}

/** `inspectLock` holds the lock for a moment: a start waits so long for it. */
const LOOK_MS = 500

/** SQLITE_BUSY of sqlite3(3). */
const BUSY = 5

const isBusy = (error: unknown): boolean => (error as { errcode?: number }).errcode === BUSY

interface LockPaths {
  readonly lock: string
  readonly pid: string
}

export interface DataDirLockInit extends LockPaths {
  /** Null: a service manager listens on it, and does so before any daemon is there. */
  readonly apiSocket: string | null
  /** What is held, for the message; by default the data directory. */
  readonly what?: string
  /** What the holder is called there. */
  readonly holder?: string
  /** The command that ends a holder of this host. */
  readonly restart?: string
}

/** Whether a daemon has this data directory; `unknown`: we may not look. `holder`: who it said it was. */
export type LockState = { readonly kind: 'free' | 'unknown' } | { readonly kind: 'held'; readonly holder: ProcessIdentity | null }

/** Asks the kernel, and changes nothing. */
export const inspectLock = async ({ lock, pid }: LockPaths): Promise<LockState> => {
  try {
    await stat(lock)
  } catch (error) {
    return { kind: errnoOf(error) === 'ENOENT' ? 'free' : 'unknown' }
  }
  try {
    const database = new DatabaseSync(lock, { readOnly: true, timeout: 0 })
    try {
      database.prepare('SELECT count(*) FROM sqlite_schema').get()
    } finally {
      database.close()
    }
    return { kind: 'free' }
  } catch (error) {
    return isBusy(error) ? { kind: 'held', holder: await readPidFile(pid) } : { kind: 'unknown' }
  }
}

/**
 * One daemon per data directory: SQLite's lock on an empty file, which is the kernel's. Held by a process and not by a
 * pid, it ends with that process however it ends, and keeps out every other that sees the file, from another PID
 * namespace too. The file stays: to remove it would let two that start at once lock one each.
 */
export class DataDirLock implements Startable {
  readonly #paths: DataDirLockInit
  #database: DatabaseSync | null = null

  constructor(paths: DataDirLockInit) {
    this.#paths = paths
  }

  /** Throws `conflict`, naming the holder where it is known. */
  async start(): Promise<void> {
    const { lock, pid, apiSocket } = this.#paths
    await makeFile(lock)
    const before = await readPidFile(pid)
    const database = take(lock)
    if (database === null) throw inUse(this.#paths, before, lock)
    try {
      // A file system that carries no locks from one container or host to the other may still carry sockets. And somebody
      // may have taken the file for a leftover and removed it: then the lock that we have is another's than its holder has.
      if (apiSocket !== null && before !== null && processState(before) !== 'gone' && (await answers(apiSocket)))
        throw inUse(this.#paths, before, apiSocket)
      await writePidFile(pid, process.pid)
    } catch (error) {
      database.close()
      throw error
    }
    this.#database = database
  }

  /** Gives back what `start` has taken, and nothing else. */
  async stop(): Promise<void> {
    if (this.#database === null) return
    await rm(this.#paths.pid, { force: true })
    this.#database.close()
    this.#database = null
  }
}

/** Never opened once it exists: who closes a file gives up every lock that its process has on it (fcntl_locking(2)). */
const makeFile = async (path: string): Promise<void> => {
  const file = await open(path, 'ax', 0o600).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EEXIST') return null
    throw error
  })
  await file?.close()
}

/** Null where another has it. Throws where this file system has no locks. */
const take = (path: string): DatabaseSync | null => {
  let database: DatabaseSync | null = null
  try {
    database = new DatabaseSync(path, { timeout: LOOK_MS })
    database.exec('BEGIN EXCLUSIVE')
    return database
  } catch (error) {
    database?.close()
    if (isBusy(error)) return null
    throw new AppError('conflict', `${path} cannot be locked: ${errorText(error)}`, { cause: error, data: { file: path } })
  }
}

/** The holder, for a message: of a daemon in another PID namespace the pid means nothing here. */
export const holderText = (holder: ProcessIdentity | null, name = 'daemon'): string =>
  holder !== null && processState(holder) === 'alive' ? `the ${name} with pid ${holder.pid}` : `a ${name} of another container or host`

const inUse = (
  { what = 'the data directory is in use', holder: name, restart }: DataDirLockInit,
  holder: ProcessIdentity | null,
  file: string,
): AppError => {
  const isHere = restart !== undefined && holder !== null && processState(holder) === 'alive'
  return new AppError('conflict', `${what} by ${holderText(holder, name)} (${file})`, {
    data: { file, ...(isHere && { next: `Try: ${restart}   (ends that one and starts this one)` }) },
  })
}

/** A daemon that is asked to stop has so long. */
const HOLDER_STOP_MS = 15_000
const POLL_MS = 50

/** Asks the daemon that has the data directory to stop, and waits for it; nothing where none has. Throws `bad_acl`, before anything is ended, and `conflict`. */
export const endHolder = async ({
  exec_acl,
  exec_acl_explicit,
  paths,
}: Pick<DaemonConfig, 'exec_acl' | 'exec_acl_explicit' | 'paths'>): Promise<void> => {
  const { missing, problems } = await inspectAcl(exec_acl)
  if (problems.length > 0 && (exec_acl_explicit || !missing))
    throw new AppError('bad_acl', problems.join('\n'), { data: { file: exec_acl } })
  const before = await inspectLock(paths)
  if (before.kind !== 'held') return
  const { holder } = before
  const cannotEnd = (): string => `${paths.dir} is in use by ${holderText(holder)}, which cannot be ended from here`
  // Where the system does not tell when a process began, it may be any.
  if (holder === null || holder.started === '0' || processState(holder) !== 'alive') throw new AppError('conflict', cannotEnd())
  try {
    process.kill(holder.pid, 'SIGTERM')
  } catch (error) {
    // It may have ended a moment ago.
    if (errnoOf(error) !== 'ESRCH') throw new AppError('conflict', cannotEnd(), { cause: error })
  }
  for (let waited = 0; waited < HOLDER_STOP_MS; waited += POLL_MS) {
    if ((await inspectLock(paths)).kind === 'free') return
    await sleep(POLL_MS)
  }
  throw new AppError('conflict', `${holderText(holder)} does not end; nothing was started`)
}
