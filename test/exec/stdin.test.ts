import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { sha256 } from '../../src/identity/hash.ts'
import { pieceHashes } from '../../src/identity/piece-hashes.ts'
import { execRequest } from '../../src/protocol/wire/exec.ts'
import { MAX_FRAME_DATA, MAX_PIECES_UNACKED } from '../../src/protocol/limits/wire.ts'
import { plain } from '../support/plain.ts'
import { scriptedRun, settle, stdinOf, type ScriptedPeer } from '../support/scripted-peer.ts'

const stdinFrames = (peer: ScriptedPeer) => peer.frames.filter((frame) => frame.type === 'stdin')
const sent = (peer: ScriptedPeer): Buffer => Buffer.concat(stdinFrames(peer).map(({ data }) => data))
const ack = (peer: ScriptedPeer, stdin: number): void => peer.say({ type: 'ack', request_id: peer.id, stdin, stdout: 0, stderr: 0 })

test('stdin is signed by length and hash, and arrives in numbered frames with one end', async () => {
  const data = randomBytes(MAX_FRAME_DATA * 2 + 1)
  const { peer, outcome } = await scriptedRun(systemClock, { stdin: stdinOf(data.subarray(0, 5), data.subarray(5)) })
  await settle()
  const { stdin } = execRequest.decode(peer.request.body)
  assert.deepEqual(plain(stdin), plain({ len: data.length, pieces: [sha256(data)] }))
  assert.deepEqual(sent(peer), data)
  const frames = stdinFrames(peer)
  assert.deepEqual(
    frames.map(({ seq }) => seq),
    frames.map((_frame, index) => index),
  )
  assert.deepEqual(
    frames.map(({ eof }) => eof),
    frames.map((_frame, index) => index === frames.length - 1),
  )
  assert.ok(frames.every(({ data }) => data.length <= MAX_FRAME_DATA))
  await peer.exit()
  await outcome
})

test('empty stdin is one empty frame that ends it', async () => {
  const { peer, outcome } = await scriptedRun(systemClock, { stdin: stdinOf() })
  await settle()
  assert.deepEqual(
    stdinFrames(peer).map(({ seq, data, eof }) => [seq, data.length, eof]),
    [[0, 0, true]],
  )
  await peer.exit()
  await outcome
})

test('stdin is sent ahead up to the window, and each acknowledgement makes room', async () => {
  const data = randomBytes(3 * MAX_PIECES_UNACKED)
  const { peer, outcome } = await scriptedRun(systemClock, { stdin: stdinOf(data) })
  await settle()
  const first = stdinFrames(peer).length
  assert.ok(sent(peer).length >= MAX_PIECES_UNACKED)
  assert.ok(sent(peer).length < MAX_PIECES_UNACKED + MAX_FRAME_DATA)
  ack(peer, 1)
  await settle()
  assert.equal(stdinFrames(peer).length, first + 1)
  while (sent(peer).length < data.length) {
    ack(peer, stdinFrames(peer).length)
    await settle()
  }
  assert.deepEqual(sent(peer), data)
  await peer.exit()
  assert.equal((await outcome).ok, true)
})

test('a stream without room holds stdin back', async () => {
  const { peer, outcome } = await scriptedRun(systemClock, { stdin: stdinOf(Buffer.from('a'), Buffer.from('b')) })
  await peer.exit()
  await outcome
  const held = await scriptedRun(systemClock, {
    stdin: {
      len: 2,
      pieces: pieceHashes(Buffer.from('ab')),
      chunks: (async function* () {
        yield Buffer.from('a')
        yield Buffer.from('b')
      })(),
    },
  })
  held.peer.room = false
  await settle()
  const before = stdinFrames(held.peer).length
  assert.ok(before <= 2)
  held.peer.makeRoom()
  await settle()
  assert.deepEqual(sent(held.peer), Buffer.from('ab'))
  await held.peer.exit()
  await held.outcome
})

test('a source that is shorter or longer than announced cancels the run with an error', async () => {
  for (const [len, message] of [
    [3, /ended after 2 of 3/],
    [1, /longer than the 1/],
  ] as const) {
    const { peer, outcome } = await scriptedRun(systemClock, { stdin: { ...stdinOf(Buffer.from('ab')), len } })
    await peer.next('cancel')
    await peer.exit('', '', { code: null, signal: 15 })
    await assert.rejects(outcome, { code: 'bad_request', message })
  }
})

test('a run that ends does not wait for its stdin source', async () => {
  const returned = Promise.withResolvers<void>()
  const chunks = {
    [Symbol.asyncIterator]: () => ({
      next: async () => new Promise<never>(() => undefined),
      return: async () => {
        returned.resolve()
        return { done: true as const, value: undefined }
      },
    }),
  }
  const { peer, outcome } = await scriptedRun(systemClock, { stdin: { len: 10, pieces: [new Uint8Array(32)], chunks } })
  await peer.exit('', '', { code: 1 })
  assert.equal((await outcome).code, 1)
  await returned.promise
})

test('an error of the stdin source is the error of the run', async () => {
  const chunks = (async function* () {
    yield Buffer.from('a')
    throw new Error('the pipe broke')
  })()
  const { peer, outcome } = await scriptedRun(systemClock, { stdin: { len: 10, pieces: [new Uint8Array(32)], chunks } })
  await peer.next('cancel')
  await peer.exit('', '', { code: null, signal: 15 })
  await assert.rejects(outcome, /the pipe broke/)
})

test('an acknowledgement that goes backwards ends the run', async () => {
  const { peer, outcome } = await scriptedRun(systemClock, { stdin: stdinOf(Buffer.from('a')) })
  await settle()
  ack(peer, 1)
  ack(peer, 0)
  assert.match((await outcome).message ?? '', /was not sent/)
})
