import type { Socket } from 'node:net'

import type { MessageStream } from '@libp2p/interface'

/** What a TCP connection of libp2p has beside its interface. */
type TcpStream = MessageStream & { readonly socket: Socket; sendData(data: unknown): unknown }

const isTcp = (stream: MessageStream): stream is TcpStream => 'socket' in stream && 'sendData' in stream

/**
 * Noise and yamux write each message in two to four pieces, and each would be a system call and a packet
 * of its own. What is written in one turn leaves together, at the end of that turn.
 */
export const corkWrites = (stream: MessageStream): void => {
  if (!isTcp(stream)) return
  const { socket } = stream
  const sendData = stream.sendData.bind(stream)
  let corked = false
  stream.sendData = (data) => {
    if (!corked) {
      corked = true
      socket.cork()
      process.nextTick(() => {
        corked = false
        socket.uncork()
      })
    }
    return sendData(data)
  }
}
