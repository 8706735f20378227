import { write } from 'node:fs'
import { type Clock, systemClock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Environment } from '../base/runtime.ts'
import { plainText } from '../base/visible-text.ts'
import { MAX_STATUS_TEXT, WATCHDOG_MS } from '../protocol/limits/daemon.ts'
import { notifySocket } from './sockets.ts'

const US_PER_MS = 1_000
/** Words in each time that the watchdog has: the first may come late. */
const WORDS_PER_TIME = 3

export interface ServiceManagerInit {
  /** The socket to it, connected; null: nobody is told anything. */
  readonly fd: number | null
  /** After so long without a word of us it ends us; null: it asks for none, and is asked to from the start of service on. */
  readonly watchdogMs: number | null
}

/** What a program says of itself once it serves. */
export interface Service {
  /** One line. */
  status(): string
  /** False: what it vouches for is lost, and it is to be ended. */
  isWell(): boolean
}

/** How often systemd wants to hear from this process (sd_watchdog_enabled(3)); null where it does not. */
const watchdogOf = (env: Environment): number | null => {
  const us = Number(env['WATCHDOG_USEC'])
  const isOurs = env['WATCHDOG_PID'] === undefined || env['WATCHDOG_PID'] === String(process.pid)
  return isOurs && us >= US_PER_MS ? us / US_PER_MS : null
}

/**
 * Tells systemd how we are, sd_notify(3). The runtime has no unix datagram sockets; the unit lets systemd open one to
 * itself (OpenFile=), and a write to that is a message, sent by us ourselves: no other process may speak for us.
 */
export class ServiceManager {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #init: ServiceManagerInit
  #service: Service | null = null
  #told = ''
  #sent: Promise<void> = Promise.resolve()
  #failed = false

  constructor(components: { clock: Clock; log: Logger }, init: ServiceManagerInit) {
    this.#clock = components.clock
    this.#log = components.log
    this.#init = init
  }

  /** The one that started this process. */
  static here(log: Logger, env: Environment = process.env): ServiceManager {
    const fd = notifySocket()
    if (fd === null && env['NOTIFY_SOCKET'] !== undefined)
      log.warn(
        'the service manager waits for a word that cannot be said: its unit lacks OpenFile=/run/systemd/notify:x0x-notify, or under a user of number N OpenFile=/run/user/N/systemd/notify:x0x-notify (systemd 253)',
      )
    return new ServiceManager({ clock: systemClock, log }, { fd, watchdogMs: watchdogOf(env) })
  }

  /** How long what it watches may say nothing. */
  get watchdogMs(): number {
    return this.#init.watchdogMs ?? WATCHDOG_MS
  }

  /** All serves. From now on it hears of us in time, for as long as the service is well and events are worked on. */
  ready(service: Service): void {
    this.#service = service
    this.#told = service.status()
    const watchdog = this.#init.watchdogMs === null ? [`WATCHDOG_USEC=${this.watchdogMs * US_PER_MS}`] : []
    this.#send('READY=1', this.#statusLine(), ...watchdog)
    if (this.#init.fd !== null) this.#watch()
  }

  /** Files are read again; then `work` is over, and all serves. */
  async reload<T>(work: () => Promise<T>): Promise<T> {
    this.#send('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / BigInt(US_PER_MS)}`)
    try {
      return await work()
    } finally {
      this.#told = this.#service?.status() ?? ''
      this.#send('READY=1', this.#statusLine())
    }
  }

  stopping(): void {
    this.#send('STOPPING=1', 'STATUS=ends what runs, and itself')
  }

  #watch(): void {
    const service = this.#service
    this.#clock.setTimeout(() => this.#watch(), this.watchdogMs / WORDS_PER_TIME, { unref: true })
    if (service === null) return
    if (service.isWell()) this.#send('WATCHDOG=1')
    const status = service.status()
    if (status === this.#told) return
    this.#told = status
    this.#send(this.#statusLine())
  }

  #statusLine(): string {
    return `STATUS=${plainText(this.#told).slice(0, MAX_STATUS_TEXT)}`
  }

  /** One message behind the other, and none of them holds us up: systemd may be busy. */
  #send(...lines: readonly string[]): void {
    const { fd } = this.#init
    if (fd === null) return
    this.#sent = this.#sent.then(
      async () =>
        new Promise((resolve) => {
          write(fd, lines.join('\n'), (error) => {
            if (error !== null && !this.#failed) this.#log.error({ err: errorText(error) }, 'the service manager cannot be told how we are')
            this.#failed = error !== null
            resolve()
          })
        }),
    )
  }
}
