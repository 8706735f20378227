import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { LATEST_PROTOCOL_VERSION } from '@modelcontextprotocol/client'

import { serveMcp } from '../../../src/doors/mcp/server.ts'
import { instructionsFor, toolsFor } from '../../../src/doors/mcp/tools.ts'
import type { LocalExecutor } from '../../../src/executor-api/local.ts'
import { CAPABILITY_NAMES } from '../../../src/protocol/rexd/fields.ts'
import { LocalHost, soon } from '../../support/local-engine.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { newLifecycleLog } from '../../support/lifecycle.ts'
import { silent } from '../../support/processes.ts'
import { callOf } from '../../support/raw-mcp.ts'

const ANSWER_WITHIN_MS = 45_000

/** An executor whose file calls behave as the test says. */
const withFiles = (executor: LocalExecutor, file: LocalExecutor['file']): LocalExecutor =>
  new Proxy(executor, { get: (real, name) => (name === 'file' ? file : Reflect.get(real, name).bind(real)) })

/** The tools of a host with a clock that the test moves, and its answers to calls by ID. */
const serve = async (t: TestContext, executor: LocalExecutor) => {
  const [input, output, clock] = [new PassThrough(), new PassThrough(), new ManualClock()]
  const tools = toolsFor(new Set(['fs.read', 'fs.write']))
  const served = serveMcp(
    { input, output, executor, clock, log: silent, told: newLifecycleLog() },
    {
      caller: { door: 'mcp', client_name: 'a test', available: [...CAPABILITY_NAMES] },
      answerWithinMs: ANSWER_WITHIN_MS,
      offer: { tools, source: null, instructions: instructionsFor(tools) },
      recorder: null,
    },
    new AbortController().signal,
  )
  t.after(async () => {
    output.destroy()
    await served
  })
  let said = ''
  output.on('data', (part: Buffer) => (said += part.toString()))
  const send = (message: object): void => void input.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  const answer = async (id: number): Promise<string> => {
    assert.ok(await soon(() => said.includes(`"id":${id}`)), `no answer to ${id}`)
    return said.split('\n').find((line) => line.includes(`"id":${id}`)) ?? ''
  }
  const params = { protocolVersion: LATEST_PROTOCOL_VERSION, capabilities: {}, clientInfo: { name: 'raw', version: '1' } }
  send({ id: 0, method: 'initialize', params })
  send({ method: 'notifications/initialized' })
  await answer(0)
  return { clock, send, answer }
}

test('a file call without an answer within 45 s is abandoned and changes nothing', async (t) => {
  const host = await LocalHost.start(t)
  const late = Promise.withResolvers<void>()
  const executor = withFiles(host.executor, async (...call) => {
    await late.promise
    return host.executor.file(...call)
  })
  const { clock, send, answer } = await serve(t, executor)
  send(callOf(1, 'write_file', { path: 'given-up', content: 'x' }))
  await soon(() => clock.pending > 0)
  await clock.advance(ANSWER_WITHIN_MS)
  late.resolve()
  assert.match(await answer(1), /timeout: path: not done within 45000 ms, and nothing was changed.*"isError":true/)
  send(callOf(2, 'write_file', { path: 'made', content: 'x' }))
  assert.match(await answer(2), /"isError":false/)
  assert.deepEqual([existsSync(join(host.root, 'given-up')), existsSync(join(host.root, 'made'))], [false, true])
  const refused = (await host.lines()).filter(({ event }) => event === 'refused')
  assert.equal(refused.length, 1)
})

test('if the file system does not answer, the timeout does not claim that nothing changed', async (t) => {
  const host = await LocalHost.start(t)
  const { clock, send, answer } = await serve(
    t,
    withFiles(host.executor, async () => new Promise(() => undefined)),
  )
  send(callOf(1, 'write_file', { path: 'a', content: 'x' }))
  await soon(() => clock.pending > 0)
  await clock.advance(ANSWER_WITHIN_MS)
  await soon(() => clock.pending > 0)
  await clock.advance(1_000)
  assert.match(await answer(1), /timeout: path: the file system did not answer within 45000 ms; a started change may still complete/)
})
