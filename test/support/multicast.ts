import { randomBytes } from 'node:crypto'
import { createSocket } from 'node:dgram'

const GROUP = '224.0.0.251'
const PORT = 5353
/** A datagram to this machine arrives almost at once. */
const PATIENCE_MS = 3_000

/**
 * Returns why mDNS cannot work on this machine, or false. One datagram is sent to its group and must come back. It is
 * a DNS message without questions, which no other program answers.
 */
export const noMulticast = async (): Promise<string | false> => {
  const probe = Buffer.alloc(12)
  randomBytes(2).copy(probe)
  const socket = createSocket({ type: 'udp4', reuseAddr: true })
  const { promise, resolve } = Promise.withResolvers<string | false>()
  const timer = setTimeout(() => resolve('multicast does not come back on this machine'), PATIENCE_MS)
  const failed = (error: Error): void => resolve(`multicast is off on this machine: ${error.message}`)
  socket.on('error', failed)
  socket.on('message', (bytes) => {
    if (probe.equals(bytes)) resolve(false)
  })
  socket.bind(PORT, () => {
    try {
      socket.addMembership(GROUP)
      socket.setMulticastLoopback(true)
      socket.send(probe, PORT, GROUP, (error) => {
        if (error !== null) failed(error)
      })
    } catch (error) {
      failed(error as Error)
    }
  })
  const answer = await promise
  clearTimeout(timer)
  socket.close()
  return answer
}
