import { randomBytes } from 'node:crypto'
import { link, readdir, rm, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { AppError } from '../base/errors.ts'
import { writeFileAtomic } from '../base/files.ts'
import type { Startable } from '../base/startable.ts'
import { claimOf, encodeClaim, isAlive, readClaim, type ProcessClaim } from './process-claim.ts'

/** Two that begin at once see each other and both step back; this often they try again. */
const ATTEMPTS = 40
const STEP_BACK_MS = 25

const isClaimName = (name: string, lock: string): boolean =>
  name.startsWith(`${lock}.`) && /^[0-9a-f]{16}$/.test(name.slice(lock.length + 1))

/** The pid of the daemon that holds this data directory now, or null. */
export const lockHolder = async (path: string): Promise<number | null> => {
  const holder = await readClaim(path)
  return holder !== null && isAlive(holder) ? holder.pid : null
}

/**
 * One daemon per data directory, without a lock of the kernel's, which the runtime does not offer.
 * Each first puts down a claim of its own and then looks for others: of two, at least one sees the
 * other. Only who sees no living one goes on. What the dead left is never taken over, only removed.
 */
export class DataDirLock implements Startable {
  readonly #path: string
  readonly #token = randomBytes(8).toString('hex')

  constructor(path: string) {
    this.#path = path
  }

  /** Throws `conflict`, naming the holder. */
  async start(): Promise<void> {
    const claim = claimOf(process.pid, this.#token)
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await this.#putDown(claim)
      const rival = await this.#livingRival()
      if (rival === null) {
        await writeFileAtomic(this.#path, encodeClaim(claim), 0o600)
        return
      }
      await this.#takeBack()
      if ((await readClaim(this.#path))?.token === rival.token) throw inUse(rival, this.#path)
      await sleep(STEP_BACK_MS * (1 + Math.random()))
    }
    throw new AppError('conflict', `other daemons keep starting on the same data directory (${this.#path})`)
  }

  async stop(): Promise<void> {
    if ((await readClaim(this.#path))?.token === this.#token) await rm(this.#path, { force: true })
    await this.#takeBack()
  }

  get #ownClaim(): string {
    return `${this.#path}.${this.#token}`
  }

  /** By link(2), so that it is there whole or not at all. */
  async #putDown(claim: ProcessClaim): Promise<void> {
    const draft = `${this.#ownClaim}.new`
    try {
      await writeFile(draft, encodeClaim(claim), { mode: 0o600 })
      await link(draft, this.#ownClaim)
    } finally {
      await rm(draft, { force: true })
    }
  }

  async #takeBack(): Promise<void> {
    await rm(this.#ownClaim, { force: true })
  }

  async #livingRival(): Promise<ProcessClaim | null> {
    const directory = dirname(this.#path)
    const names = (await readdir(directory)).filter((name) => isClaimName(name, basename(this.#path)))
    for (const name of names) {
      const path = join(directory, name)
      const claim = await readClaim(path)
      if (claim?.token === this.#token) continue
      if (claim !== null && isAlive(claim)) return claim
      await rm(path, { force: true })
    }
    return null
  }
}

const inUse = (holder: ProcessClaim, path: string): AppError =>
  new AppError('conflict', `the data directory is in use by the daemon with pid ${holder.pid} (${path})`, {
    data: { pid: holder.pid, file: path },
  })
