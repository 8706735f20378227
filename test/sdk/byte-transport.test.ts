import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { finished } from 'node:stream/promises'
import { test } from 'node:test'

import fc from 'fast-check'

import { streams } from '../../src/sdk/byte-transport.ts'
import { connect } from '../../src/sdk/client.ts'
import type { Transport } from '../../src/sdk/transport.ts'
import { until } from '../support/processes.ts'
import { cut, SEED, sizes } from './pieces.ts'

interface Opened {
  readonly readable: PassThrough
  readonly writable: PassThrough
  readonly transport: Transport
  readonly messages: string[]
  readonly ends: (string | null)[]
}

const open = async (): Promise<Opened> => {
  const [readable, writable] = [new PassThrough(), new PassThrough()]
  const messages: string[] = []
  const ends: (string | null)[] = []
  const events = { onMessage: (text: string) => messages.push(text), onClosed: (error: Error | null) => ends.push(error?.message ?? null) }
  const transport = await streams(readable, writable).open(events, new AbortController().signal)
  return { readable, writable, transport, messages, ends }
}
/** Waits until all pending callbacks have run. */
const settled = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve))
}

test('a paused transport reads no messages, and resumes at the same position', async () => {
  const { readable, transport, messages } = await open()
  readable.write('1\n2\n')
  await until(() => messages.length === 2)
  transport.pause()
  assert.equal(readable.isPaused(), true)
  for (let n = 3; n < 100; n++) readable.write(`${n}\n`)
  await settled()
  assert.deepEqual(messages, ['1', '2'])
  transport.resume()
  await until(() => messages.length === 99)
  assert.deepEqual(
    messages,
    Array.from({ length: 99 }, (_, i) => `${i + 1}`),
  )
  readable.end()
  await transport.close()
})

test('a large send waits until the server has taken the data', async () => {
  const { readable, writable, transport } = await open()
  const sent = transport.send('x'.repeat(1_000_000))
  assert.ok(sent instanceof Promise)
  let taken = false
  void sent.then(() => (taken = true))
  await settled()
  assert.equal(taken, false)
  writable.resume()
  await sent
  assert.equal(transport.send('small'), undefined)
  readable.end()
  await transport.close()
})

test('calls wait in the client while the server does not read, and keep their order', async () => {
  const [readable, writable] = [new PassThrough(), new PassThrough()]
  const client = await connect({ transport: streams(readable, writable) })
  const path = 'x'.repeat(100_000)
  const calls = Array.from({ length: 50 }, async (_, i) => client.call('fs.stat', { session_id: `${i}`, path }))
  await settled()
  assert.ok(writable.writableLength + writable.readableLength < 500_000)
  let text = ''
  writable.on('data', (chunk: Buffer) => (text += chunk.toString()))
  await until(() => text.split('\n').length === 51)
  const asked = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { id: number; params: { session_id: string } })
  assert.deepEqual(
    asked.map(({ params }) => params.session_id),
    Array.from({ length: 50 }, (_, i) => `${i}`),
  )
  for (const { id } of asked) readable.write(`${JSON.stringify({ jsonrpc: '2.0', id, result: { exists: false } })}\n`)
  assert.equal((await Promise.all(calls)).length, 50)
  readable.end()
  await client.close()
})

test('the end is reported once, after all messages, and an unfinished last line is dropped', async () => {
  const { readable, transport, messages, ends } = await open()
  readable.write('1\n\n  \n2\nhalf a li')
  readable.end()
  await until(() => ends.length > 0)
  readable.destroy(new Error('late'))
  await settled()
  assert.deepEqual([messages, ends], [['1', '2'], [null]])
  assert.equal(transport.send('into nothing'), undefined)
  await transport.close()
})

test('messages that arrived before a write error are still read, even by a paused reader', async () => {
  const { readable, writable, transport, messages, ends } = await open()
  transport.pause()
  readable.write('1\n2\n')
  writable.destroy(new Error('no ears'))
  await settled()
  assert.deepEqual([messages, ends], [[], []])
  transport.resume()
  await until(() => messages.length === 2)
  readable.end()
  await until(() => ends.length > 0)
  assert.deepEqual([messages, ends], [['1', '2'], ['no ears']])
  await transport.close()
})

test('a send after a write error reports the error, even while reading is paused', async () => {
  const { readable, writable, transport, ends } = await open()
  transport.pause()
  writable.destroy(new Error('no ears'))
  await settled()
  assert.deepEqual(ends, [])
  assert.equal(transport.send('hello?'), undefined)
  assert.deepEqual(ends, ['no ears'])
  readable.end()
  await transport.close()
})

test('the transport accepts strings and bytes, and reports no events after close', async () => {
  const { readable, transport, messages, ends } = await open()
  readable.setEncoding('utf8')
  readable.write('grüße\n')
  await until(() => messages.length === 1)
  const closing = transport.close()
  readable.write('2\n')
  readable.end()
  await closing
  assert.deepEqual([messages, ends], [['grüße'], []])
  assert.deepEqual([readable.destroyed], [true])
})

test('property: messages do not depend on how the bytes are cut, and blank lines are ignored', async () => {
  const line = fc.string({ unit: 'grapheme', maxLength: 30 }).map((text) => text.replaceAll(/[\n\r]/g, ''))
  await fc.assert(
    fc.asyncProperty(fc.array(line, { maxLength: 20 }), sizes, async (texts, at) => {
      const { readable, transport, messages } = await open()
      const bytes = Buffer.from(texts.map((text) => `${text}\n`).join(''))
      for (const part of cut(bytes, at)) readable.write(part)
      readable.end()
      await finished(readable)
      await transport.close()
      assert.deepEqual(
        messages,
        texts.filter((text) => text.trim() !== ''),
      )
    }),
    { seed: SEED },
  )
})
