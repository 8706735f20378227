import assert from 'node:assert/strict'
import { Duplex } from 'node:stream'
import type { Socket } from 'node:net'
import { test } from 'node:test'

import { UnauthenticatedConnections } from '../../src/doors/http.ts'

const MAX = 64

const socketOf = (): Socket => new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() }) as unknown as Socket

test('connections that arrive in one event loop turn count against the limit, and the oldest are closed', () => {
  const unproven = new UnauthenticatedConnections({ total: MAX, perAddress: 1 })
  const sockets = Array.from({ length: 2 * MAX }, socketOf)
  for (const socket of sockets) unproven.add(socket)
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    sockets.map((_, at) => at < MAX),
  )
})
