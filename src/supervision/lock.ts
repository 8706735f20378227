import { open, readFile, rm, stat } from 'node:fs/promises'
import type * as Sqlite from 'node:sqlite'
import { AppError, errnoOf, errorText, isAppError } from '../base/errors.ts'
import { writeFileAtomic } from '../base/files.ts'
import { type ProcessIdentity, identityFrom, identityOf, identityText, processState } from '../base/process-info.ts'
import type { Startable } from '../base/startable.ts'
import { answers } from '../base/unix-sockets.ts'

/** Writes the process ID and start time of the lock's holder, for other programs and the next start. */
export const writePidFile = async (path: string, pid: number): Promise<void> => {
  await writeFileAtomic(path, `${identityText(identityOf(pid), ' ')}\n`, 0o600)
}

/** Null if the file is missing or invalid. */
export const readPidFile = async (path: string): Promise<ProcessIdentity | null> => {
  const text = await readFile(path, 'utf8').catch(() => '')
  return text.endsWith('\n') ? identityFrom(text.slice(0, -1)) : null
}

/** Time that a start waits for a lock, because `inspectLock` holds it for a moment. */
const LOOK_MS = 500

/** Oldest Node.js with SQLite and without a flag for it. */
const SQLITE_NODE = '22.13'

/** Opens an SQLite file. The module is loaded here, because the command line also runs on a Node.js without it. Throws `conflict` there. */
const openDatabase = (path: string, options: { readOnly?: boolean; timeout: number }): Sqlite.DatabaseSync => {
  const { getBuiltinModule }: { getBuiltinModule?: (id: string) => unknown } = process
  const sqlite = getBuiltinModule?.('node:sqlite') as typeof Sqlite | undefined
  if (sqlite === undefined)
    throw new AppError('conflict', `the lock of a data directory needs Node.js ${SQLITE_NODE} or later; this is ${process.versions.node}`)
  return new sqlite.DatabaseSync(path, options)
}

/** SQLITE_BUSY of sqlite3(3). */
const BUSY = 5

const isBusy = (error: unknown): boolean => (error as { errcode?: number }).errcode === BUSY

const WHAT = 'the data directory is in use'

export interface LockPaths {
  readonly lock: string
  readonly pid: string
}

export interface DataDirLockInit extends LockPaths {
  /** Null if a service manager listens on the socket, which it does before any daemon exists. */
  readonly apiSocket: string | null
  /** Name of the locked object for messages, by default the data directory. */
  readonly what?: string
  /** Name of the holder for messages. */
  readonly holder?: string
  /** Command that restarts a holder on this host. */
  readonly restart?: string
  /** The lock of a process that replaces a holder. While it is held, other processes do not start. Absent for that process itself. */
  readonly successor?: LockPaths
}

/** Whether a daemon holds this data directory. `unknown` means that this user may not look. `holder` comes from its pid file. */
export type LockState = { readonly kind: 'free' | 'unknown' } | { readonly kind: 'held'; readonly holder: ProcessIdentity | null }

/** Asks the kernel without changing anything. */
export const inspectLock = async ({ lock, pid }: LockPaths): Promise<LockState> => {
  try {
    await stat(lock)
  } catch (error) {
    return { kind: errnoOf(error) === 'ENOENT' ? 'free' : 'unknown' }
  }
  try {
    const database = openDatabase(lock, { readOnly: true, timeout: 0 })
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
 * Ensures one daemon per data directory by SQLite's kernel lock on an empty file. The lock ends with its process in any case, and excludes
 * all processes that see the file, also from another PID namespace. The file is never removed, because two processes that start at once
 * could then each lock one.
 */
export class DataDirLock implements Startable {
  readonly #paths: DataDirLockInit
  #database: Sqlite.DatabaseSync | null = null

  constructor(paths: DataDirLockInit) {
    this.#paths = paths
  }

  /** Throws `conflict`, with the holder if known. */
  async start(): Promise<void> {
    const { lock, pid, apiSocket } = this.#paths
    await makeFile(lock)
    const before = await readPidFile(pid)
    const database = take(lock)
    if (database === null) throw inUse(this.#paths, before, lock)
    try {
      await refuseOthers(this.#paths)
      // A file system without locks between containers or hosts may still share sockets. A user may also have removed the lock file, so
      // that this lock is of another file than the holder's.
      if (apiSocket !== null && before !== null && processState(before) !== 'gone' && (await answers(apiSocket)))
        throw inUse(this.#paths, before, apiSocket)
      await writePidFile(pid, process.pid)
    } catch (error) {
      database.close()
      throw error
    }
    this.#database = database
  }

  /** Releases only the locks of `start`. */
  async stop(): Promise<void> {
    if (this.#database === null) return
    await rm(this.#paths.pid, { force: true })
    this.#database.close()
    this.#database = null
  }
}

/** Throws `conflict` if another process is about to take this place. It holds its lock as a successor until it has this one. */
const refuseOthers = async ({ successor, lock, what = WHAT }: DataDirLockInit): Promise<void> => {
  const state = successor === undefined ? null : await inspectLock(successor)
  if (state?.kind !== 'held') return
  throw new AppError('conflict', `${what}: ${holderText(state.holder, 'x0xd')} is replacing its daemon (${lock})`, { data: { file: lock } })
}

/** An existing file is not opened, because closing it would release all locks that this process has on it (fcntl_locking(2)). */
const makeFile = async (path: string): Promise<void> => {
  const file = await open(path, 'ax', 0o600).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EEXIST') return null
    throw error
  })
  await file?.close()
}

/** Null if another process has the lock. Throws if the file system has no locks. */
const take = (path: string): Sqlite.DatabaseSync | null => {
  let database: Sqlite.DatabaseSync | null = null
  try {
    database = openDatabase(path, { timeout: LOOK_MS })
    database.exec('BEGIN EXCLUSIVE')
    return database
  } catch (error) {
    database?.close()
    if (isBusy(error)) return null
    if (isAppError(error)) throw error
    throw new AppError('conflict', `${path} cannot be locked: ${errorText(error)}`, { cause: error, data: { file: path } })
  }
}

/** The holder for a message. The PID of a daemon in another PID namespace is meaningless in this one. */
export const holderText = (holder: ProcessIdentity | null, name = 'daemon'): string =>
  holder !== null && processState(holder) === 'alive' ? `the ${name} with pid ${holder.pid}` : `a ${name} of another container or host`

const inUse = ({ what = WHAT, holder: name, restart }: DataDirLockInit, holder: ProcessIdentity | null, file: string): AppError => {
  const isHere = restart !== undefined && holder !== null && processState(holder) === 'alive'
  return new AppError('conflict', `${what} by ${holderText(holder, name)} (${file})`, {
    data: { file, ...(isHere && { next: `Try: ${restart}   (stops that one and starts this one)` }) },
  })
}
