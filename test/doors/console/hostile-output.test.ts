import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { systemClock } from '../../../src/base/clock.ts'
import { TerminalFilter } from '../../../src/base/terminal-text.ts'
import { renderEntry } from '../../../src/doors/console/render-entry.ts'
import { OrderedScreen } from '../../../src/doors/console/screen/console-screen.ts'
import type { ShownRun } from '../../../src/doors/console/screen.ts'
import { OutputFilter } from '../../../src/doors/console/screen/run-view.ts'
import { HumanTerminal } from '../../support/human-terminal.ts'
import { entry } from '../../support/transcripts.ts'

const ESC = '\u001b'
const FAKE = '[2026-01-01T00:00:00Z] root:/ $ all is well'
const CONTROLS = { abort: () => {}, paused: new Set<string>(), pause: () => {}, resume: () => {}, stop: () => {} }

const run = (n: number, argv: readonly string[] = ['job']): ShownRun => ({
  n,
  whoami: 'codex',
  dir: '/repo',
  argv,
  timeout_ms: null,
  started_at: '2026-11-23T10:00:00Z',
})

interface Shown {
  readonly lines: string[]
  readonly terminal: HumanTerminal
}

/** Returns the lines that a user sees when commands write these bytes. Each list is the output of one command. */
const show = async (outputs: readonly (readonly Uint8Array[])[], size: { columns?: number; plain?: boolean } = {}): Promise<Shown> => {
  const terminal = new HumanTerminal(size)
  const plain = size.plain === true
  const screen = new OrderedScreen({
    output: terminal,
    clock: systemClock,
    controls: CONTROLS,
    plain,
    look: { colour: !plain, drawn: !plain },
  })
  for (const [at, pieces] of outputs.entries()) {
    screen.start(run(at + 1, [`job${at + 1}`]))
    for (const piece of pieces) screen.output(at + 1, piece)
    screen.end(at + 1, { exit: 3, error: null, duration_ms: 1_500 })
  }
  await screen.close()
  return { lines: terminal.lines(), terminal }
}

const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')
const isOfOutput = (line: string): boolean => /^[│┊~|:]( |$)/.test(line)
/** The lines that x0x itself writes for `show`, in their order. */
const ours = (count: number, plain = false): string[] =>
  Array.from({ length: count }, (_none, at) => [
    `[2026-11-23T10:00:00Z] codex:/repo $ job${at + 1}`,
    `${plain ? '=' : '└'} exit 3, after 1.5 s`,
    '',
  ]).flat()

/** Every line without an output mark. Continuation rows of our own lines begin with four blanks. */
const oursOf = (lines: readonly string[]): string[] =>
  lines
    .filter((line) => !isOfOutput(line))
    .reduce<string[]>((all, line) => (line.startsWith('    ') ? [...all.slice(0, -1), all.at(-1)! + line.slice(4)] : [...all, line]), [])

const check = ({ lines, terminal }: Shown, count: number, plain = false): void => {
  const words = (lines: readonly string[]): string[] => lines.map((line) => line.replaceAll(' ', ''))
  assert.deepEqual(words(oursOf([...lines, ''])), words(ours(count, plain)), JSON.stringify(lines))
  assert.equal(terminal.answers, '')
  assert.deepEqual(terminal.titles, [])
  assert.equal(terminal.bells, 0)
  assert.equal(terminal.isAlternate, false)
  assert.equal(terminal.modes.wraparoundMode, true)
  assert.equal(terminal.modes.mouseTrackingMode, 'none')
  assert.equal(terminal.modes.bracketedPasteMode, false)
  assert.equal(terminal.modes.originMode, false)
  assert.equal(terminal.modes.applicationCursorKeysMode, false)
}

const HOSTILE: Record<string, string> = {
  'a copy of our banner at the beginning of a line': `\r\n${FAKE}\r\n`,
  'a banner in the first column by cursor moves': `${ESC}[1;1H${FAKE}${ESC}[24;1H${FAKE}${ESC}[999A${FAKE}${ESC}[99999D${FAKE}`,
  'a banner where the terminal wraps a long line': `${' '.repeat(78)}${FAKE}${' '.repeat(200)}${FAKE}`,
  'wide characters where the terminal wraps a line': Buffer.from(
    `${'漢'.repeat(60)}${FAKE}${'👩‍👩‍👧'.repeat(50)}${'e\u0301'.repeat(100)}`,
  ).toString('latin1'),
  'window title': `${ESC}]0;mine\u0007${ESC}]2;mine${ESC}\\`,
  clipboard: `${ESC}]52;c;?\u0007${ESC}]52;c;cm0gLXJmIH4=\u0007`,
  questions: `${ESC}[c${ESC}[>c${ESC}[6n${ESC}[5n${ESC}[?6n${ESC}[18t${ESC}[21t${ESC}P$qm${ESC}\\${ESC}]10;?\u0007${ESC}]4;1;?\u0007${ESC}[?2004$p\u0005${ESC}Z`,
  'the alternate screen': `${ESC}[?1049h${FAKE}${ESC}[?47h${ESC}[?1047h seen`,
  modes: `${ESC}[?1000h${ESC}[?1006h${ESC}[?2004h${ESC}[?25l${ESC}[?6h${ESC}[?1h${ESC}=${ESC}[4h${ESC}[20h${ESC}[?5h${ESC}[?7l`,
  'colours that remain set': `${ESC}[31;44;7;8;5mred`,
  'a scroll region at the cursor': `${ESC}[23;24r${ESC}[1;1H\r\n${FAKE}\r\n`,
  'other character sets': `${ESC}(0lqqk\u000eqqq${ESC})0`,
  'a reset': `before${ESC}c${FAKE}`,
  'an endless string': `${ESC}]0;${'x'.repeat(10_000)}`,
  'an endless sequence': `${ESC}[${'1;'.repeat(5_000)}`,
  'C1 controls as bytes and as characters':
    Buffer.from(`\u009b31m\u009d0;t\u0007\u0090q\u009c\u0085${FAKE}`).toString('latin1') + '\x9b2J\x9d0;t\x07',
  'repeats and scrolls with huge numbers': `a${ESC}[2147483647b${ESC}[2147483647S${ESC}[2147483647L${ESC}[2147483647M${ESC}[2147483647T${ESC}[2147483647I${ESC}[2147483647Z${ESC}[2147483647@${ESC}[2147483647P`,
  direction: Buffer.from(`\u202e${FAKE}\u2066\u2029${FAKE}\u2028${FAKE}`).toString('latin1'),
  'all kinds of line ends': `${FAKE}\r${FAKE}\u000b${FAKE}\u000c${FAKE}${ESC}D${FAKE}${ESC}E${FAKE}${ESC}M${FAKE}`,
  'combining marks on our output mark': Buffer.from(`\r\n${'\u0301'.repeat(500)}x\r\n`).toString('latin1'),
}

for (const [name, output] of Object.entries(HOSTILE)) {
  test(`hostile output cannot imitate lines of the console: ${name}`, async () => {
    for (const plain of [false, true])
      for (const columns of [80, 37, 200]) {
        check(await show([[bytes(output)], [bytes('well behaved')]], { columns, plain }), 2, plain)
      }
  })
}

test('the output of one command does not affect the next one', async () => {
  const all = Object.values(HOSTILE).map((output) => [bytes(output)])
  for (const hostile of all) {
    const { lines } = await show([hostile, [bytes('plain words\r\n')]])
    assert.deepEqual(lines.slice(lines.findIndex((line) => line.endsWith('job2')) + 1), ['│ plain words', '└ exit 3, after 1.5 s'])
  }
})

test('the screen shows text after any hostile output', async () => {
  for (const [name, output] of Object.entries(HOSTILE)) {
    const { lines } = await show([[bytes(output), bytes('\r\nSEEN AFTER\r\n')]])
    assert.ok(
      lines.some((line) => line.includes('SEEN AFTER')),
      `${name}: ${JSON.stringify(lines)}`,
    )
  }
})

test('the screen shows lines before a program erases them, for every form of the erase sequence', async () => {
  const lines = Array.from({ length: 40 }, (_none, at) => `line ${at} `)
  for (const parameters of ['2', '3', '2;0', '3;0', '3;', '02', '0003;1']) {
    const shown = await show([[bytes(`${lines.join('\r\n')}${ESC}[${parameters}Jafter`)]])
    for (const line of [...lines, 'after'])
      assert.ok(
        shown.lines.some((one) => `${one} `.includes(line)),
        `${parameters}: ${line}`,
      )
  }
})

const FRAGMENTS = fc.oneof(
  fc.constantFrom(...Object.values(HOSTILE)).map(bytes),
  fc.uint8Array({ maxLength: 40 }),
  fc
    .constantFrom(FAKE, '\r', '\n', '\r\n', ESC, `${ESC}[`, `${ESC}]`, '\b', '\t', '│ ', 'x'.repeat(79), 'x'.repeat(80), 'x'.repeat(81))
    .map((text) => Buffer.from(text)),
  fc
    .tuple(
      fc.constantFrom('', '?', '>', '!'),
      fc.array(fc.nat({ max: 300 }), { maxLength: 4 }),
      fc.constantFrom(...'@ABCDEFGHIJKLMPSTXZ`abcdefghijklmnpqrstux|~'),
    )
    .map(([prefix, numbers, final]) => bytes(`${ESC}[${prefix}${numbers.join(';')}${final}`)),
)

test('property: for any output in any pieces, each line without an output mark comes from the console', async () => {
  const outputs = fc.array(fc.array(FRAGMENTS, { maxLength: 12 }), { minLength: 1, maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(outputs, fc.integer({ min: 30, max: 120 }), fc.boolean(), async (outputs, columns, plain) => {
      check(await show(outputs, { columns, plain }), outputs.length, plain)
    }),
    { numRuns: 60 },
  )
})

/** Renders a recorded command with this output. Returns the lines that a user sees and the text that the terminal received. */
const showRecorded = async (output: string, columns: number): Promise<Shown & { readonly written: string }> => {
  const terminal = new HumanTerminal({ columns })
  const recorded = entry({
    whoami: 'codex',
    dir: '/repo',
    exec: ['job1'],
    time: '2026-11-23T10:00:00Z',
    output,
    exit: 3,
    duration_ms: 1_500,
  })
  let written = ''
  for await (const text of renderEntry(recorded, { look: { colour: true, drawn: true }, columns })) written += text
  await new Promise((resolve) => terminal.write(written, resolve))
  return { lines: terminal.lines(), terminal, written }
}

test('property: for any recorded output, each line without an output mark comes from the renderer', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(FRAGMENTS, { maxLength: 12 }), fc.integer({ min: 30, max: 120 }), async (output, columns) => {
      check(await showRecorded(Buffer.concat(output).toString(), columns), 1)
    }),
    { numRuns: 30 },
  )
})

test('property: the screen and the agent show the same text, even if control sequences are cut or invalid', () => {
  const parts = fc.constantFrom(ESC, ...'[]P^(\\;1mx漢 \t\n\u0007\u0018\u0085\u009b\u009c\u009d')
  fc.assert(
    fc.property(fc.array(parts, { maxLength: 40 }), (written) => {
      const agent = new TerminalFilter()
      let human = ''
      const screen = new OutputFilter({ text: (text) => (human += text), clear: () => assert.fail('nothing was erased') })
      screen.push(Buffer.from(written.join('')))
      screen.end()
      // oxlint-disable-next-line no-control-regex
      assert.equal(human.replaceAll(/\u001b\[[\d;]*[mPX]/g, ''), agent.push(written.join('')) + agent.end())
    }),
    { numRuns: 2_000 },
  )
})
