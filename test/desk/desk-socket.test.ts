import assert from 'node:assert/strict'
import { createHash, createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmod, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'

import { startAll } from '../../src/base/startable.ts'
import { systemClock } from '../../src/base/clock.ts'
import { openDesk } from '../../src/desk/open-desk.ts'
import { MAX_DESK_CONNECTIONS, MAX_DESK_LINE, DESK_LINES } from '../../src/protocol/limits/approvals.ts'
import { lifecycleEvent } from '../../src/protocol/events/lifecycle.ts'
import { deskPlace, OPERATOR_KEY, type DeskPlaceHandle, questionWaiting } from '../support/desk-place.ts'
import { silent } from '../support/processes.ts'
import { questionOf } from '../support/approval-request.ts'

// The client here follows only proto/desk.md and proto/desk-vectors.json. It uses none of our code except the numbers of limits.

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')
const HUMAN_KEY = createHmac('sha256', OPERATOR_KEY).update('x0x-desk-human-v1').digest()

interface Told {
  readonly type: string
  readonly [key: string]: ReturnType<typeof JSON.parse>
}

/** A program that implements the protocol without our code. */
class OtherProgram {
  readonly socket: Socket
  readonly closed: Promise<unknown>
  readonly #lines: string[] = []
  #more: () => void = () => undefined
  #isOver = false
  nonce = ''
  role: 'engine' | 'human'
  key: Uint8Array

  constructor(path: string, role: 'engine' | 'human', key: Uint8Array) {
    this.socket = connect(path)
    this.socket.on('error', () => undefined)
    this.closed = new Promise((resolve) => this.socket.on('close', resolve))
    let rest = ''
    this.socket.setEncoding('utf8').on('data', (text: string) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      this.#lines.push(...lines)
      this.#more()
    })
    this.socket.on('close', () => {
      this.#isOver = true
      this.#more()
    })
    this.role = role
    this.key = key
  }

  async hello(): Promise<void> {
    const hello = JSON.parse((await this.#line()) ?? '') as { type: string; version: number; nonce: string }
    assert.equal(hello.type, 'hello')
    assert.equal(hello.version, 3)
    this.nonce = hello.nonce
  }

  sealed(body: object, { ts = Date.now(), nonce = randomBytes(16).toString('base64url'), role = this.role } = {}): string {
    const text = JSON.stringify(body)
    const signed = `x0x-desk-v1\n${role}\nto_desk\n${this.nonce}\n${nonce}\n${ts}\n${sha256(text)}`
    return `${JSON.stringify({ body: text, nonce, ts, mac: createHmac('sha256', this.key).update(signed).digest('hex') })}\n`
  }

  send(body: object): void {
    this.socket.write(this.sealed(body))
  }

  /** The next body from the service, after a check of its MAC. Null means that the connection ended. */
  async next(): Promise<Told | null> {
    const value = await this.#line()
    if (value === null) return null
    const { body, nonce, ts, mac } = JSON.parse(value) as { body: string; nonce: string; ts: number; mac: string }
    const signed = `x0x-desk-v1\n${this.role}\nfrom_desk\n${this.nonce}\n${nonce}\n${ts}\n${sha256(body)}`
    assert.equal(mac, createHmac('sha256', this.key).update(signed).digest('hex'))
    return JSON.parse(body) as Told
  }

  async #line(): Promise<string | null> {
    while (this.#lines.length === 0) {
      if (this.#isOver) return null
      await new Promise<void>((resolve) => (this.#more = resolve))
    }
    return this.#lines.shift() ?? null
  }

  async open(name = 'another window'): Promise<void> {
    await this.hello()
    this.send({ type: 'open', role: this.role, name })
    assert.deepEqual(await this.next(), { type: 'opened', role: this.role })
  }
}

const tokenOf = async ({ paths }: DeskPlaceHandle): Promise<Uint8Array> =>
  Buffer.from((JSON.parse(await readFile(paths.approvals, 'utf8')) as { socket: { token: string } }).socket.token, 'base64')

const other = async (t: TestContext, place: DeskPlaceHandle, role: 'engine' | 'human'): Promise<OtherProgram> => {
  const program = new OtherProgram(place.paths.approvalsSocket, role, role === 'human' ? HUMAN_KEY : await tokenOf(place))
  t.after(() => program.socket.destroy())
  return program
}

const refusals = async (place: DeskPlaceHandle): Promise<readonly Record<string, unknown>[]> =>
  (await place.journal()).filter(({ event }) => event === 'desk_refused')

test('third-party engines and approval clients that follow the documents can ask, decide and get answers', async (t) => {
  const place = await deskPlace(t)
  assert.equal((await stat(place.paths.approvalsSocket)).mode & 0o777, 0o600)
  const [engine, human] = [await other(t, place, 'engine'), await other(t, place, 'human')]
  await human.open()
  human.send({ type: 'subscribe', id: 1 })
  assert.deepEqual(await human.next(), { type: 'result', id: 1, result: { questions: [], floods: [], windows: 1 } })
  await engine.open('my engine')
  engine.send({ type: 'ask', id: 1, question: questionOf() })
  const pending = await engine.next()
  assert.equal(pending?.type, 'pending')
  const asked = await human.next()
  assert.equal(asked?.type, 'question')
  assert.equal(asked?.['engine'], 'my engine')
  human.send({
    type: 'decide',
    id: 2,
    question_id: asked?.['question_id'],
    permit_sha256: asked?.['question'].permit_sha256,
    decision: 'allow_once',
  })
  const told = [await human.next(), await human.next()]
  assert.deepEqual(told.map((one) => one?.type).toSorted(), ['result', 'settled'])
  const answer = await engine.next()
  assert.equal(answer?.['answer'].decision, 'allow')
  assert.equal(answer?.['answer'].by, 'human:another window')
  human.send({ type: 'history', id: 3, limit: 2 })
  const history = await human.next()
  assert.deepEqual(
    history?.['result'].lines.map((line: { event: string }) => line.event),
    ['question', 'approval'],
  )
})

for (const [what, line] of [
  ['a repeated line', async (p: OtherProgram) => p.sealed({ type: 'pending', id: 1 }).repeat(2)],
  ['a line from eleven seconds ago', async (p: OtherProgram) => p.sealed({ type: 'pending', id: 1 }, { ts: Date.now() - 11_000 })],
  [
    'a line from eleven seconds in the future',
    async (p: OtherProgram) => p.sealed({ type: 'pending', id: 1 }, { ts: Date.now() + 11_000 }),
  ],
  ['a line sealed with another role', async (p: OtherProgram) => p.sealed({ type: 'pending', id: 1 }, { role: 'engine' })],
  ['an unknown body', async (p: OtherProgram) => p.sealed({ type: 'approve', id: 1 })],
  ['a body with an unknown key', async (p: OtherProgram) => p.sealed({ type: 'pending', id: 1, approved: true })],
  ['a line that is not JSON', async () => 'approve everything\n'],
  ['a line without a MAC', async () => `${JSON.stringify({ body: '{"type":"pending","id":1}' })}\n`],
  ['a line over the size limit', async () => `${'x'.repeat(MAX_DESK_LINE + 1)}\n`],
  ['an unfinished line over the size limit', async () => 'x'.repeat(MAX_DESK_LINE + 1)],
  ['a second opening', async (p: OtherProgram) => p.sealed({ type: 'open', role: 'human', name: 'x' })],
] as const)
  test(`${what} ends the connection, is recorded in the approval log, and decides nothing`, async (t) => {
    const place = await deskPlace(t)
    const human = await other(t, place, 'human')
    await human.open()
    human.socket.write(await line(human))
    for (let told = await human.next(); told !== null; told = await human.next()) assert.equal(told.type, 'result')
    await place.stop()
    const [refused] = await refusals(place)
    assert.equal(refused?.['role'], 'human')
    assert.equal((await place.journal()).filter(({ event }) => event === 'approval').length, 0)
  })

test('a line recorded on one connection is refused on another', async (t) => {
  const place = await deskPlace(t)
  const [first, second] = [await other(t, place, 'human'), await other(t, place, 'human')]
  await first.open()
  await second.hello()
  second.socket.write(first.sealed({ type: 'open', role: 'human', name: 'replayed' }))
  assert.equal(await second.next(), null)
})

test("an engine's token cannot open an approval client, and an approver's key cannot open an engine", async (t) => {
  const place = await deskPlace(t)
  for (const [role, key] of [
    ['human', await tokenOf(place)],
    ['engine', HUMAN_KEY],
  ] as const) {
    const program = new OtherProgram(place.paths.approvalsSocket, role, key)
    t.after(() => program.socket.destroy())
    await program.hello()
    program.send({ type: 'open', role, name: 'x' })
    assert.equal(await program.next(), null)
    // A program that seals with its own role but claims the other is refused as well.
    const liar = new OtherProgram(place.paths.approvalsSocket, role === 'human' ? 'engine' : 'human', key)
    t.after(() => liar.socket.destroy())
    await liar.hello()
    liar.send({ type: 'open', role, name: 'x' })
    assert.equal(await liar.next(), null)
  }
})

test('an engine cannot list, watch or decide requests, or set modes', async (t) => {
  const place = await deskPlace(t)
  const { human, asked, question_id } = await questionWaiting(place)
  const permit_sha256 = questionOf().permit_sha256
  for (const body of [
    { type: 'pending', id: 1 },
    { type: 'subscribe', id: 1 },
    { type: 'decide', id: 1, question_id, permit_sha256, decision: 'allow_once' },
    { type: 'modes_set', id: 1, session: 's_1', override: null },
  ]) {
    const engine = await other(t, place, 'engine')
    await engine.open()
    engine.send(body)
    assert.equal(await engine.next(), null)
  }
  await human.decide({ question_id, permit_sha256, decision: 'deny' })
  assert.equal((await asked).decision, 'deny')
})

test('a connection over the limit gets rate_limited, and open connections and other roles continue', async (t) => {
  const place = await deskPlace(t)
  const windows: OtherProgram[] = []
  for (let n = 0; n < MAX_DESK_CONNECTIONS.human; n++) {
    const window = await other(t, place, 'human')
    await window.open()
    windows.push(window)
  }
  const more = await other(t, place, 'human')
  await more.hello()
  more.send({ type: 'open', role: 'human', name: 'one too many' })
  const told = await more.next()
  assert.equal(told?.type, 'error')
  assert.equal(told?.['code'], 'rate_limited')
  assert.equal(await more.next(), null)
  windows[0]?.send({ type: 'pending', id: 1 })
  assert.equal((await windows[0]?.next())?.type, 'result')
  const engine = await other(t, place, 'engine')
  await engine.open()
})

test('unauthenticated connections have their own limit', async (t) => {
  const place = await deskPlace(t)
  const silentOnes: OtherProgram[] = []
  for (let n = 0; n < MAX_DESK_CONNECTIONS.unproven; n++) {
    const one = await other(t, place, 'human')
    await one.hello()
    silentOnes.push(one)
  }
  const more = await other(t, place, 'human')
  await more.closed
  silentOnes[0]?.send({ type: 'open', role: 'human', name: 'at last' })
  assert.equal((await silentOnes[0]?.next())?.type, 'opened')
})

test('a client that exceeds the rate of lines is disconnected', async (t) => {
  const place = await deskPlace(t)
  const human = await other(t, place, 'human')
  await human.open()
  for (let n = 0; n < 2 * DESK_LINES.burst; n++)
    human.socket.write(human.sealed({ type: 'modes_get', id: n + 1, session: null, agent: null }))
  await human.closed
  await place.stop()
  assert.ok((await refusals(place)).some(({ code }) => code === 'rate_limited' || code === 'malformed'))
})

test('a flood of run events does not disconnect a slow approval client, which still gets requests', async (t) => {
  const place = await deskPlace(t)
  const human = await other(t, place, 'human')
  await human.open()
  human.send({ type: 'subscribe', id: 1 })
  assert.equal((await human.next())?.type, 'result')
  human.socket.pause()
  const engine = place.engine()
  await engine.override('s_1', null)
  const facts = { type: 'exec.finished', owner: 'reviewer', session: 's_1', door: 'mcp', node: 'gateway', code: 0 } as const
  for (let n = 0; n < 100; n++) {
    engine.event(lifecycleEvent({ ...facts, run_id: `r${n}`, tail: '\u0001'.repeat(20_000) }, { n, ts: '2026-01-01T00:00:00.000Z' }))
    // Wait until the service has processed the events.
    if (n % 8 === 0) await engine.override('s_1', null)
  }
  const pending = Promise.withResolvers<{ question_id: string }>()
  const asked = engine.ask(questionOf(), AbortSignal.timeout(60_000), pending.resolve)
  asked.catch(() => undefined)
  const answered = asked.then(({ decision }) => decision)
  assert.notEqual(await Promise.race([pending.promise, answered]), 'no_ui')
  human.socket.resume()
  let told = await human.next()
  let events = 0
  for (; told !== null && told.type !== 'question'; told = await human.next()) events += 1
  assert.equal(told?.['question_id'], (await pending.promise).question_id)
  assert.ok(events > 0 && events < 100, `${events}`)
  const { question_id, question } = told as unknown as { question_id: string; question: { permit_sha256: string } }
  human.send({ type: 'decide', id: 2, question_id, permit_sha256: question.permit_sha256, decision: 'deny' })
  assert.equal(await answered, 'deny')
})

test('a second service does not take the socket of a live one', async (t) => {
  const place = await deskPlace(t)
  const again = openDesk(
    { clock: systemClock, log: silent },
    { paths: place.paths, operatorKey: async () => OPERATOR_KEY, askTimeoutMs: 1_000, signer: null },
  )
  await assert.rejects(startAll(again.entries), { code: 'conflict' })
  const human = await place.human()
  assert.equal((await human.pending()).questions.length, 0)
})

test('a service replaces no file or foreign socket in place of its socket, and clients do not trust the foreign one', async (t) => {
  const place = await deskPlace(t)
  await place.stop()
  const { approvalsSocket: path } = place.paths
  await writeFile(path, 'mine')
  await assert.rejects(place.restart(), { code: 'conflict' })
  assert.equal(await readFile(path, 'utf8'), 'mine')
  await rm(path)
  const squatter = createServer((socket) => socket.on('error', () => undefined).end('{"type":"hello","version":3,"nonce":"x"}\n'))
  t.after(() => squatter.close())
  await once(squatter.listen(path), 'listening')
  await assert.rejects(place.restart(), { code: 'conflict' })
  // The foreign program holds the path, but not the token.
  await chmod(path, 0o600)
  const ask = place.engine().ask(questionOf(), new AbortController().signal, () => undefined)
  await assert.rejects(ask, { code: 'approval_unavailable' })
  await assert.rejects(place.human())
})

test('the service opens no socket in a directory that other users can write', async (t) => {
  const place = await deskPlace(t)
  await place.stop()
  await chmod(place.paths.dir, 0o777)
  await assert.rejects(place.restart(), { code: 'loose_permissions' })
  await chmod(place.paths.dir, 0o700)
})
