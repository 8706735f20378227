import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, connect } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import fc from 'fast-check'

import { systemClock } from '../../../src/base/clock.ts'
import { ConsoleConnection } from '../../../src/doors/console/connection.ts'
import { readConsoleLine, type ConsoleRequest } from '../../../src/protocol/console/messages.ts'
import { tempDir } from '../../support/temp-dir.ts'

const SEED = 20_261_124
const REQUEST = JSON.stringify({ whoami: 'Codex', dir: '/', envs: { A: '1' }, exec: ['true'] })
const LINES = [REQUEST, '{"action":"ping"}', '{"action":"abort"}', '{"action":"attach"}', '{"action":"exec"}', '', '{', 'null', '[]']

interface Edit {
  readonly at: number
  readonly byte: number
}

/** A conversation with random damage, cut into pieces of any size. */
const conversations = fc.record({
  lines: fc.array(fc.constantFrom(...LINES), { minLength: 1, maxLength: 8 }),
  edits: fc.array(fc.record({ at: fc.nat(), byte: fc.nat({ max: 255 }) }), { maxLength: 3 }),
  cuts: fc.array(fc.nat(), { maxLength: 6 }),
})

const bytesOf = (lines: readonly string[], edits: readonly Edit[]): Buffer => {
  const bytes = Buffer.from(`${lines.join('\n')}\n`)
  for (const { at, byte } of edits) bytes[at % bytes.length] = byte
  return bytes
}

test('property: the console answers any input in lines, and runs only commands that the input contains', async (t) => {
  const path = join(await tempDir(t), 's')
  const ran: ConsoleRequest[] = []
  const service = {
    run: async (request: ConsoleRequest) => {
      ran.push(request)
      return { exit: 0, output: 'x' }
    },
    attach: () => () => undefined,
  }
  const server = createServer({ allowHalfOpen: true }, (socket) => void new ConsoleConnection({ service, clock: systemClock }, { socket }))
  server.listen(path)
  await once(server, 'listening')
  t.after(() => server.close())
  const say = async (bytes: Buffer, cuts: readonly number[]): Promise<string> => {
    const socket = connect(path)
    let heard = ''
    socket.setEncoding('utf8').on('data', (text: string) => (heard += text))
    // The server may close the connection after a refusal, so this write can fail.
    socket.on('error', () => undefined)
    let from = 0
    for (const at of [...cuts.map((cut) => cut % bytes.length).toSorted((a, b) => a - b), bytes.length]) {
      if (at > from) await new Promise((resolve) => socket.write(bytes.subarray(from, at), resolve))
      from = Math.max(from, at)
    }
    socket.end()
    await once(socket, 'close')
    return heard
  }
  await fc.assert(
    fc.asyncProperty(conversations, async ({ lines, edits, cuts }) => {
      ran.length = 0
      const bytes = bytesOf(lines, edits)
      const heard = await say(bytes, cuts)
      const asked = bytes
        .toString('latin1')
        .split('\n')
        .map((line) => readConsoleLine(Buffer.from(line, 'latin1')))
      const requests = asked.flatMap((message) => (message.kind === 'request' ? [message.request] : []))
      for (const [at, request] of ran.entries())
        assert.ok(requests.slice(at).some((one) => JSON.stringify(one) === JSON.stringify(request)))
      const answers = heard
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as Record<string, unknown>)
      for (const answer of answers) assert.ok(answer['result'] === 'pong' || typeof answer['exit'] === 'number', heard)
      assert.ok(answers.filter(({ error }) => error === 'refused').length <= 1, 'nothing is served behind a refusal')
    }),
    { seed: SEED, numRuns: 400 },
  )
})
