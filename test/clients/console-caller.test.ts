import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { listenAt } from '../../src/base/unix-sockets.ts'
import { ABORTED_REPLY_MS, ConsoleCalls } from '../../src/clients/console.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { tempDir } from '../support/temp-dir.ts'

test('an aborted console call and its connection end even if the host does not answer', async (t) => {
  const path = join(await tempDir(t), 'console.sock')
  const server = createServer()
  await listenAt(server, { kind: 'unix', path }, 'somebody listens there')
  t.after(() => server.close())
  const clock = new ManualClock()
  const cancelled = new AbortController()
  const call = new ConsoleCalls({ clock }, { env: { REXEC_SOCKET: path } }).run({ whoami: 'a', dir: '/', exec: ['true'] }, cancelled.signal)
  const [socket] = (await once(server, 'connection')) as [Socket]
  const told: string[] = []
  socket.setEncoding('utf8').on('data', (text: string) => told.push(...text.split('\n')))
  while (!told.some((line) => line.includes('"exec"'))) await once(socket, 'data')
  cancelled.abort()
  while (!told.some((line) => line.includes('"abort"'))) await once(socket, 'data')
  const over = Promise.all([once(socket, 'end'), assert.rejects(call, { code: 'daemon_unreachable' })])
  await clock.advance(ABORTED_REPLY_MS)
  await over
  assert.equal(clock.pending, 0)
})
