import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Below the range that Linux assigns automatically (ip_local_port_range). */
const PORTS = { first: 20_000, count: 12_000 } as const
let next = process.pid

/** Returns a TCP port of 127.0.0.1 that no other test gets until this process ends, even if the port has no listener. */
export const ownPort = async (): Promise<number> => {
  for (let tried = 0; tried < PORTS.count; tried++) {
    const port = PORTS.first + (next++ % PORTS.count)
    // The UDP port of this number is the lock. Only one process can bind it, and loses it when it ends.
    const lock = createSocket('udp4').bind(port, '127.0.0.1').unref()
    const server = createServer()
    const isOurs = await once(lock, 'listening')
      .then(() => once(server.listen(port, '127.0.0.1'), 'listening'))
      .then(() => once(server.close(), 'close'))
      .then(
        () => true,
        () => false,
      )
    if (isOurs) return port
    lock.close()
  }
  throw new Error('every port is taken')
}
