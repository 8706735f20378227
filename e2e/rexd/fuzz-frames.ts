import { connect, type Socket } from 'node:net'

import type { Chance } from './fuzz-lines.ts'
import type { WebRexd } from './server.ts'

const headOf = ({ url, token }: WebRexd): string =>
  [
    'GET /ws HTTP/1.1',
    `Host: ${new URL(url).host}`,
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    'Sec-WebSocket-Extensions: permessage-deflate',
    `Authorization: Bearer ${token}`,
    '\r\n',
  ].join('\r\n')

const bytesOf = (chance: Chance, most: number): Buffer => Buffer.from(Array.from({ length: chance.below(most) }, () => chance.below(256)))

/** A frame with a random header (RFC 6455, 5.2): any opcode, flags and length, masked or not. */
const frame = (chance: Chance): Buffer => {
  const length = chance.one([0, 1, 125, 126, 127])
  const size = length === 126 ? bytesOf(chance, 3) : length === 127 ? bytesOf(chance, 9) : Buffer.alloc(0)
  return Buffer.concat([Buffer.from([chance.below(256), (chance.below(4) > 0 ? 128 : 0) | length]), size, bytesOf(chance, 200)])
}

/** Bytes that are not HTTP or stop being HTTP: parts of a request in any order, and random bytes. */
const nonsense = (chance: Chance, head: string): Buffer => {
  const lines = head.split('\r\n').map((line) => (chance.next() < 0.3 ? bytesOf(chance, 60).toString('latin1') : line))
  return Buffer.from(`${lines.join(chance.one(['\r\n', '\n', '\r', '']))}${bytesOf(chance, 100).toString('latin1')}`, 'latin1')
}

const open = async ({ url }: WebRexd): Promise<{ socket: Socket; closed: Promise<void> }> => {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.on('error', () => undefined)
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  await new Promise<void>((resolve) => socket.once('connect', () => resolve()))
  return { socket, closed }
}

const heard = async (socket: Socket): Promise<string> =>
  new Promise((resolve) => socket.once('data', (part: Buffer) => resolve(part.toString('latin1'))))

/** Answer to a correct upgrade request. */
export const upgraded = async (server: WebRexd): Promise<string> => {
  const { socket, closed } = await open(server)
  socket.write(headOf(server))
  const text = await heard(socket)
  socket.destroy()
  await closed
  return text
}

/** Sends random bytes on one connection, or some frames after a correct upgrade. Resolves when the server has closed the connection. */
export const brokenFrames = async (server: WebRexd, chance: Chance, { afterUpgrade }: { afterUpgrade: boolean }): Promise<void> => {
  const { socket, closed } = await open(server)
  const head = headOf(server)
  if (afterUpgrade) {
    socket.write(head)
    await heard(socket)
  }
  socket.resume()
  const rest = afterUpgrade ? Buffer.concat(Array.from({ length: 1 + chance.below(5) }, () => frame(chance))) : nonsense(chance, head)
  socket.end(rest)
  await closed
}
