import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'

import { MAX_INLINE_STDIN } from '../../src/protocol/limits/rexd.ts'
import { ONE_STREAM, requirement, type Requirement } from './requirement.ts'

export const STDIN_REQUIREMENTS: readonly Requirement[] = [
  requirement(
    'exec.start/stdin',
    'a program gets the given stdin and then its end',
    'exec.start.stdin exec.start.stdin_encoding',
    async (peer) => {
      const session = await peer.session()
      const text = `ü 😀\n${'x'.repeat(200_000)}`
      const whole = await session.start({ argv: ['cat'], stdin: text })
      await whole.finished()
      assert.equal(whole.stdout.toString(), text)
      const bytes = Buffer.from([0, 255, 10, 13, 195])
      const raw = await session.start({ argv: ['cat'], stdin: bytes.toString('base64'), stdin_encoding: 'base64' })
      await raw.finished()
      assert.deepEqual(raw.stdout, bytes)
      await session.failure(-32602, 'exec.start', { argv: ['cat'], stdin: 'no base64', stdin_encoding: 'base64' })
      await session.failure(-32602, 'exec.start', { argv: ['cat'], stdin: '\ud800' })
      const { data } = await session.failure(-32008, 'exec.start', { argv: ['cat'], stdin: 'x'.repeat(MAX_INLINE_STDIN + 1) })
      assert.equal(data['limit'], 'stdin')
    },
  ),
  requirement(
    'exec.input/data',
    'with stdin_open, exec.input sends more data in order until eof',
    'exec.start.stdin_open exec.input exec.input.session_id exec.input.process_id exec.input.data exec.input.encoding exec.input.eof exec.input:accepted_bytes',
    async (peer) => {
      const session = await peer.session()
      const log = await session.start({ argv: ['cat'], stdin: 'first ', stdin_open: true })
      const input = async (params: object): Promise<unknown> =>
        (await session.call('exec.input', { process_id: log.id, ...params }))['accepted_bytes']
      assert.equal(await input({ data: 'ü ' }), 3)
      assert.equal(await input({ data: Buffer.from('last').toString('base64'), encoding: 'base64' }), 4)
      await log.printed('first ü last')
      assert.equal((await session.wait(log, { timeout_ms: 0 }))['status'], 'running')
      assert.equal(await input({ data: '.', eof: true }), 1)
      assert.equal((await log.finished())['exit_code'], 0)
      assert.equal(log.stdout.toString(), 'first ü last.')
    },
  ),
  requirement(
    'exec.input/order',
    'requests that are sent without waiting reach the program in order',
    'exec.input.data',
    async (peer) => {
      const session = await peer.session()
      const log = await session.start({ argv: ['cat'], stdin_open: true })
      const lines = Array.from({ length: 500 }, (_, at) => `${at}\n`)
      await Promise.all(lines.map(async (data) => session.call('exec.input', { process_id: log.id, data })))
      await session.call('exec.input', { process_id: log.id, data: '', eof: true })
      await log.finished()
      assert.equal(log.stdout.toString(), lines.join(''))
    },
    { only: ONE_STREAM },
  ),
  requirement('exec.input/closed', 'a stdin that is not open accepts no data', 'exec.input -32006 -32602', async (peer) => {
    const session = await peer.session()
    const shut = await session.shell('read line; sleep 1000', { stdin_open: true })
    await session.failure(-32602, 'exec.input', { process_id: shut.id, data: '*', encoding: 'base64' })
    await session.call('exec.input', { process_id: shut.id, data: 'x\n', eof: true })
    await session.failure(-32006, 'exec.input', { process_id: shut.id, data: 'y' })
    const without = await session.start({ argv: ['sleep', '1000'] })
    await session.failure(-32006, 'exec.input', { process_id: without.id, data: 'y' })
    const ended = await session.start({ argv: ['true'], stdin_open: true })
    await ended.finished()
    await session.failure(-32006, 'exec.input', { process_id: ended.id, data: 'y' })
    await session.close()
  }),
  requirement(
    'exec.input/full',
    'data that a program does not read is not accepted, and can be sent again later',
    'exec.input:accepted_bytes',
    async (peer) => {
      const session = await peer.session()
      const go = session.path('go')
      const log = await session.shell(`while [ ! -e ${go} ]; do sleep 0.05; done; wc -c`, { stdin_open: true })
      const input = async (data: string, eof: boolean): Promise<number> =>
        Number((await session.call('exec.input', { process_id: log.id, data, eof }))['accepted_bytes'])
      let taken = 0
      for (let round = 0; round < 4; round++) taken += await input('x'.repeat(500_000), false)
      assert.ok(taken >= 1_000_000 && taken < 2_000_000, `${taken}`)
      await writeFile(go, '')
      while (taken < 2_000_000) taken += await input('x'.repeat(Math.min(500_000, 2_000_000 - taken)), false)
      await input('', true)
      await log.finished()
      assert.equal(Number(log.stdout), 2_000_000)
    },
  ),
]
