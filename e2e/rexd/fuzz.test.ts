import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { describe, test, type TestContext } from 'node:test'

import { longOrShort } from '../../test/support/campaign.ts'
import { until } from '../../test/support/mesh-of-daemons.ts'
import { brokenFrames, upgraded } from './fuzz-frames.ts'
import { answersTo, Chance, everyFieldWrong, randomLine, type Live } from './fuzz-lines.ts'
import { Peer, type Reply, type Session } from './peer.ts'
import { startWebRexd, type ConfigOptions } from './server.ts'
import { overHttp, overStdio, overWebSocket, TRANSPORTS, type Transport } from './transports.ts'
import { WebSocketWire } from './websocket-wire.ts'

// Each request with an ID gets an answer to any input, and the server continues to work. The seed repeats a failure.

const SEED = Number(process.env['REXD_FUZZ_SEED'] ?? 20_260_225)
const AT_ONCE = longOrShort(2_000, 500)
const BROKEN_CONNECTIONS = 300
/** After this round, all memory that stays allocated has been allocated. */
const WARM_ROUND = 2
const MiB = 1024 * 1024
/** Maximum growth after that round. */
const MAX_GROWTH = 64 * MiB
const INTERNAL = -32_603

const CONFIG: ConfigOptions = {
  limits: ['max_concurrent_sessions = 1024', 'default_timeout_ms = 2000', 'hard_timeout_ms = 4000', 'max_output_bytes = 10000'],
  security: ['allow_env = ["LC_TIME"]', 'allow_commands = [{ argv = ["true"] }, { argv = ["cat"] }, { argv = ["echo"], args = "any" }]'],
}

/** A session and a process that the following lines can refer to. */
const begin = async (peer: Peer): Promise<{ session: Session; live: Live }> => {
  const session = await peer.session()
  await writeFile(session.path('file'), 'abc')
  const { id } = await session.start({ argv: ['cat'], stdin_open: true })
  return { session, live: { session_id: session.id, process_id: id } }
}

const keyOf = (id: unknown): string => JSON.stringify(id)

/** Sends lines and waits for all required answers. Fails if one is missing or there is one too many. */
const exchange = async (peer: Peer, live: Live, lines: readonly Buffer[]): Promise<void> => {
  const missing = new Map<string, number>()
  for (const id of lines.flatMap((line) => answersTo(line, peer.name === 'stdio')))
    missing.set(keyOf(id), (missing.get(keyOf(id)) ?? 0) + 1)
  const take = ({ id, error }: Reply): void => {
    assert.notEqual(error?.code, INTERNAL, `seed ${SEED}: ${JSON.stringify(error)} to ${keyOf(id)}`)
    const left = (missing.get(keyOf(id)) ?? 0) - 1
    assert.ok(left >= 0, `seed ${SEED}: an answer too many to ${keyOf(id)}`)
    if (left === 0) missing.delete(keyOf(id))
    else missing.set(keyOf(id), left)
  }
  for (const line of lines) peer.raw(line)
  // Ends the process, so that no request waits for it until its timeout.
  await peer.ask('exec.kill', { ...live, signal: 'KILL' })
  const drain = async (): Promise<boolean> => {
    while (peer.strays.length > 0) {
      const stray = await peer.stray<Reply | Reply[]>()
      for (const reply of Array.isArray(stray) ? stray : [stray]) take(reply)
    }
    return missing.size === 0 || !peer.process.running
  }
  try {
    await until('every request is answered', drain)
  } catch (error) {
    throw new Error(`seed ${SEED}: no answer to ${[...missing.keys()].slice(0, 5).join(', ')}`, { cause: error })
  }
  assert.ok(peer.process.running, `seed ${SEED}: rexd has ended: ${peer.process.stderr}`)
}

const stillWorks = async (peer: Peer): Promise<void> => {
  const { session } = await begin(peer)
  const log = await session.start({ argv: ['echo', 'fine'] })
  await log.finished()
  assert.equal(log.stdout.toString(), 'fine\n')
  assert.equal((await session.call('fs.read', { path: 'file' }))['content'], 'abc')
  await session.close()
}

/** A message that the transport can carry. A WebSocket with text that is not UTF-8 is closed (RFC 6455, 8.1). */
const carried = (transport: Transport, message: Buffer): Buffer =>
  transport.name === 'websocket' ? Buffer.from(message.toString()) : message

for (const transport of TRANSPORTS)
  test(`every field of every method gets an answer to every wrong value over ${transport.name}`, async (t) => {
    const peer = await transport.open(t, CONFIG)
    const { live } = await begin(peer)
    await exchange(peer, live, everyFieldWrong(live))
    await stillWorks(peer)
    await peer.close()
  })

const costsOf = ({ process }: Peer) => ({ memory: process.memory(), descriptors: readdirSync(`/proc/${process.pid}/fd`).length })

/** Sends messages in rounds, and checks that memory and file descriptors do not grow. */
const fuzz = async (t: TestContext, transport: Transport, amount: number): Promise<void> => {
  const peer = await transport.open(t, CONFIG)
  const chance = new Chance(SEED)
  let before = { memory: 0, descriptors: 0 }
  for (let round = 0; round * AT_ONCE < amount; round++) {
    const { live } = await begin(peer)
    const messages = Array.from({ length: AT_ONCE }, (_, at) => carried(transport, randomLine(chance, live, `${round}.${at}`)))
    await exchange(peer, live, messages)
    await peer.tidy()
    if (round === WARM_ROUND) before = costsOf(peer)
  }
  const { memory, descriptors } = costsOf(peer)
  const grown = memory - before.memory
  assert.ok(grown < MAX_GROWTH, `seed ${SEED}: ${Math.round(grown / MiB)} MiB more than after the first rounds`)
  assert.ok(descriptors <= before.descriptors + 10, `seed ${SEED}: ${descriptors} descriptors after ${before.descriptors}`)
  await stillWorks(peer)
  await peer.close()
}

// The long version sends a hundred thousand messages in all. Each transport has its own server.
describe('fuzzing in rounds', { concurrency: TRANSPORTS.length }, () => {
  test('thousands of random lines get the required answers', async (t) => fuzz(t, overStdio, longOrShort(70_000, 5_000)))
  test('thousands of random bodies over HTTP get the required answers', async (t) => fuzz(t, overHttp, longOrShort(10_000, 2_500)))
  test('thousands of random texts over a WebSocket get the required answers', async (t) =>
    fuzz(t, overWebSocket, longOrShort(20_000, 2_500)))
})

test('connections that break HTTP or WebSocket rules do not disturb others and leave no descriptors', async (t) => {
  const server = await startWebRexd(t, CONFIG)
  const peer = new Peer(await WebSocketWire.connect(server))
  await stillWorks(peer)
  const before = costsOf(peer)
  const chance = new Chance(SEED)
  for (let done = 0; done < BROKEN_CONNECTIONS; done += 20)
    await Promise.all(Array.from({ length: 20 }, async (_, at) => brokenFrames(server, chance, { afterUpgrade: at % 3 > 0 })))
  assert.ok((await upgraded(server)).startsWith('HTTP/1.1 101 '))
  await stillWorks(peer)
  await until('every connection is gone', () => costsOf(peer).descriptors <= before.descriptors)
  assert.ok(costsOf(peer).memory - before.memory < MAX_GROWTH)
  assert.equal(peer.process.stderr, '')
  await peer.close()
})
