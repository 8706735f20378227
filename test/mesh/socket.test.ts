import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import type { MultiaddrConnection } from '@libp2p/interface'

import { betweenSocketAndNoise } from '../../src/mesh/libp2p/socket.ts'
import { CountedWrites } from '../support/counted-writes.ts'

test('what is written in one turn of the event loop is one packet, also what follows from it, and what is much does not wait', async () => {
  const socket = new CountedWrites()
  const stream = { socket, direction: 'outbound', push: () => undefined, onData: () => undefined, abort: () => undefined }
  const connection = Object.assign(stream, { sendData: (data: Uint8Array) => socket.write(data) })
  await betweenSocketAndNoise().protect(connection as unknown as MultiaddrConnection)
  // As what is read is handed on: what is promised follows in the same turn, behind all that was put off to the next tick.
  const read = async (): Promise<void> => {
    connection.sendData(Buffer.from('the end of one'))
    await Promise.resolve()
    connection.sendData(Buffer.from('the beginning of the next'))
  }
  await new Promise<void>((resolve) => setTimeout(() => void read().then(resolve), 0))
  await turn()
  assert.equal(socket.writes, 1)
  connection.sendData(Buffer.alloc(60_000))
  await new Promise<void>((resolve) => process.nextTick(resolve))
  assert.equal(socket.writes, 2)
})
