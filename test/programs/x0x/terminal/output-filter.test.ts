import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { TerminalOutputFilter } from '../../../../src/programs/x0x/terminal/output-filter.ts'
import { HumanTerminal } from '../../../support/human-terminal.ts'

const ESC = '\u001b'

const bytesOf = (text: string): Buffer => Buffer.from(text, 'utf8')

const filtered = (bytes: Uint8Array, cuts: readonly number[] = [], raw = false): Buffer => {
  const filter = new TerminalOutputFilter({ raw })
  const edges = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length]
  return Buffer.concat(edges.slice(1).map((end, at) => Buffer.from(filter.push(bytes.subarray(edges[at], end)))))
}

const passed = (text: string): string => filtered(bytesOf(text)).toString('utf8')

/** Sequences that a program may send, and fragments of them. */
const anyPart = fc.oneof(
  { weight: 3, arbitrary: fc.string({ unit: 'grapheme', maxLength: 6 }).map(bytesOf) },
  fc.uint8Array({ maxLength: 6 }).map((bytes) => Buffer.from(bytes)),
  {
    weight: 4,
    arbitrary: fc
      .tuple(
        fc.constantFrom('[', ']', 'P', '_', '^', 'X', 'k', '%', '(', ' ', '#', 'Z', 'c', '\\'),
        fc.constantFrom('', '?', '>', '=', '0;', '2;', '52;c;', '11;', '8;;', '$q', '+q', '4', '?1049', '6'),
        fc.constantFrom('', '?', 'aGVsbG8=', '25', '1', ';', '$', '*', "'", '\n', '\u0018', '✜'),
        fc.constantFrom('\u0007', `${ESC}\\`, '\u009c', 'n', 'c', 't', 'h', 'l', 'm', 'p', 'q', 'u', 'x', 'y', 'S', 'i', '', ESC),
      )
      .map((parts) => bytesOf(ESC + parts.join(''))),
  },
  fc.constantFrom('\u009b', '\u009d', '\u0090', '\u009f', '\u009a', '\u0005', '\u000e').map(bytesOf),
  fc.constantFrom(0x9b, 0x9d, 0x90, 0x9a, 0xc2, 0xe2, 0x1b).map((byte) => Buffer.of(byte)),
)
const anyOutput = fc.array(anyPart, { maxLength: 12 }).map((parts) => Buffer.concat(parts))

test('plain text and UTF-8 pass unchanged, even if a character contains the byte of a control character', () => {
  for (const text of ['', 'plain\r\n\ttext\b\u0007', 'grüße ✜ 中文 𝄞', '\u0085\u0084', 'Ý›œ✜'])
    assert.equal(passed(text), text, JSON.stringify(text))
  // oxlint-disable-next-line no-control-regex
  const plain = fc.string({ unit: 'grapheme', maxLength: 40 }).filter((text) => !/[\u0005\u001b\u0080-\u009f]/u.test(text))
  fc.assert(
    fc.property(plain, fc.array(fc.nat(), { maxLength: 5 }), (text, cuts) => {
      assert.deepEqual(filtered(bytesOf(text), cuts), bytesOf(text))
    }),
  )
})

test('sequences that programs use for drawing pass unchanged', () => {
  for (const text of [
    `${ESC}[31mred${ESC}[0m`,
    `${ESC}[?1049h${ESC}[?25l${ESC}[?1002h${ESC}[?1006h${ESC}[?2004h`,
    `${ESC}[2J${ESC}[H${ESC}[10;20H${ESC}[1;24r${ESC}[K${ESC}[3S`,
    `${ESC}7${ESC}8${ESC}(0lqk${ESC}(B${ESC}=${ESC}>${ESC}M${ESC}c`,
    `${ESC}[6n${ESC}[c${ESC}[>c${ESC}[?6n`,
    `${ESC}]8;;https://example.org/?a=1${ESC}\\link${ESC}]8;;${ESC}\\`,
    `${ESC}]11;#000000\u0007${ESC}]104${ESC}\\`,
    `${ESC}[2 q${ESC}[!p${ESC}[>4;2m${ESC}[>1u`,
    `\u009b31m`,
  ])
    assert.equal(passed(text), text, JSON.stringify(text))
})

test('titles, clipboard access, queries and unknown strings are removed', () => {
  const long = 'A'.repeat(1_000_000)
  for (const text of [
    `${ESC}]0;title\u0007`,
    `${ESC}]1;icon${ESC}\\`,
    `${ESC}]2;title\u009c`,
    `\u009d2;title\u0007`,
    `${ESC}]52;c;aGVsbG8=\u0007`,
    `${ESC}]52;c;${long}\u0007`,
    `${ESC}]52;c;${long}${ESC}\\`,
    `${ESC}]11;?\u0007`,
    `${ESC}]4;1;?${ESC}\\`,
    `${ESC}]8;;x\u009b5n${ESC}\\`,
    `${ESC}]1337;File=name=a:AAAA\u0007`,
    `${ESC}[5n`,
    `${ESC}[21t${ESC}[18t${ESC}[8;50;200t${ESC}[22;2t`,
    `${ESC}[?2026$p${ESC}[4$p${ESC}[?u${ESC}[>q${ESC}[x${ESC}[?1;1;0S${ESC}[1;1;1;1;1;1*y`,
    `${ESC}[5i${ESC}[?2l${ESC}[?02l${ESC}[?25;002l`,
    `${ESC}[?1003s${ESC}[?1003r${ESC}[?s${ESC}["v`,
    `${ESC}[100$|${ESC}[200*|${ESC}[?3h${ESC}[?40h${ESC}[?03;40h`,
    `${ESC}P$qm${ESC}\\${ESC}P+q544e${ESC}\\${ESC}Ptmux;${ESC}${ESC}]52;c;QQ==\u0007${ESC}\\`,
    `${ESC}_Gf=100,t=f;L2V0Yy9wYXNzd2Q=${ESC}\\${ESC}^a${ESC}\\${ESC}Xb${ESC}\\${ESC}ktitle${ESC}\\`,
    `${ESC}Z\u0005\u009a${ESC}%@${ESC}%G`,
  ]) {
    const rest = passed(text)
    assert.equal(rest.replaceAll(`${ESC}\\`, ''), '', JSON.stringify([text.slice(0, 60), rest.slice(0, 60)]))
  }
})

test('text around removed sequences stays', () => {
  assert.equal(passed(`a${ESC}]0;t\u0007b${ESC}[5nc${ESC}P1${ESC}\\d`), 'abcd')
  // Another escape sequence ends an unfinished string.
  assert.equal(passed(`a${ESC}]0;t${ESC}[31mb`), `a${ESC}[31mb`)
  assert.equal(passed(`a${ESC}]0;t\u0018b`), 'ab')
  // A terminal performs a control within a sequence.
  assert.equal(passed(`${ESC}[5\rn`), '\r')
})

test('the result does not depend on how the output is cut', () => {
  fc.assert(
    fc.property(anyOutput, fc.array(fc.nat(), { maxLength: 8 }), (bytes, cuts) => {
      assert.deepEqual(filtered(bytes, cuts), filtered(bytes))
    }),
    { numRuns: 3_000 },
  )
})

test('filtered output passes a second filter unchanged', () => {
  fc.assert(
    fc.property(anyOutput, (bytes) => {
      // The suffix ensures that no part of a character is held back at the end.
      const once = filtered(Buffer.concat([bytes, bytesOf('\u0018x')]))
      assert.deepEqual(filtered(once), once)
    }),
    { numRuns: 3_000 },
  )
})

test('filtered output sets no title, and the terminal answers only cursor position and device attributes', async () => {
  const property = fc.asyncProperty(anyOutput, async (bytes) => {
    const terminal = new HumanTerminal()
    await new Promise<void>((resolve) => terminal.write(filtered(bytes), () => resolve()))
    assert.deepEqual(terminal.titles, [])
    // oxlint-disable-next-line no-control-regex
    assert.match(terminal.answers, /^(\u001b\[\??[0-9;]*R|\u001b\[[?>][0-9;]*c|\u001b\[[IO])*$/)
  })
  await fc.assert(property, { numRuns: 600 })
})

test('--raw-terminal passes everything', () => {
  fc.assert(
    fc.property(anyOutput, fc.array(fc.nat(), { maxLength: 5 }), (bytes, cuts) => assert.deepEqual(filtered(bytes, cuts, true), bytes)),
  )
})

test('an escape sequence without an end needs bounded memory', () => {
  const filter = new TerminalOutputFilter({ raw: false })
  filter.push(bytesOf(`${ESC}]0;`))
  const before = process.memoryUsage().heapUsed
  const chunk = Buffer.alloc(1024 * 1024, 'a')
  for (let at = 0; at < 64; at++) assert.equal(filter.push(chunk).length, 0)
  assert.ok(process.memoryUsage().heapUsed - before < 32 * 1024 * 1024)
  filter.push(bytesOf(`${ESC}[`))
  for (let at = 0; at < 4; at++) filter.push(Buffer.alloc(1024 * 1024, '1'))
  assert.equal(filter.push(bytesOf('mtext')).toString(), 'text')
})

for (const raw of [false, true])
  test(`the end undoes the changes of the program${raw ? ', also of all output' : ''}`, async () => {
    const terminal = new HumanTerminal()
    const filter = new TerminalOutputFilter({ raw })
    const show = async (bytes: Uint8Array | string): Promise<void> => new Promise((resolve) => terminal.write(bytes, () => resolve()))
    const modes = [1, 1000, 1002, 1003, 1004, 1006, 1049, 2004, 6].map((mode) => `${ESC}[?${mode}h`).join('')
    await show(filter.push(bytesOf(`${modes}${ESC}[?7l${ESC}[?25l${ESC}[4h${ESC}=${ESC}[3;5r${ESC}[31m${ESC}(0`)))
    assert.ok(terminal.isAlternate && filter.isAlternate)
    await show(filter.end())
    const fresh = new HumanTerminal()
    assert.deepEqual(terminal.modes, fresh.modes)
    assert.ok(!terminal.isAlternate)
    assert.ok(await terminal.leavesNoColour())
  })

test('a program that leaves nothing changed gets only a colour reset at its end', () => {
  const filter = new TerminalOutputFilter({ raw: false })
  filter.push(bytesOf(`text${ESC}[?1049h${ESC}[?1000h${ESC}[?1000l${ESC}[?1049l`))
  assert.equal(filter.end(), `${ESC}[0m`)
})
