import { constants } from 'node:fs'
import { type FileHandle, open, readdir, realpath, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { type AppError, errnoOf, errorText, isAppError, isMissing } from '../../../base/errors.ts'
import { readBounded, syncDirectory, unreadable } from '../../../base/files.ts'
import { shellWord } from '../../../base/format.ts'
import { type ProcessIdentity, identityFrom, identityText, processState, ownIdentity } from '../../../base/process-info.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { FANOUT_HOSTS_PER_EVENT } from '../../../protocol/limits/fleet.ts'
import { usageError } from '../failure.ts'
import { retryLine } from './fleet-line.ts'
import { type RequestedHost, LedgerChain, type LedgerHead, type LedgerRecord, LedgerState } from './ledger-state.ts'

const SUFFIX = '.writes'

/** The process that claims `ledger` by a file of this name, or null for a file of another purpose. */
const writerOf = (name: string, ledger: string): ProcessIdentity | null =>
  name.startsWith(`${ledger}.`) && name.endsWith(SUFFIX) ? identityFrom(name.slice(ledger.length + 1, -SUFFIX.length)) : null

/**
 * Claims a ledger by a file next to it and returns the function that removes the claim. Each process claims before it looks for others, so
 * that at least one of two sees the other. It removes claims of dead processes. Throws `bad_request`.
 */
export const claimLedger = async (path: string): Promise<() => Promise<void>> => {
  // A link is resolved, because its target is the written file.
  const ledger = await realpath(path).catch(() => path)
  const claim = `${ledger}.${identityText(ownIdentity(), '-')}${SUFFIX}`
  const taken = (file: string, pid: number): Error =>
    usageError(
      `${shownLine(path)}: another x0x writes it (pid ${pid})`,
      `wait until it has ended; where none does: rm ${shellWord(shownLine(file))}`,
    )
  try {
    await (await open(claim, 'wx', 0o600)).close()
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') throw taken(claim, process.pid)
    throw usageError(`${shownLine(path)}: ${isMissing(error) ? 'no such directory' : errorText(error)}`)
  }
  // A claim that stays is recognised as that of a dead process.
  const release = async (): Promise<void> => rm(claim, { force: true }).catch(() => undefined)
  try {
    for (const name of await readdir(dirname(ledger))) {
      const writer = writerOf(name, basename(ledger))
      const file = join(dirname(ledger), name)
      if (writer === null || name === basename(claim)) continue
      if (processState(writer) !== 'gone') throw taken(file, writer.pid)
      await rm(file, { force: true })
    }
  } catch (error) {
    await release()
    throw isAppError(error) ? error : usageError(`${shownLine(path)}: ${errorText(error)}`)
  }
  return release
}

/** Size limit of a ledger that is read. It holds the largest fan-out, asked about ten times. */
export const MAX_LEDGER_BYTES = 128 * 1024 * 1024
/** Limit on its lines, most of which are short. */
export const MAX_LEDGER_LINES = 500_000

/** The contents of a ledger, with the data to continue it. */
interface ReadLedger {
  readonly state: LedgerState
  readonly chain: LedgerChain
  /** Bytes up to the last complete line. A killed process may have left a part of one. */
  readonly bytes: number
}

const broken = (path: string, line: number, why: string): AppError =>
  usageError(`${shownLine(path)}, line ${line}: ${shownLine(why)}`, 'no host was asked: the file is not a valid ledger')

/** Throws `bad_request` for a file of another kind or an inconsistent ledger. */
export const readLedger = async (path: string): Promise<ReadLedger> => {
  const bytes = await readBounded(path, { max: MAX_LEDGER_BYTES }).catch((error: unknown) => {
    throw unreadable('bad_request', path, error)
  })
  if (bytes.length === 0) throw broken(path, 1, 'it is empty')
  const end = bytes.lastIndexOf(0x0a) + 1
  const lines = bytes.toString('utf8', 0, Math.max(0, end - 1)).split('\n')
  const [state, chain] = [new LedgerState(), new LedgerChain()]
  if (lines.length > MAX_LEDGER_LINES) throw broken(path, MAX_LEDGER_LINES, 'it has more lines than a ledger may have')
  for (const [at, line] of lines.entries()) {
    try {
      state.add(chain.decode(line))
    } catch (error) {
      if (error instanceof SyntaxError) throw broken(path, at + 1, error.message)
      throw error
    }
  }
  if (!state.isWhole)
    throw broken(path, lines.length, 'it ends before its list of hosts, so no host was asked: start again with another file')
  return { state, chain, bytes: end }
}

/** Removes the claim of this process. */
type Release = () => Promise<void>

/** Records the end of each host on disk as soon as it is known. One program at a time may have it open. */
export class LedgerFile {
  readonly path: string
  readonly state: LedgerState
  readonly #file: FileHandle
  readonly #chain: LedgerChain
  readonly #release: Release
  #size: number
  #waiting = ''
  #writing: Promise<void> | null = null
  #failure: string | null = null
  #isGone = false
  #failed: () => void = () => undefined

  private constructor(
    path: string,
    components: { readonly file: FileHandle; readonly release: Release },
    { state, chain, bytes }: ReadLedger,
  ) {
    this.path = path
    this.#file = components.file
    this.#release = components.release
    this.state = state
    this.#chain = chain
    this.#size = bytes
  }

  /** A new ledger with all hosts. Throws `bad_request` if the file exists. */
  static async create(path: string, head: LedgerHead, hosts: readonly RequestedHost[]): Promise<LedgerFile> {
    const ledger = await claimed(path, async (release) => {
      const file = await open(path, 'wx', 0o600).catch(async (error: unknown) => {
        if (errnoOf(error) === 'EEXIST') throw await taken(path)
        throw usageError(`--ledger: ${shownLine(path)}: ${errorText(error)}`)
      })
      return new LedgerFile(path, { file, release }, { state: new LedgerState(), chain: new LedgerChain(), bytes: 0 })
    })
    ledger.add({ type: 'x0x_ledger', ...head })
    for (let at = 0; at < hosts.length; at += FANOUT_HOSTS_PER_EVENT)
      ledger.add({ type: 'hosts', hosts: hosts.slice(at, at + FANOUT_HOSTS_PER_EVENT) })
    await ledger.flush()
    await syncDirectory(dirname(path)).catch(() => undefined)
    return ledger
  }

  /** Continues an existing ledger. The claim comes before the read. A partial last line is cut off. */
  static async resume(path: string): Promise<LedgerFile> {
    return claimed(path, async (release) => {
      const read = await readLedger(path)
      const file = await open(path, constants.O_RDWR).catch((error: unknown) => {
        throw usageError(`${shownLine(path)}: ${errorText(error)}`)
      })
      await file.truncate(read.bytes)
      return new LedgerFile(path, { file, release }, read)
    })
  }

  /** Why it could not be written, or null. */
  get failure(): string | null {
    return this.#failure
  }

  /** Whether the ledger was removed or replaced, so that no retry can use it. */
  get isGone(): boolean {
    return this.#isGone
  }

  /** Calls `failed` when it cannot be written any more. */
  onFailure(failed: () => void): void {
    this.#failed = failed
  }

  /** Queues a record. Records of one turn share one sync. */
  add(record: LedgerRecord): void {
    this.state.add(record)
    this.#waiting += this.#chain.encode(record)
    this.#writing ??= this.#write()
  }

  /** Resolves when all is on disk, or cannot be. */
  async flush(): Promise<void> {
    while (this.#writing !== null) await this.#writing
  }

  async close(): Promise<void> {
    await this.flush()
    await this.#file.close()
    await this.#release()
  }

  async #write(): Promise<void> {
    // Records added in this turn are written together.
    await Promise.resolve()
    while (this.#waiting !== '' && this.#failure === null) {
      const bytes = Buffer.from(this.#waiting)
      this.#waiting = ''
      try {
        await this.#append(bytes)
      } catch (error) {
        this.#failure = errorText(error)
        this.#failed()
      }
    }
    this.#writing = null
  }

  async #append(bytes: Buffer): Promise<void> {
    const { nlink, size } = await this.#file.stat()
    // Writes to a removed file would succeed, but could never be read.
    this.#isGone = nlink === 0 || size !== this.#size
    if (this.#isGone) throw new Error(nlink === 0 ? 'it was removed meanwhile' : 'another program has changed it meanwhile')
    for (let done = 0; done < bytes.length;) {
      const { bytesWritten } = await this.#file.write(bytes, done, bytes.length - done, this.#size + done)
      done += bytesWritten
    }
    await this.#file.datasync()
    this.#size += bytes.length
  }
}

const claimed = async (path: string, work: (release: Release) => Promise<LedgerFile>): Promise<LedgerFile> => {
  const release = await claimLedger(path)
  try {
    return await work(release)
  } catch (error) {
    await release()
    throw error
  }
}

const taken = async (path: string): Promise<AppError> => {
  const argv = await readLedger(path).then(
    ({ state }) => state.head.argv,
    () => null,
  )
  return argv !== null
    ? usageError(`--ledger: ${shownLine(path)} is the ledger of another fan-out`, `Try: ${retryLine(path, argv)}, or another file`)
    : usageError(`--ledger: ${shownLine(path)} exists, and is not a ledger`, 'Try: a new file, such as deploy.ledger')
}
