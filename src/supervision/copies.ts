import { rm } from 'node:fs/promises'
import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { writeFileAtomic } from '../base/files.ts'
import type { Logger } from '../base/log.ts'
import type { Startable, StartableEntry } from '../base/startable.ts'
import type { ExecCounters } from '../executor/exec-counters.ts'
import { SyslogCopy } from '../journal/syslog.ts'
import type { AclSigning } from '../policy/mesh/accepted-acl.ts'
import type { LoadedAcl } from '../policy/mesh/load-acl.ts'
import { DatagramSocket, checkDatagrams } from '../process/datagram-sender.ts'

/** Pause before the version of a signed ACL is written again, for example after the disk was full. */
const REMEMBER_AGAIN_MS = 60_000

interface AclCopyComponents {
  readonly clock: Clock
  readonly log: Logger
  /** Null if the host names no signers. */
  readonly signing: Pick<AclSigning, 'remember'> | null
}

/**
 * The ACL in force as a file, which `x0x acl diff` compares with the configured file. Private to this user. Also remembers the version of a
 * signed one, so that no later start takes an older one.
 */
export class AclCopy implements Startable {
  readonly #log: Logger
  readonly #clock: Clock
  readonly #signing: Pick<AclSigning, 'remember'> | null
  readonly #path: string
  readonly #loaded: () => LoadedAcl
  /** Set while the copy or the version could not be written. */
  #again: Timer | null = null

  constructor(components: AclCopyComponents, init: { readonly path: string; readonly loaded: () => LoadedAcl }) {
    this.#log = components.log
    this.#clock = components.clock
    this.#signing = components.signing
    this.#path = init.path
    this.#loaded = init.loaded
  }

  /** Writes the content that was read at start, because the file may have changed. Without an ACL file, removes the copy. */
  async start(): Promise<void> {
    const { bytes, signature } = this.#loaded()
    await this.#signing?.remember(signature)
    await (bytes === null ? this.#remove() : writeFileAtomic(this.#path, bytes))
  }

  /**
   * Writes the ACL after a reload. On failure the copy is removed, because the earlier content is out of force, and it is tried again. An
   * older version could take effect at the next start otherwise.
   */
  async renew(): Promise<void> {
    this.#again?.cancel()
    this.#again = null
    try {
      await this.start()
    } catch (error) {
      this.#log.error({ err: errorText(error) }, 'the ACL in force could not be copied, or its version could not be saved')
      await this.#remove()
      this.#again = this.#clock.setTimeout(() => void this.renew(), REMEMBER_AGAIN_MS, { unref: true })
    }
  }

  /** Removes the copy. A version that could not be written is tried for the last time. */
  async stop(): Promise<void> {
    if (this.#again !== null) await this.renew()
    this.#again?.cancel()
    this.#again = null
    await this.#remove()
  }

  async #remove(): Promise<void> {
    await rm(this.#path, { force: true })
  }
}

export interface JournalCopy {
  /** As in `JournalComponents`. */
  readonly onWritten: ((line: Uint8Array) => void) | null
  /** Start these before the journals, so that they stop after them. */
  readonly entries: readonly StartableEntry[]
}

/** Copies this process's audit log lines to the syslog at this socket. Null means no copy. Throws `bad_config`. */
export const copyToSyslog = (components: { clock: Clock; log: Logger; counters: ExecCounters }, path: string | null): JournalCopy => {
  if (path === null) return { onWritten: null, entries: [] }
  checkDatagrams()
  const { clock, log, counters } = components
  const socket = new DatagramSocket({ clock }, { path, onLost: (count, why) => copy.lost(count, why) })
  const copy = new SyslogCopy({ clock, log, sender: socket, counted: (lost) => counters.count('syslog_lost', lost) }, { path })
  return { onWritten: copy.take, entries: [{ name: 'copy for syslog', startable: socket }] }
}
