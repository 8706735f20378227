import assert from 'node:assert/strict'
import { Duplex } from 'node:stream'
import type { Socket } from 'node:net'
import { test } from 'node:test'

import { MAX_UNPROVEN_CONNECTIONS } from '../../../src/protocol/rexd-limits.ts'
import { Unproven } from '../../../src/doors/rpc/unproven.ts'

const socketOf = (): Socket => new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() }) as unknown as Socket

test('connections of one turn of the event loop are as bounded as any others, and the oldest go', () => {
  const unproven = new Unproven()
  const sockets = Array.from({ length: 2 * MAX_UNPROVEN_CONNECTIONS }, socketOf)
  for (const socket of sockets) unproven.add(socket)
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    sockets.map((_, at) => at < MAX_UNPROVEN_CONNECTIONS),
  )
})
