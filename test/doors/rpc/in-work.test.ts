import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { connect as connectTcp, type NetConnectOpts, type Socket } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test, type TestContext } from 'node:test'

import type { ClientOptions } from 'ws'

import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { startLocalExecutor } from '../../../src/supervision/local-executor.ts'
import { loadRexdConfig } from '../../../src/config/rexd-config.ts'
import { MAX_EVENT_LOG_BYTES } from '../../../src/doors/rpc/session-events.ts'
import { serveLines } from '../../../src/doors/rpc/stdio.ts'
import type { LocalExecutor } from '../../../src/executor-api/local.ts'
import { MAX_RPC_BATCH, MAX_RPC_PENDING } from '../../../src/protocol/limits/rexd.ts'
import { ask, connect, post, type Reached } from '../../support/rexd-callers.ts'
import { rexdPlace, type RexdSettings } from '../../support/rexd-server.ts'
import { startRpcHost } from '../../support/rpc-host.ts'
import { MAX_RPC_BATCH_ANSWER, MAX_RPC_WAITING_BATCH_ANSWER } from '../../../src/doors/rpc/call-slots.ts'

// The number of pending calls per client, over all transports. Each pending call holds memory for its answer.

const TIMEOUT = { timeout: 60_000 }
const MIB = 1024 * 1024
const LONG = { limits: 'max_file_read_bytes = 2097152' }

// oxlint-disable-next-line typescript/no-explicit-any
type Json = any

interface Question {
  readonly jsonrpc: '2.0'
  readonly id: number
  readonly method: string
  readonly params: object
}

const question = (id: number, method: string, params: object): Question => ({ jsonrpc: '2.0', id, method, params })
const many = <T>(length: number, make: (id: number) => T): T[] => Array.from({ length }, (_, id) => make(id))

/** Counts the file reads that reach the executor. */
const countReads = (executor: LocalExecutor): { count: number } => {
  const reads = { count: 0 }
  const file = executor.file.bind(executor)
  executor.file = async (call) => {
    if (call.method === 'fs.read') reads.count += 1
    return file(call)
  }
  return reads
}

/** A client over streams in this process. */
const overLines = async (t: TestContext, settings: RexdSettings = {}) => {
  const place = await rexdPlace(t, settings)
  const { config } = await loadRexdConfig(place.config, {})
  const rexd = await startLocalExecutor(config, {}, silentLogger)
  const { executor } = rexd
  const [input, output, stopping] = [new PassThrough({ highWaterMark: 8 * MIB }), new PassThrough(), new AbortController()]
  const components = { input, output, executor, clock: systemClock, log: silentLogger }
  const served = serveLines(components, { door: 'stdio', available: ['exec', 'fs.read', 'fs.write', 'events'] }, stopping.signal)
  place.ending.push(async () => {
    stopping.abort()
    await served
    assert.deepEqual(await rexd.stop(), [])
  })
  const answers = new Map<number, Json>()
  let [text, wake] = ['', (): void => undefined]
  output.setEncoding('utf8').on('data', (part: string) => {
    text += part
    const lines = text.split('\n')
    text = lines.pop()!
    for (const line of lines) {
      const said: Json = JSON.parse(line)
      for (const answer of Array.isArray(said) ? said : [said]) answers.set(answer.id, answer)
    }
    wake()
  })
  const send = (message: object): void => void input.write(`${JSON.stringify(message)}\n`)
  const answer = async (id: number): Promise<Json> => {
    while (!answers.has(id)) await new Promise<void>((resolve) => (wake = resolve))
    return answers.get(id)
  }
  send(question(-1, 'session.open', { client_name: 'a' }))
  const { session_id } = (await answer(-1)).result
  send(question(-2, 'exec.start', { session_id, argv: ['sleep', '600'] }))
  const { process_id } = (await answer(-2)).result
  return { ...place, executor, input, output, answers, served, send, answer, session_id, process_id }
}

/** Waits longer than any immediate work takes. */
const aWhile = async (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1_500))

test('the limit of pending calls counts calls, not messages, even behind batches that wait', TIMEOUT, async (t) => {
  const { executor, output, send, root, session_id, process_id } = await overLines(t, LONG)
  const reads = countReads(executor)
  await writeFile(join(root, 'large'), Buffer.alloc(2 * MIB))
  output.pause()
  const wait = (id: number): Question => question(id, 'exec.wait', { session_id, process_id })
  for (let batch = 0; batch < 10; batch++) send(many(MAX_RPC_BATCH, wait))
  for (let id = 0; id < 300; id++) send(question(id, 'fs.read', { session_id, path: 'large', encoding: 'base64' }))
  await aWhile()
  assert.ok(reads.count > 0 && reads.count <= MAX_RPC_PENDING + 1, `${reads.count} files were read for nobody`)
})

test('a batch counts as its number of calls, and answers over the batch limit become errors', TIMEOUT, async (t) => {
  const { executor, send, answers, answer, root, session_id } = await overLines(t, LONG)
  const reads = countReads(executor)
  const held = { now: 0, most: 0 }
  const file = executor.file.bind(executor)
  executor.file = async (call) => {
    held.most = Math.max(held.most, ++held.now)
    return file(call).finally(() => (held.now -= 1))
  }
  await writeFile(join(root, 'large'), Buffer.alloc(2 * MIB))
  send(many(MAX_RPC_BATCH, (id) => question(id, 'fs.read', { session_id, path: 'large', encoding: 'base64' })))
  await answer(0)
  assert.deepEqual([reads.count, held.most], [MAX_RPC_BATCH, MAX_RPC_PENDING])
  const told = [...answers.values()].filter(({ id }) => id >= 0)
  const whole = told.filter(({ result }) => result?.content !== undefined)
  assert.equal(whole.length, Math.floor(MAX_RPC_BATCH_ANSWER / JSON.stringify(whole[0]).length))
  assert.ok(told.every(({ result, error }) => result !== undefined || error.data.limit === 'batch_answer'))
  send(question(200, 'fs.read', { session_id, path: 'large', encoding: 'base64' }))
  assert.equal((await answer(200)).result.size, 2 * MIB)
})

test('the answers of a waiting batch have a smaller limit, but the ID of a started process still fits', TIMEOUT, async (t) => {
  const { send, answer, root, session_id, process_id } = await overLines(t, LONG)
  await writeFile(join(root, 'large'), Buffer.alloc(MAX_RPC_WAITING_BATCH_ANSWER))
  send([
    question(1, 'exec.wait', { session_id, process_id }),
    question(2, 'fs.read', { session_id, path: 'large' }),
    question(3, 'exec.start', { session_id, argv: ['true'] }),
  ])
  send(question(4, 'exec.kill', { session_id, process_id }))
  assert.equal((await answer(1)).result.signal, 'SIGTERM')
  assert.equal((await answer(2)).error.data.max, MAX_RPC_WAITING_BATCH_ANSWER)
  assert.match((await answer(3)).result.process_id, /^p_/)
})

test('a session is closed if its ID does not fit into the answer of its batch', TIMEOUT, async (t) => {
  const { executor, send, answer, root, session_id, process_id } = await overLines(t)
  await writeFile(join(root, 'large'), Buffer.alloc(MAX_RPC_WAITING_BATCH_ANSWER - 600, 'x'))
  const [read, closed] = [Promise.withResolvers<void>(), Promise.withResolvers<string>()]
  const [open, file, close] = [executor.open.bind(executor), executor.file.bind(executor), executor.close.bind(executor)]
  executor.open = async (opening) => {
    await read.promise
    return open(opening)
  }
  executor.file = async (call) => {
    const done = await file(call)
    // Continue after the answer to the read, which the server makes in this turn of the event loop.
    setImmediate(read.resolve)
    return done
  }
  executor.close = async (session) => {
    const ended = await close(session)
    closed.resolve(session)
    return ended
  }
  send([
    question(1, 'exec.wait', { session_id, process_id }),
    question(2, 'fs.read', { session_id, path: 'large' }),
    question(3, 'session.open', { client_name: 'b' }),
  ])
  assert.notEqual(await closed.promise, session_id)
  send(question(4, 'exec.kill', { session_id, process_id }))
  assert.equal((await answer(1)).result.signal, 'SIGTERM')
  assert.equal((await answer(2)).result.size, MAX_RPC_WAITING_BATCH_ANSWER - 600)
  assert.equal((await answer(3)).error.data.limit, 'batch_answer')
})

test('calls before the end of the input are executed and answered, even behind a batch of waits', TIMEOUT, async (t) => {
  const { answers, input, served, send, session_id, process_id } = await overLines(t)
  send(many(20, (id) => question(id, 'exec.wait', { session_id, process_id })))
  send(question(100, 'exec.start', { session_id, argv: ['touch', 'done'] }))
  send(question(101, 'exec.start', { session_id, argv: ['true'] }))
  send(question(102, 'session.open', { client_name: 'late' }))
  send(question(103, 'fs.write', { session_id, path: 'late', content: 'x' }))
  input.end()
  await served
  assert.deepEqual(
    [100, 101, 102, 103].map((id) => answers.get(id)?.error ?? 'done'),
    ['done', 'done', 'done', 'done'],
  )
  for (let id = 0; id < 20; id++) assert.equal(answers.get(id).result.signal, 'SIGTERM')
})

/** Checks that another client can open a session and kill the program that all batches wait for. */
const othersAreHeard = async (host: Reached, asked: { session_id: string; process_id: string }): Promise<void> => {
  assert.match((await post(host, 'session.open', { client_name: 'b' })).session_id, /^s_/)
  assert.deepEqual(await post(host, 'exec.kill', asked), { ok: true })
}

test('batches that wait free their places over HTTP, and other requests are answered meanwhile', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  const { process_id } = await post(host, 'exec.start', { session_id, argv: ['sleep', '600'] })
  const asked = { session_id, process_id }
  const body = [question(1, 'exec.wait', asked), question(2, 'session.info', { session_id })]
  const batches = many(2 * MAX_RPC_PENDING, async () => ask(host, { body }))
  await othersAreHeard(host, asked)
  for (const batch of batches) assert.deepEqual((await batch).json[0].result.signal, 'SIGTERM')
})

const nothingWhileFull = async (t: TestContext, compressed: boolean): Promise<void> => {
  const { executor, ...host } = await startRpcHost(t, LONG)
  const reads = countReads(executor)
  await writeFile(join(host.root, 'large'), Buffer.alloc(2 * MIB))
  const lines: Socket[] = []
  const createConnection: ClientOptions['createConnection'] = (options) => {
    const line = connectTcp(options as NetConnectOpts)
    lines.push(line)
    return line
  }
  const caller = await connect(t, host, { perMessageDeflate: compressed && { threshold: 0 }, createConnection })
  const { session_id } = await caller.call('session.open', { client_name: 'a' })
  const { socket } = caller
  socket.pause()
  // Send all messages in as few pieces as possible.
  lines[0]!.cork()
  for (let id = 100; id < 200; id++) socket.send(JSON.stringify(question(id, 'fs.read', { session_id, path: 'large', encoding: 'base64' })))
  await aWhile()
  lines[0]!.uncork()
  await aWhile()
  // The system buffers hold some of the first answers.
  assert.ok(reads.count > 0 && reads.count <= 2 * MAX_RPC_PENDING, `${reads.count} files were read for nobody`)
  const answered = Promise.withResolvers<void>()
  let count = 0
  socket.on('message', () => ++count === 100 && answered.resolve())
  socket.resume()
  await answered.promise
  assert.equal(reads.count, 100)
}

test('a WebSocket whose client does not read stops executing requests', TIMEOUT, async (t) => nothingWhileFull(t, false))
test('a compressed WebSocket whose client does not read stops executing requests', TIMEOUT, async (t) => nothingWhileFull(t, true))

test('ended processes with unread output count against the process limit until their events are read', TIMEOUT, async (t) => {
  const host = await startRpcHost(t, { limits: 'max_processes_per_session = 2' })
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  const readAll = async (): Promise<void> => {
    for (let [cursor, more] = [0, true]; more;) {
      const answer = await post(host, 'session.events', { session_id, cursor })
      ;[cursor, more] = [answer.cursor, answer.events.length > 0]
    }
  }
  // After the first read of events, the session drops no event.
  await readAll()
  const start = async (...argv: string[]): Promise<Json> => post(host, 'exec.start', { session_id, argv })
  // More output than the session keeps, but less than the limit plus what a program may write ahead.
  const { process_id } = await start('head', '-c', String(Math.floor((MAX_EVENT_LOG_BYTES * 3) / 4) + 200_000), '/dev/zero')
  while ((await post(host, 'exec.kill', { session_id, process_id, signal: 'CONT' })).ok)
    await new Promise((resolve) => setTimeout(resolve, 20))
  assert.equal((await post(host, 'exec.wait', { session_id, process_id, timeout_ms: 0 })).held, true)
  const silent = await start('true')
  assert.equal((await post(host, 'exec.wait', { session_id, process_id: silent.process_id })).status, 'exited')
  await assert.rejects(start('true'), { code: -32008, data: { code: 'resource_limit', limit: 'max_processes_per_session', max: 2 } })
  await readAll()
  assert.equal((await post(host, 'exec.wait', { session_id, process_id })).status, 'exited')
  await start('true')
})

test('a session whose client disconnects before the answer is closed, so it does not use up the session limit', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { executor } = host
  const [open, close] = [executor.open.bind(executor), executor.close.bind(executor)]
  for (let round = 0; round < 20; round++) {
    const hungUp = new AbortController()
    const [opened, closed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    executor.open = async (opening) => {
      const answer = await open(opening)
      opened.resolve()
      hungUp.abort()
      // The server must notice the closed connection before it answers.
      await new Promise((resolve) => setTimeout(resolve, 100))
      return answer
    }
    executor.close = async (session) => {
      const ended = await close(session)
      closed.resolve()
      return ended
    }
    const asked = ask(host, { body: question(1, 'session.open', { client_name: 'gone' }), signal: hungUp.signal })
    await assert.rejects(asked)
    await Promise.all([opened.promise, closed.promise])
  }
  executor.open = open
  assert.match((await post(host, 'session.open', { client_name: 'here' })).session_id, /^s_/)
})
