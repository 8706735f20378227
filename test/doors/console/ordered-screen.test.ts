import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import { systemClock, type Clock } from '../../../src/base/clock.ts'
import { OrderedScreen } from '../../../src/doors/console/screen/console-screen.ts'
import type { ShownRun } from '../../../src/doors/console/screen.ts'
import { HumanTerminal } from '../../support/human-terminal.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const collect = async (): Promise<number> => {
  setFlagsFromString('--expose-gc')
  // The runtime frees buffers a moment after it frees the objects that hold them.
  for (let round = 0; round < 3; round++) {
    ;(runInNewContext('gc') as () => void)()
    await sleep(20)
  }
  return process.memoryUsage().arrayBuffers
}

const run = (n: number, whoami: string, ...argv: string[]): ShownRun => ({
  n,
  whoami,
  dir: '/repo',
  argv,
  timeout_ms: null,
  started_at: '2026-11-23T10:00:00Z',
})
const WELL = { exit: 0, error: null, duration_ms: 10 }

const open = (t: TestContext, init: { columns?: number; rows?: number; plain?: boolean; clock?: Clock } = {}) => {
  const terminal = new HumanTerminal(init)
  const asked: string[] = []
  const paused = new Set<string>()
  const plain = init.plain === true
  const screen = new OrderedScreen({
    output: terminal,
    clock: init.clock ?? systemClock,
    plain,
    look: { colour: !plain, drawn: !plain },
    controls: {
      abort: (n) => asked.push(`abort ${n}`),
      paused,
      pause: (whoami) => {
        asked.push(`pause ${whoami}`)
        paused.add(whoami)
      },
      resume: (whoami) => {
        asked.push(`resume ${whoami}`)
        paused.delete(whoami)
      },
      stop: () => asked.push('stop'),
    },
  })
  t.after(async () => {
    terminal.goOn()
    await screen.close()
  })
  return { terminal, screen, asked, write: (n: number, text: string) => screen.output(n, Buffer.from(text)) }
}

test('the screen shows commands whole and in the order of arrival, even if a later one ends first', async (t) => {
  const { terminal, screen, write } = open(t)
  screen.start(run(1, 'codex', 'slow'))
  screen.start(run(2, 'gemini', 'fast', 'a b'))
  screen.start(run(3, 'gemini', 'other'))
  write(2, 'of the fast one\r\n')
  write(1, 'first of the slow one\r\n')
  write(3, 'of the other')
  screen.end(2, WELL)
  screen.end(3, { exit: 143, error: 'aborted', duration_ms: 61_000 })
  await terminal.shows(/slow · \d+ s · next: 2 done · \? help/)
  assert.ok(!terminal.lines().some((line) => line.includes('fast')))
  write(1, 'last of the slow one\r\n')
  screen.end(1, WELL)
  await screen.close()
  assert.deepEqual(terminal.lines(), [
    '[2026-11-23T10:00:00Z] codex:/repo $ slow',
    '│ first of the slow one',
    '│ last of the slow one',
    '',
    "[2026-11-23T10:00:00Z] gemini:/repo $ fast 'a b'",
    '│ of the fast one',
    '',
    '[2026-11-23T10:00:00Z] gemini:/repo $ other',
    '│ of the other',
    '└ aborted, exit 143 (SIGTERM), after 1 min 1 s',
  ])
})

test('a progress bar is redrawn in its place and appears once in the final output', async (t) => {
  const { terminal, screen, write } = open(t)
  screen.start(run(1, 'codex', 'build'))
  write(1, 'begin\r\n\u001b[32m10 %\u001b[m')
  await terminal.shows('│ 10 %')
  write(1, '\r\u001b[K20 %')
  await terminal.shows('│ 20 %')
  assert.deepEqual(terminal.seen().slice(1, 3), ['│ begin', '│ 20 %'])
  write(1, '\u001b[1A\rBEGIN\r\n100 %\r\n')
  screen.end(1, WELL)
  await screen.close()
  assert.deepEqual(terminal.lines().slice(1), ['│ BEGIN', '│ 100 %'])
})

test('the plain screen prints lines when they are complete and repeats a line that changes later with a mark', async (t) => {
  const { terminal, screen, write } = open(t, { plain: true })
  screen.start(run(1, 'codex', 'build'))
  write(1, 'one\r\ntwo\r\n10 %\r20 %')
  await terminal.shows('| two')
  assert.ok(!terminal.lines().some((line) => line.includes('20 %')))
  write(1, '\u001b[2A\rONE\r\n\n\r30 %\r\nlast\r\n')
  screen.end(1, { exit: 2, error: null, duration_ms: 100 })
  await screen.close()
  assert.deepEqual(terminal.lines().slice(1), ['| one', '| two', '| 30 %', '| last', '~ ONE', '= exit 2, after 0.1 s'])
})

test('a blocked terminal does not block commands, and the screen counts the output that it leaves out', async (t) => {
  const { terminal, screen } = open(t)
  screen.start(run(1, 'codex', 'yes'))
  terminal.hold()
  const line = Buffer.from(`${'y'.repeat(78)}\r\n`)
  const block = Buffer.concat(Array.from({ length: 800 }, () => line))
  const before = await collect()
  for (let at = 0; at < 250; at++) {
    screen.output(1, block)
    if (at % 50 === 0) await sleep(1)
  }
  const more = (await collect()) - before
  // The command wrote 16 MB. Keeping a third of it would be too much.
  assert.ok(more < 6e6, String(more))
  assert.ok(terminal.writableLength < 300_000, String(terminal.writableLength))
  screen.output(1, Buffer.from('the end\r\n'))
  screen.end(1, WELL)
  terminal.goOn()
  const note = await terminal.shows(/^\[… \d+ bytes of output are not shown: the screen could not keep up\]/)
  await terminal.shows('│ the end')
  await screen.close()
  const shown = terminal.lines().filter((one) => one === `│ ${'y'.repeat(78)}`).length
  const leftOut = Number(/\d+/.exec(note)?.[0])
  assert.ok(leftOut > 13e6 && shown * 80 + leftOut <= 16e6 && shown * 80 + leftOut > 16e6 - 200, `${shown} ${leftOut}`)
})

test('x aborts only the command that the confirmation names', async (t) => {
  const { terminal, screen, asked } = open(t)
  screen.press('x')
  await terminal.shows('no command is running')
  screen.start(run(1, 'codex', 'make', 'all'))
  screen.press('x')
  await terminal.shows('x again aborts codex: make all')
  assert.deepEqual(asked, [])
  screen.press('x')
  assert.deepEqual(asked, ['abort 1'])
  // Another key and a paste do not confirm.
  for (const keys of ['x', 'y', 'x', '\u001b[A', 'xxxx']) screen.press(keys)
  assert.deepEqual(asked, ['abort 1'])
  screen.press('n')
  screen.press('x')
  screen.end(1, WELL)
  screen.start(run(2, 'codex', 'make', 'other'))
  await terminal.shows('make other')
  screen.press('x')
  assert.deepEqual(asked, ['abort 1', 'abort 1'])
})

test('p pauses and resumes an agent, and the status line names the paused agents', async (t) => {
  const { terminal, screen, asked } = open(t)
  for (const [at, name] of ['gemini', 'codex', 'gemini'].entries()) {
    screen.start(run(at + 1, name, 'id'))
    screen.end(at + 1, WELL)
  }
  screen.press('p')
  await terminal.shows(/^ press an AI agent's digit to pause or resume it/)
  assert.deepEqual(
    terminal.seen().filter((line) => /^ \d /.test(line)),
    [' 1 pause gemini', ' 2 pause codex'],
  )
  screen.press('2')
  await terminal.shows('nothing runs · paused: codex · ? help')
  await terminal.shows('[… codex is paused: its next commands wait]')
  screen.press('p')
  await terminal.shows(/^ 2 resume codex/)
  screen.press('2')
  await terminal.shows('[… codex continues]')
  assert.deepEqual(asked, ['pause codex', 'resume codex'])
})

test('^C ends the host, but asks first while commands run, and a second ^C confirms', async (t) => {
  const { terminal, screen, asked } = open(t)
  screen.start(run(1, 'codex', 'make'))
  screen.press('\u0003')
  await terminal.shows('1 command runs: ^C again stops the console and aborts it')
  assert.deepEqual(asked, [])
  screen.press('\u0003')
  assert.deepEqual(asked, ['stop'])
  screen.end(1, WELL)
  screen.press('\u0003')
  assert.deepEqual(asked, ['stop', 'stop'])
})

test('status and output fit terminals of any size, and a new size causes a redraw', async (t) => {
  for (const columns of [80, 40, 20, 12]) {
    const { terminal, screen, write } = open(t, { columns, rows: 10 })
    screen.start(run(1, 'Claude Code', 'cargo', 'test', '--workspace', '漢字'))
    screen.start(run(2, 'codex', 'ls'))
    write(1, '漢字'.repeat(30))
    await terminal.shows(/^ Claude /)
    terminal.resize(columns === 80 ? 50 : 80, 12)
    await terminal.shows(/^ Claude .* next: 1 running/)
    const seen = terminal.seen().filter((line) => line !== '')
    assert.ok(seen[0]?.startsWith('[2026'), JSON.stringify(seen))
    for (const line of seen.slice(1, -1)) assert.match(line, /^(│ |┊ | {4})/)
    assert.equal(seen.filter((line) => line.startsWith(' Claude')).length, 1)
  }
})

test('lines that are printed during a resize or redraw appear exactly once', async (t) => {
  const { terminal, screen } = open(t, { rows: 10 })
  screen.record('before')
  await terminal.shows('[… before]')
  const notes = Array.from({ length: 450 }, (_none, at) => `${at} ${'x'.repeat(200)}`)
  for (const note of notes) screen.record(note)
  // The notes are printed now, but not drawn.
  for (let turn = 0; turn < 10; turn++) await Promise.resolve()
  terminal.resize(300, 10)
  screen.press('\u000c')
  await screen.close()
  assert.deepEqual(
    terminal.lines().filter((line) => line !== ''),
    ['before', ...notes].map((note) => `[… ${note}]`),
  )
})

test('at most 500 notes wait for the screen, and it counts the others', async (t) => {
  const { terminal, screen } = open(t)
  for (let n = 0; n < 700; n++) screen.record(`note ${n}`)
  await terminal.shows('[… 200 lines are not shown: the screen could not keep up]')
  await terminal.shows('[… note 499]')
  assert.ok(!terminal.lines().some((line) => line.includes('note 500')))
})

test('the screen closes even if the terminal accepts no output', async (t) => {
  const clock = new ManualClock()
  const { terminal, screen } = open(t, { clock })
  terminal.hold()
  screen.start(run(1, 'codex', 'make'))
  await clock.advance(40)
  const closing = screen.close()
  for (let at = 0; at < 10; at++) await clock.advance(500)
  await closing
  assert.ok(terminal.writableLength > 0)
})

test('the screen restores the terminal modes and colours when it closes', async (t) => {
  const { terminal, screen } = open(t)
  screen.start(run(1, 'codex', 'make'))
  screen.output(1, Buffer.from('\u001b[31mred'))
  await terminal.shows('│ red')
  // Without automatic wrapping, a row stays in its line even if the terminal gives a character another width.
  assert.equal(terminal.modes.wraparoundMode, false)
  screen.end(1, WELL)
  await screen.close()
  assert.equal(terminal.modes.wraparoundMode, true)
  assert.ok(await terminal.leavesNoColour())
  assert.deepEqual(
    terminal.lines().filter((line) => line.includes('help')),
    [],
  )
})

test('output that waits after an endless command is bounded, and the screen counts the commands that it leaves out', async (t) => {
  const { terminal, screen, write } = open(t)
  screen.start(run(1, 'codex', 'forever'))
  const beginning = Buffer.alloc(256 * 1024, 'y')
  const before = await collect()
  const heap = process.memoryUsage().heapUsed
  for (let n = 2; n <= 602; n++) {
    const long = Buffer.alloc(n > 102 ? 1 : 512 * 1024, 'a').toString('latin1')
    screen.start(run(n, 'gemini', 'echo', String(n), long))
    if (n < 65) screen.output(n, beginning)
    write(n, `output ${n}\r\n`)
    screen.end(n, WELL)
  }
  const buffers = (await collect()) - before
  const grown = process.memoryUsage().heapUsed - heap
  assert.ok(buffers < 16 * 1024 * 1024, `${buffers} bytes in buffers`)
  assert.ok(grown < 16 * 1024 * 1024, `${grown} bytes in the heap`)
  // The memory of the commands that are left out is free for others.
  screen.start(run(603, 'gemini', 'true'))
  screen.output(603, Buffer.alloc(400_000, 'x'))
  write(603, '\r\nend of 603')
  screen.end(1, WELL)
  await terminal.shows('│ output 602')
  await terminal.shows('│ end of 603')
  const lines = terminal.lines()
  const [first, last] = ['│ output 105', '│ output 602'].map((line) => lines.indexOf(line))
  const note = lines.findIndex((line) => line.startsWith('[… 103 commands are not shown'))
  assert.ok(note !== -1 && note < first! && first! < last!, `${note} ${first} ${last}`)
  assert.ok(!lines.includes('│ output 104'))
})

test('a paused agent can be resumed after many other agents have appeared', async (t) => {
  const { terminal, screen, asked } = open(t)
  screen.start(run(1, 'codex', 'true'))
  screen.end(1, WELL)
  screen.press('p')
  await terminal.shows('1 pause codex')
  screen.press('1')
  for (let n = 2; n <= 100; n++) {
    screen.start(run(n, `name ${n}`, 'true'))
    screen.end(n, WELL)
  }
  screen.press('p')
  await terminal.shows('9 resume codex')
  screen.press('9')
  assert.deepEqual(asked, ['pause codex', 'resume codex'])
})

test('the elapsed time of a command advances without other events', async (t) => {
  const clock = new ManualClock()
  const { terminal, screen } = open(t, { clock })
  screen.start(run(1, 'codex', 'make'))
  for (const seconds of [0, 1, 2]) {
    await clock.advance(40)
    await terminal.shows(` codex: make · ${seconds} s · ? help`)
    await clock.advance(960)
  }
  screen.end(1, WELL)
  const closing = screen.close()
  await clock.advance(40)
  await closing
})

test('on a plain screen, each ? prints the list of keys once, and other keys do not', async (t) => {
  const { terminal, screen } = open(t, { plain: true })
  for (const key of ['?', 'y', '?', 'n']) screen.press(key)
  screen.record('the end')
  await terminal.shows('[… the end]')
  assert.equal(terminal.lines().filter((line) => line.includes('stop the command that is shown')).length, 2)
})

test('? shows and hides the list of keys above the status', async (t) => {
  const { terminal, screen } = open(t, { columns: 60, rows: 12 })
  screen.press('?')
  await terminal.shows('x   stop the command that is shown')
  screen.press('?')
  for (; terminal.seen().some((line) => line.startsWith('x   stop'));) await sleep(10)
  assert.equal(terminal.seen().filter((line) => line.includes('nothing runs')).length, 1)
})
