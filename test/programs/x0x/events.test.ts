import assert from 'node:assert/strict'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { main } from '../../../src/programs/x0x/main.ts'
import { MAX_KEPT_EVENTS } from '../../../src/protocol/limits/events.ts'
import type { LifecycleLog } from '../../../src/protocol/events/event-log.ts'
import { lifecycleEvent, type LifecycleFacts } from '../../../src/protocol/events/lifecycle.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { json, fakeDaemon, runCli } from '../../support/fake-daemon.ts'
import { newLifecycleLog } from '../../support/lifecycle.ts'
import { OTHER_AGENT, startDoor, TOKEN } from '../../support/rest-server.ts'
import { tempDir } from '../../support/temp-dir.ts'

const FACTS: LifecycleFacts = { type: 'exec.finished', owner: 'me', session: null, door: 'rest', run_id: 'r1', node: OTHER_AGENT, code: 0 }
const SENTENCE = `Exec finished (node=${OTHER_AGENT}, id=r1, code=0)`

/** Starts a fake daemon with this event log in the directory. */
const daemonIn = async (t: TestContext, dir: string, events: LifecycleLog): Promise<{ stop(): Promise<void> }> => {
  await writeFile(join(dir, 'api-token'), `${TOKEN}\n`, { mode: 0o600 })
  const { door } = await startDoor(t, { events }, { socket: { path: join(dir, 'api.sock') } })
  return door
}

const placeWith = async (t: TestContext, events: LifecycleLog): Promise<string> => {
  const dir = await tempDir(t)
  await chmod(dir, 0o700)
  await daemonIn(t, dir, events)
  return dir
}

/** A command that runs until it is interrupted. */
class Following {
  readonly #stdout = new PassThrough()
  readonly #stderr = new PassThrough()
  readonly #waiting = new Set<() => void>()
  readonly status: Promise<number>
  text = ''
  problems = ''
  end: () => void = () => undefined

  constructor(argv: readonly string[]) {
    this.#stdout.on('data', (part: Buffer) => this.#said(() => (this.text += part.toString())))
    this.#stderr.on('data', (part: Buffer) => this.#said(() => (this.problems += part.toString())))
    const onSignal = (listener: (signal: NodeJS.Signals) => void): (() => void) => {
      this.end = () => listener('SIGINT')
      return () => undefined
    }
    const stdin = new PassThrough()
    stdin.end()
    this.status = main(argv, { NO_COLOR: '1' }, { stdin, stdout: this.#stdout, stderr: this.#stderr, onSignal })
  }

  #said(add: () => void): void {
    add()
    for (const look of this.#waiting) look()
  }

  async saw(what: RegExp): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const look = (): void => {
      if (what.test(this.text) || what.test(this.problems)) resolve()
    }
    this.#waiting.add(look)
    look()
    await promise
  }
}

test('x0x events prints stored events as sentences, or as JSON with --json', async (t) => {
  const log = newLifecycleLog()
  const dir = await placeWith(t, log)
  log.add({ ...FACTS, type: 'exec.started', code: null })
  log.add({ ...FACTS, tail: 'one\n\u001b[2Jtwo\u202e\n', session: 'a' })
  const { status, stdout } = await runCli(['--data-dir', dir, 'events'])
  const [first, second, ...tail] = stdout.split('\n')
  assert.equal(status, 0)
  assert.match(first!, /^1 {2}\S+ {2}Exec started \(node=c{64}, id=r1\)$/)
  assert.ok(second?.startsWith('2  ') && second.endsWith(SENTENCE))
  assert.deepEqual(tail, ['  one', '  \\x1b[2Jtwo\\u202e', ''])
  const since = await runCli(['--data-dir', dir, 'events', '--since', '1', '--json'])
  const { events, gap, next } = JSON.parse(since.stdout)
  assert.deepEqual(
    [events.length, events[0].tail, events[0].text, gap, next],
    [1, 'one\n\u001b[2Jtwo\u202e\n', SENTENCE, null, `${log.id}.2`],
  )
  const { stdout: none } = await runCli(['--data-dir', dir, 'events', '--session', 'b'])
  assert.equal(none, '')
})

test('x0x events reads all stored events and says which are missing', async (t) => {
  const log = newLifecycleLog()
  const dir = await placeWith(t, log)
  for (let n = 0; n < MAX_KEPT_EVENTS + 3; n++) log.add(FACTS)
  const { stdout } = await runCli(['--data-dir', dir, 'events', '--since', '1'])
  const lines = stdout.trimEnd().split('\n')
  assert.equal(lines[0], '(events up to 3 are missing: they are no longer kept)')
  assert.equal(lines.length, MAX_KEPT_EVENTS + 1)
})

test('a value of --since that is not a number exits with 2', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, {}))
  const { status, stderr } = await runCli(['--data-dir', dir, 'events', '--since', 'yesterday'])
  assert.deepEqual([status, /--since must be the number of an event/.test(stderr)], [2, true])
})

test('x0x events --follow continues across a restart of the daemon, and a signal ends it', async (t) => {
  const [first, second] = [newLifecycleLog('a'.repeat(12)), newLifecycleLog('b'.repeat(12))]
  const dir = await tempDir(t)
  await chmod(dir, 0o700)
  const daemon = await daemonIn(t, dir, first)
  first.add({ ...FACTS, run_id: 'before' })
  const following = new Following(['--data-dir', dir, 'events', '--follow'])
  await following.saw(/id=before/)
  first.add({ ...FACTS, run_id: 'live' })
  await following.saw(/id=live/)
  await daemon.stop()
  await following.saw(/lost contact with x0xd/)
  second.add({ ...FACTS, run_id: 'after' })
  await daemonIn(t, dir, second)
  await following.saw(/id=after/)
  assert.match(following.text, /events may be missing/)
  following.end()
  assert.equal(await following.status, 0)
})

test('x0x events --follow shows local runs from the approval service, with or without a daemon', async (t) => {
  const place = await deskPlace(t)
  const { dir } = place.paths
  const following = new Following(['--data-dir', dir, 'events', '--follow'])
  const engine = place.engine('x0x mcp')
  await engine.override('s_1', null)
  const of = (more: Partial<LifecycleFacts>) =>
    lifecycleEvent(
      { ...FACTS, owner: 'reviewer', session: 's_1', door: 'mcp', node: 'gateway', ...more },
      { n: 7, ts: '2026-01-01T00:00:00.000Z' },
    )
  // The engine does not learn when a client subscribes, so it sends the event repeatedly.
  const timer = setInterval(() => engine.event(of({ run_id: 'local', tail: 'out\n' })), 50)
  t.after(() => clearInterval(timer))
  await following.saw(/-  2026-01-01T00:00:00.000Z {2}Exec finished \(node=gateway, id=local, code=0\) {2}by reviewer \(mcp\)\n {2}out\n/)
  clearInterval(timer)
  // The daemon that requested a run on a target reports it.
  engine.event(of({ run_id: 'there', node: OTHER_AGENT }))
  engine.event(of({ run_id: 'last' }))
  await following.saw(/id=last/)
  assert.ok(!following.text.includes('id=there'))
  const log = newLifecycleLog()
  log.add({ ...FACTS, run_id: 'mesh' })
  await daemonIn(t, dir, log)
  await following.saw(/id=mesh/)
  following.end()
  assert.equal(await following.status, 0)
})

test('x0x events --follow does not ask again after a restarted daemon refuses it', async (t) => {
  let asked = 0
  const { dir } = await fakeDaemon(t, (_request, response) => {
    asked += 1
    if (asked === 1) response.writeHead(200, { 'content-type': 'text/event-stream' }).end()
    else json(response, 401, { ok: false, error: 'unauthorized', message: 'that is no token of this daemon' })
  })
  const { status, stderr } = await runCli(['--data-dir', dir, 'events', '--follow'])
  assert.equal(status, 1)
  assert.match(stderr, /that is no token of this daemon/)
  assert.equal(asked, 2)
})

test('without a daemon and an approval service, x0x events --follow says how to start one', async (t) => {
  const dir = await tempDir(t)
  const { status, stderr } = await runCli(['--data-dir', dir, 'events', '--follow'])
  assert.deepEqual([status, stderr.includes('Try: x0xd ')], [255, true])
})
