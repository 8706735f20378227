import { write } from 'node:fs'
import { type Clock, systemClock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Environment } from '../base/runtime.ts'
import { plainText } from '../base/visible-text.ts'
import { MAX_STATUS_TEXT, WATCHDOG_MS } from '../protocol/limits/daemon.ts'
import { notifySocket } from './sockets.ts'

const US_PER_MS = 1_000
/** Time to stop after a drain: that of the units without one. */
const STOP_RESERVE_MS = 15_000
/** Notifications in each watchdog interval, because the first may be late. */
const WORDS_PER_TIME = 3

export interface ServiceManagerInit {
  /** Connected socket of systemd, or null if absent. */
  readonly fd: number | null
  /**
   * Interval after which systemd ends this process without a notification. Null means that no watchdog is configured, and it is requested when the
   * service starts.
   */
  readonly watchdogMs: number | null
}

/** State of a program that serves. */
export interface Service {
  /** One line of text. */
  status(): string
  /** False if a part that it depends on is lost, so that the process should be ended. */
  isWell(): boolean
}

/** Watchdog interval (sd_watchdog_enabled(3)), or null. */
const watchdogOf = (env: Environment): number | null => {
  const us = Number(env['WATCHDOG_USEC'])
  const isOurs = env['WATCHDOG_PID'] === undefined || env['WATCHDOG_PID'] === String(process.pid)
  return isOurs && us >= US_PER_MS ? us / US_PER_MS : null
}

/**
 * Notifies systemd about the service, sd_notify(3). The runtime has no unix datagram sockets. The unit opens one to systemd (OpenFile=),
 * and a write to it is a message from this process itself, as systemd requires.
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

  static here(log: Logger, env: Environment = process.env): ServiceManager {
    const fd = notifySocket()
    if (fd === null && env['NOTIFY_SOCKET'] !== undefined)
      log.warn(
        'the service manager waits for a notification that x0xd cannot send: its unit lacks OpenFile=/run/systemd/notify:x0x-notify, or under a user of number N OpenFile=/run/user/N/systemd/notify:x0x-notify (systemd 253)',
      )
    return new ServiceManager({ clock: systemClock, log }, { fd, watchdogMs: watchdogOf(env) })
  }

  /** Time that a watched process may be silent. */
  get watchdogMs(): number {
    return this.#init.watchdogMs ?? WATCHDOG_MS
  }

  /** The service is ready. From now on, notifications are sent in time while it is well and events are handled. */
  ready(service: Service): void {
    this.#service = service
    this.#told = service.status()
    const watchdog = this.#init.watchdogMs === null ? [`WATCHDOG_USEC=${this.watchdogMs * US_PER_MS}`] : []
    this.#send('READY=1', this.#statusLine(), ...watchdog)
    if (this.#init.fd !== null) this.#watch()
  }

  /** Reports reloading until `work` ends, then ready. */
  async reload<T>(work: () => Promise<T>): Promise<T> {
    this.#send('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / BigInt(US_PER_MS)}`)
    try {
      return await work()
    } finally {
      this.#told = this.#service?.status() ?? ''
      this.#send('READY=1', this.#statusLine())
    }
  }

  /** The service stops, and lets its work end first. Called at least each second, so that systemd waits longer. */
  draining(text: string, leftMs: number): void {
    const us = Math.round((leftMs + STOP_RESERVE_MS) * US_PER_MS)
    this.#send('STOPPING=1', `STATUS=${plainText(text).slice(0, MAX_STATUS_TEXT)}`, `EXTEND_TIMEOUT_USEC=${us}`)
  }

  stopping(): void {
    this.#send('STOPPING=1', 'STATUS=stopping: ending running commands')
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

  /** Sends messages in order without waiting, because systemd may be busy. */
  #send(...lines: readonly string[]): void {
    const { fd } = this.#init
    if (fd === null) return
    this.#sent = this.#sent.then(
      async () =>
        new Promise((resolve) => {
          write(fd, lines.join('\n'), (error) => {
            if (error !== null && !this.#failed) this.#log.error({ err: errorText(error) }, 'cannot notify the service manager')
            this.#failed = error !== null
            resolve()
          })
        }),
    )
  }
}
