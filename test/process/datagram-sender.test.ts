import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { DatagramSocket } from '../../src/process/datagram-sender.ts'
import { MAX_DATAGRAM_BACKLOG } from '../../src/protocol/limits/daemon.ts'
import { DatagramReceiver } from '../support/datagram-receiver.ts'
import { until } from '../support/mesh-of-daemons.ts'
import { needsPerl } from '../support/perl-programs.ts'
import { tempDir } from '../support/temp-dir.ts'

const open = async (t: TestContext) => {
  const path = join(await tempDir(t), 'log')
  const lost: string[] = []
  const socket = new DatagramSocket(
    { clock: systemClock },
    { path, onLost: (count, why) => void lost.push(...Array<string>(count).fill(why)) },
  )
  socket.start()
  t.after(async () => socket.stop())
  return { path, lost, socket }
}

test('messages arrive complete and in order, also at a new receiver, and lost ones are reported', needsPerl, async (t) => {
  const { path, lost, socket } = await open(t)
  assert.equal(socket.send('nobody is there'), true)
  await until('it is told', () => lost.length === 1)
  for (const round of ['first', 'second']) {
    const receiver = await DatagramReceiver.start(t, path)
    const sent = Array.from({ length: 200 }, (_, n) => `${round} ${n} ${'ä'.repeat(n)}`)
    for (const message of sent) assert.equal(socket.send(message), true)
    await receiver.has((messages) => messages.length === sent.length)
    assert.deepEqual(receiver.messages, sent)
    await receiver.stop()
  }
  assert.deepEqual(lost, [lost[0]])
})

test('a receiver that does not read blocks no sender, and messages above the limit are refused at once', needsPerl, async (t) => {
  const { path, lost, socket } = await open(t)
  await DatagramReceiver.start(t, path, { reads: false })
  const message = 'x'.repeat(4_096)
  let taken = 0
  while (socket.send(message)) taken += 1
  assert.ok(taken * message.length >= MAX_DATAGRAM_BACKLOG, `${taken}`)
  assert.ok(taken * message.length < 2 * MAX_DATAGRAM_BACKLOG + 2 ** 21, `${taken}`)
  await until('what waited too long is told', () => lost.length > 0)
  await socket.stop()
  assert.equal(socket.send('after the end'), false)
  // Messages in the pipe and at the receiver are not reported.
  await until('what the helper had not taken is told as well', () => lost.length > taken - 200)
})

test('a sender that was stopped can start again and reach the receiver', needsPerl, async (t) => {
  const { path, socket } = await open(t)
  const receiver = await DatagramReceiver.start(t, path)
  assert.equal(socket.send('before'), true)
  await receiver.has((messages) => messages.length === 1)
  // The end of its input ends the helper, like a signal would.
  await socket.stop()
  socket.start()
  assert.equal(socket.send('behind'), true)
  await receiver.has((messages) => messages.at(-1) === 'behind')
})
