import type { Server } from 'node:http'
import { AppError, errnoOf } from '../../base/errors.ts'
import { listening } from '../../base/unix-sockets.ts'
import { addressOf, closeServer } from '../http.ts'

export const LOOPBACK_IP = '127.0.0.1'
const LOOPBACK_IP6 = '::1'
/** How often another free port is tried, if the first is free for one of the two addresses only. */
const ATTEMPTS = 8
/** Errors of a host without IPv6, on which no program can listen on `::1`. */
const NO_IP6: readonly (string | null | undefined)[] = ['EADDRNOTAVAIL', 'EAFNOSUPPORT']

/** The two addresses of `localhost`, each with its server. */
export interface LoopbackServers {
  readonly ip4: Server
  readonly ip6: Server
}

/**
 * Listens on one port of both addresses of `localhost`. A browser connects to either, so another program that listens on one of
 * them could answer in place of the page. `port`: 0 for any. Throws `conflict` if the port is in use.
 */
export const listenOnLoopback = async ({ ip4, ip6 }: LoopbackServers, port: number): Promise<void> => {
  for (let attempt = 1; ; attempt++) {
    try {
      await listening(ip4, { port, host: LOOPBACK_IP })
      await listening(ip6, { port: addressOf(ip4).port, host: LOOPBACK_IP6 })
      return
    } catch (error) {
      const code = errnoOf(error)
      if (ip4.listening && NO_IP6.includes(code)) return
      await closeServer(ip4)
      if (code !== 'EADDRINUSE') throw error
      if (port !== 0 || attempt === ATTEMPTS)
        throw new AppError('conflict', `port ${port} of ${LOOPBACK_IP} or [${LOOPBACK_IP6}] is in use: leave --port out, or name another`, {
          cause: error,
        })
    }
  }
}
