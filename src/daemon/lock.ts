import { randomBytes } from 'node:crypto'
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises'

import { AppError } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'

/** Who holds a data directory: `started` tells a process from a later one with the same pid. */
interface Holder {
  readonly pid: number
  readonly started: string
}

/** Boot id and start time in clock ticks (proc(5)); empty where the system does not tell. */
const startOf = async (pid: number): Promise<string> => {
  try {
    const [boot, stat] = await Promise.all([readFile('/proc/sys/kernel/random/boot_id', 'utf8'), readFile(`/proc/${pid}/stat`, 'utf8')])
    return `${boot.trim()} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`
  } catch {
    return ''
  }
}

const isAlive = async (holder: Holder): Promise<boolean> => {
  try {
    process.kill(holder.pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false
  }
  return holder.started === '' || (await startOf(holder.pid)) === holder.started
}

const parseHolder = (text: string): Holder | null => {
  const [pid = '', ...started] = text.trim().split(' ')
  return /^[1-9][0-9]{0,9}$/.test(pid) ? { pid: Number(pid), started: started.join(' ') } : null
}

const readText = async (path: string): Promise<string | null> => readFile(path, 'utf8').catch(() => null)

/** How often a lock that vanished or was taken over in between is looked at again. */
const ATTEMPTS = 20

/** The pid of the daemon that holds this data directory now, or null. */
export const lockHolder = async (path: string): Promise<number | null> => {
  const holder = parseHolder((await readText(path)) ?? '')
  return holder !== null && (await isAlive(holder)) ? holder.pid : null
}

/**
 * One daemon per data directory. The lock is a file made by link(2), so it appears whole or not at
 * all; one whose owner died is moved away first and looked at again, so that of two daemons that
 * find it only one goes on.
 */
export class DataDirLock implements Startable {
  readonly #path: string
  #content: string | null = null

  constructor(path: string) {
    this.#path = path
  }

  /** Throws `conflict`, naming the holder. */
  async start(): Promise<void> {
    const content = `${process.pid} ${await startOf(process.pid)}\n`
    const own = `${this.#path}.${randomBytes(6).toString('hex')}`
    await writeFile(own, content, { flag: 'wx', mode: 0o600 })
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (await this.#tryLink(own)) {
          this.#content = content
          return
        }
        await this.#clearDead()
      }
    } finally {
      await rm(own, { force: true })
    }
    throw new AppError('conflict', `${this.#path} keeps changing; is another daemon starting?`)
  }

  async stop(): Promise<void> {
    if (this.#content === null) return
    if ((await readText(this.#path)) === this.#content) await rm(this.#path, { force: true })
    this.#content = null
  }

  async #tryLink(own: string): Promise<boolean> {
    try {
      await link(own, this.#path)
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
      throw error
    }
  }

  async #clearDead(): Promise<void> {
    const text = await readText(this.#path)
    if (text === null) return
    const holder = parseHolder(text)
    if (holder !== null && (await isAlive(holder))) {
      throw new AppError('conflict', `the data directory is in use by the daemon with pid ${holder.pid} (${this.#path})`, {
        data: { pid: holder.pid, file: this.#path },
      })
    }
    const aside = `${this.#path}.${randomBytes(6).toString('hex')}`
    try {
      await rename(this.#path, aside)
    } catch {
      return
    }
    // Somebody may have replaced the dead lock between our look and our move: then give it back.
    if ((await readText(aside)) !== text) await link(aside, this.#path).catch(() => undefined)
    await rm(aside, { force: true })
  }
}
