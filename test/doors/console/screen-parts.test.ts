import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { contrast, luminance, paletteColour } from '../../../src/doors/console/screen/cells.ts'
import { SharedByteBudget, PendingOutput } from '../../../src/doors/console/screen/pending-output.ts'
import { AGENT_COLOURS, inColourOf, textStyleOf } from '../../../src/doors/console/screen/cells.ts'
import { OutputLines } from '../../../src/doors/console/screen/run-view.ts'
import { RunTerminal } from '../../../src/doors/console/screen/run-terminal.ts'
import { statusText } from '../../../src/doors/console/screen/display.ts'
import { textWidth } from '../../../src/doors/console/screen/cells.ts'

test('property: pending output keeps its order, and omitted bytes are counted at their position', () => {
  const step = fc.oneof(fc.nat({ max: 200_000 }), fc.constant('take' as const))
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.integer({ min: 0, max: 1_000_000 }), (steps, max) => {
      const shared = new SharedByteBudget({ max })
      const held = new PendingOutput(shared)
      let written = 0
      let read = 0
      const take = (): boolean => {
        const next = held.next(4_096)
        if (next === null) return false
        if ('left_out' in next) read += next.left_out
        else for (let at = 0; at < next.data.length; at++) assert.equal(next.data[at], read++ % 251)
        return true
      }
      for (const one of steps) {
        if (one === 'take') take()
        else held.push(Buffer.from(Uint8Array.from({ length: one }, () => written++ % 251)))
      }
      while (take());
      assert.equal(read, written)
      assert.equal(shared.take(max), max)
      assert.equal(held.next(4_096), null)
    }),
    { numRuns: 40 },
  )
})

test('agent colours are readable on black and white, and each agent keeps its colour', () => {
  for (const colour of AGENT_COLOURS) {
    const light = luminance(paletteColour(colour))
    assert.ok(contrast(light, 0) >= 3 && contrast(light, 1) >= 3, `${colour}: ${contrast(light, 0)} ${contrast(light, 1)}`)
  }
  const look = { colour: true, drawn: true }
  assert.equal(inColourOf(look, 'codex', 'x'), inColourOf(look, 'codex', 'x'))
  assert.equal(inColourOf({ ...look, colour: false }, 'codex', 'x'), 'x')
  assert.ok(new Set(Array.from({ length: 50 }, (_none, at) => inColourOf(look, `agent${at}`, 'x'))).size > 5)
  assert.equal(new Set(['Claude Code', 'Codex', 'Gemini CLI', 'Cursor'].map((name) => inColourOf(look, name, 'x'))).size, 4)
})

test('a flag, FORCE_COLOR, NO_COLOR and the kind of output decide about colours, in this order', () => {
  const colour = (env: Record<string, string>, flag: boolean | null = null, isTerminal = true): boolean =>
    textStyleOf({ isTerminal, env, colour: flag }).colour
  assert.equal(colour({}), true)
  assert.equal(colour({}, null, false), false)
  assert.equal(colour({ NO_COLOR: '1' }), false)
  assert.equal(colour({ NO_COLOR: '' }), true)
  assert.equal(colour({ NO_COLOR: '1', FORCE_COLOR: '1' }, null, false), true)
  assert.equal(colour({ FORCE_COLOR: '0' }), false)
  assert.equal(colour({ FORCE_COLOR: '1' }, false), false)
  assert.equal(colour({ NO_COLOR: '1', TERM: 'dumb' }, true, false), true)
  assert.equal(colour({ TERM: 'dumb' }), false)
})

test('marks use Unicode on a UTF-8 terminal and ASCII on others', () => {
  const drawn = (env: Record<string, string>, isTerminal = true): boolean => textStyleOf({ isTerminal, env, colour: null }).drawn
  assert.equal(drawn({ LANG: 'de_DE.UTF-8' }), true)
  assert.equal(drawn({}), true)
  assert.equal(drawn({ LANG: 'C' }), false)
  assert.equal(drawn({ LANG: 'C', LC_ALL: 'C.utf8' }), true)
  assert.equal(drawn({ LANG: 'de_DE.UTF-8', TERM: 'dumb' }), false)
  assert.equal(drawn({ LANG: 'de_DE.UTF-8' }, false), false)
})

test('property: the status fits one row of any width', () => {
  const names = fc.array(fc.string({ unit: 'grapheme', maxLength: 30 }), { maxLength: 4 })
  fc.assert(
    fc.property(
      fc.nat({ max: 200 }),
      names,
      fc.string({ unit: 'grapheme' }),
      fc.nat(),
      fc.nat({ max: 99 }),
      (columns, paused, word, elapsed_ms, others) => {
        const current = others % 2 === 0 ? { whoami: word, argv: [word, word], elapsed_ms, isOver: others % 3 === 0 } : null
        const text = statusText({ current, running: others, ended: others, paused }, columns)
        assert.ok(textWidth(text) <= columns, `${columns} ${text}`)
        // oxlint-disable-next-line no-control-regex
        assert.doesNotMatch(text, /[\u0000-\u001f\u007f-\u009f]/)
      },
    ),
  )
  assert.equal(
    statusText(
      {
        current: { whoami: 'codex', argv: ['make', 'test'], elapsed_ms: 3_725_000, isOver: false },
        running: 2,
        ended: 1,
        paused: ['gemini'],
      },
      100,
    ),
    ' codex: make test · 1:02:05 · next: 2 running, 1 done · paused: gemini · ? help ',
  )
})

test('a line without an end is printed in parts, and only the last part is kept', () => {
  const lines = new OutputLines({ look: { colour: false, drawn: true }, whoami: 'codex' })
  const cells = Array.from({ length: 80 }, () => ({ text: 'x', width: 1, sgr: '' }))
  const rows = Array.from({ length: 200 }, (_none, at) => ({ cells, continues: at > 0 }))
  const printed = lines.rows(rows)
  assert.deepEqual(
    printed.map(({ first, text }) => [first, text.length]),
    [
      ['│ ', 4_160],
      ['┊ ', 4_160],
      ['┊ ', 4_160],
    ],
  )
  assert.deepEqual(
    lines.end().map(({ first, text }) => [first, text.length]),
    [['┊ ', 16_000 - 3 * 4_160]],
  )
})

test('characters have the width that current Unicode defines', async () => {
  const terminal = await RunTerminal.open()
  await terminal.write('\u{1fae0}e\u0301\u6f22')
  assert.deepEqual(
    terminal
      .onScreen()[0]
      ?.cells.slice(0, 4)
      .map(({ text, width }) => [text, width]),
    [
      ['\u{1fae0}', 2],
      ['e\u0301', 1],
      ['\u6f22', 2],
      [' ', 1],
    ],
  )
  terminal.dispose()
})

test('colours that would make text invisible are dropped or replaced', async () => {
  const terminal = await RunTerminal.open()
  const sgr = async (parameters: string): Promise<string | undefined> => {
    await terminal.write(`\u001b[H\u001b[2J\u001b[${parameters}mx\u001b[m`)
    return terminal.onScreen()[0]?.cells[0]?.sgr
  }
  for (const [given, shown] of [
    ['31', '31'],
    ['1;38;5;208', '1;38;5;208'],
    ['38;2;1;2;3', ''],
    ['30', ''],
    ['97', ''],
    ['8;32', '32'],
    ['5', ''],
    ['30;40', '97;40'],
    ['37;47', '30;47'],
    ['38;2;200;200;200;48;2;199;199;199', '30;48;2;199;199;199'],
    ['41', '97;41'],
    ['37;44', '37;44'],
    ['7', '7'],
  ] as const)
    assert.equal(await sgr(given), shown, given)
  terminal.dispose()
})

test('a status with right-to-left letters begins at the left and keeps its time in place', () => {
  const current = {
    whoami: '\u05d0',
    argv: ['\u05d1\u05d1\u05d1\u05d1\u05d1\u05d1\u05d1\u05d1\u05d1\u05d1'],
    elapsed_ms: 2_000,
    isOver: false,
  }
  const state = { current, running: 0, ended: 0, paused: [] }
  assert.equal(statusText(state, 80), ` \u200e\u05d0\u200e: '${current.argv[0]}'\u200e · 2 s · ? help `)
  const narrow = statusText(state, 20)
  assert.match(narrow, /^ \u200e\u05d0\u200e: '\u05d1+…\u200e · 2 s $/)
  assert.equal(textWidth(narrow), 20)
})
