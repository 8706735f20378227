import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { MAX_TERMINAL_DATA, MAX_TERMINAL_FRAMES_UNACKED, MAX_TERMINAL_UNACKED } from '../../../src/protocol/limits/terminal.ts'
import { EXEC_REQUEST_DOMAIN, execExit, execFrame, type ExecExit } from '../../../src/protocol/wire/exec.ts'
import { ExecutorHost, type HostOptions } from '../../support/executor-host.ts'
import { newParty, type FakeLink } from '../../support/fake-network.ts'
import { until } from '../../support/mesh-of-daemons.ts'
import { ProbeTerminal, type ProbeInput } from '../../support/probe-terminal.ts'

// The executor process of the target and its own network process, which may be captured. Real programs run on real terminals.

/** Prints the input without additions of the terminal. */
const SCRIPTS = {
  raw: 'stty raw -echo; echo ready; exec cat',
  sized: "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done",
  idle: 'stty raw -echo; echo ready; sleep 60',
  hup: "trap 'exit 5' HUP; trap '' TERM; echo ready; while :; do sleep 0.05; done",
}

const hostOf = async (t: TestContext, options: HostOptions = {}) =>
  ExecutorHost.linked(t, { scripts: SCRIPTS, terminals: true, ...options })

const open = async ({ host, link }: { host: ExecutorHost; link: FakeLink }, name: keyof typeof SCRIPTS): Promise<ProbeTerminal> =>
  ProbeTerminal.open(link, [host.program(name)])

const exitOf = async ({ run }: ProbeTerminal): Promise<ExecExit> => {
  const frame = await run.frame('exit')
  return execExit.decode(frame.body)
}

test('keys reach the program in order and are acknowledged, and the audit log mentions the terminal', async (t) => {
  const { host, link } = await hostOf(t)
  const terminal = await open({ host, link }, 'raw')
  await terminal.shows('ready')
  for (const text of ['a', 'bc', '\u0003\u001b[A', 'é']) await terminal.type(text)
  await terminal.shows('abc\u0003\u001b[Aé')
  await until('all is acknowledged', () => terminal.acked === 4)
  terminal.run.cancel()
  assert.equal((await exitOf(terminal)).signal, 1)
  const request = (await host.lines()).find(({ event }) => event === 'request') as Record<string, unknown> | undefined
  assert.equal(request?.['terminal'], true)
})

test('a terminal starts with the requested size, and many size changes at once end with the last', async (t) => {
  const terminal = await open(await hostOf(t), 'sized')
  await terminal.shows('24 80')
  await terminal.resize(100, 30)
  await terminal.shows('30 100')
  for (let at = 0; at < MAX_TERMINAL_FRAMES_UNACKED - 1; at++) await terminal.resize(10 + at, 20)
  await terminal.shows(`20 ${10 + MAX_TERMINAL_FRAMES_UNACKED - 2}`)
  terminal.run.cancel()
  await exitOf(terminal)
  // Sizes in between were joined, so that the program was not kept busy.
  const sizes =
    terminal.run
      .output()
      .toString()
      .match(/^\d+ \d+/gm) ?? []
  assert.ok(sizes.length < MAX_TERMINAL_FRAMES_UNACKED / 2, `${sizes.length} sizes`)
})

test('a lost requester hangs up a program that ignores SIGTERM', async (t) => {
  const { host, network, link } = await hostOf(t)
  const terminal = await ProbeTerminal.open(link, [host.program('hup')])
  await terminal.shows('ready')
  network.client.stop()
  await until('its end is in the audit log', async () => (await host.lines()).some(({ event }) => event === 'exit'))
  const exit = (await host.lines()).find(({ event }) => event === 'exit') as Record<string, unknown> | undefined
  assert.equal(exit?.['code'], 5)
})

const mallory = newParty()
const ATTACKS: Readonly<Record<string, (terminal: ProbeTerminal, other: ProbeTerminal) => readonly ProbeInput[]>> = {
  'signed by another agent': () => [{ signer: mallory.signer }],
  'without a signature': () => [{ signer: { sign: async () => new Uint8Array(3309) } }],
  'signed as a request': () => [{ domain: EXEC_REQUEST_DOMAIN }],
  'signed for another run': (_terminal, other) => [{ request_sha256: other.requestSha256 }],
  'signed with another number': () => [{ seq: 0, frameSeq: 1 }],
  'with a used number': () => [{ seq: 0 }, { seq: 0 }],
  'after a skipped number': () => [{ seq: 1 }],
  'without data': () => [{ data: new Uint8Array(0) }],
}

for (const [what, inputs] of Object.entries(ATTACKS))
  test(`terminal input ${what} is not typed and ends the run`, async (t) => {
    const parts = await hostOf(t)
    const [terminal, other] = [await open(parts, 'raw'), await open(parts, 'raw')]
    await Promise.all([terminal.shows('ready'), other.shows('ready')])
    const all = inputs(terminal, other)
    for (const [at, input] of all.entries()) terminal.run.sendBytes(await terminal.frame({ data: Buffer.from(`EVIL${at}`), ...input }))
    await terminal.run.closed
    const typed = terminal.run
      .output()
      .toString()
      .replace(/^ready\r?\n/, '')
    assert.ok(all.length === 1 ? typed === '' : ['', 'EVIL0'].includes(typed), typed)
    // The other run was not disturbed.
    await other.type('fine')
    await other.shows('fine')
    other.run.cancel()
    await exitOf(other)
  })

test('a recorded input frame of another run is not typed into this one', async (t) => {
  const parts = await hostOf(t)
  const [terminal, other] = [await open(parts, 'raw'), await open(parts, 'raw')]
  await Promise.all([terminal.shows('ready'), other.shows('ready')])
  const recorded = execFrame.decode(await other.frame({ data: Buffer.from('EVIL') }))
  assert.ok(recorded.type === 'terminal_input')
  terminal.run.send({ ...recorded, request_id: terminal.run.id })
  await terminal.run.closed
  assert.ok(!terminal.run.output().includes('EVIL'))
  other.run.cancel()
  await exitOf(other)
})

test('input above the window, in bytes or frames, ends the run', async (t) => {
  const parts = await hostOf(t)
  const bytes = await open(parts, 'idle')
  await bytes.shows('ready')
  const data = Buffer.alloc(MAX_TERMINAL_DATA, 'x')
  for (let at = 0; at <= MAX_TERMINAL_UNACKED / MAX_TERMINAL_DATA + 1; at++) await bytes.type(data)
  await bytes.run.closed
  const frames = await open(parts, 'idle')
  await frames.shows('ready')
  // All frames are signed before the first is sent, so that none is acknowledged in between.
  const all = await Promise.all(
    Array.from({ length: MAX_TERMINAL_FRAMES_UNACKED + 8 }, async (_none, seq) => frames.frame({ seq, data: Buffer.from('x') })),
  )
  for (const frame of all) frames.run.sendBytes(frame)
  await frames.run.closed
})

test('stdin for a run on a terminal ends that run', async (t) => {
  const { host, link } = await hostOf(t)
  const terminal = await open({ host, link }, 'raw')
  await terminal.shows('ready')
  terminal.run.send({ type: 'stdin', request_id: terminal.run.id, seq: 0, data: Buffer.from('EVIL'), eof: false })
  await terminal.run.closed
  assert.ok(!terminal.run.output().includes('EVIL'))
  const piped = await link.ask([host.program('raw')], { stdin: Buffer.from('x') })
  piped.sendBytes(await new Promise<Uint8Array>((resolve) => void terminal.frame({ data: Buffer.from('EVIL') }).then(resolve)))
  piped.cancel()
  await piped.closed
})

test('a command without terminal = true is denied on a terminal and runs without one', async (t) => {
  const { host, link } = await hostOf(t, { terminals: false, scripts: { ...SCRIPTS, hello: 'echo hello' } })
  const denied = await ProbeTerminal.open(link, [host.program('hello')])
  await denied.run.closed
  assert.equal((await exitOf(denied)).denial_reason, 'terminal_not_allowed')
  const run = await link.ask([host.program('hello')])
  assert.equal((await run.exit()).code, 0)
})
