import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Below those that Linux gives to connections and to whoever asks for any (ip_local_port_range): nobody is given one by chance. */
const PORTS = { first: 20_000, count: 12_000 } as const
let next = process.pid

/** A TCP port of 127.0.0.1 that no other test has until this process ends, also while nobody listens on it. */
export const ownPort = async (): Promise<number> => {
  for (let tried = 0; tried < PORTS.count; tried++) {
    const port = PORTS.first + (next++ % PORTS.count)
    // The UDP port of this number is the lock: one process at a time can have it, and loses it with its life.
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
