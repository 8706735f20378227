import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { errorText } from '../../../src/base/errors.ts'
import { ConsoleKeys } from '../../../src/doors/console/screen/keys.ts'
import { setModes } from '../../../src/clients/desk.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { soon } from '../../support/local-engine.ts'
import { ManualClock } from '../../support/manual-clock.ts'

// O7: keys in the console set where commands of its agents run and who approves them.

const NOTHING = { host: null, security: null, ask: null, node: null, elevated: null }

const keyboard = (change?: (whoami: string, line: string) => Promise<string>) => {
  const clock = new ManualClock()
  const [notes, rows, aborted]: [string[], string[][], number[]] = [[], [], []]
  const agents = ['Codex', 'Claude']
  const controls = {
    abort: (n: number) => void aborted.push(n),
    paused: new Set<string>(),
    pause: () => undefined,
    resume: () => undefined,
    stop: () => undefined,
    ...(change && { setModes: change }),
  }
  const keys = new ConsoleKeys({
    clock,
    controls,
    targets: () => ({ current: { n: 1, whoami: 'Codex', argv: ['sleep'] }, running: 1, agents }),
    ask: (asked) => void rows.push([...asked]),
    help: () => undefined,
    record: (text) => void notes.push(text),
    repaint: () => undefined,
  })
  return { keys, clock, notes, rows, aborted, agents, type: (text: string) => [...text].forEach((one) => keys.press(one)) }
}

const atDesk = async (t: TestContext) => {
  const desk = await deskPlace(t)
  const human = await desk.human()
  const board = keyboard(async (whoami, line) => setModes(desk.paths, whoami, line).catch(errorText))
  const told = async (count: number): Promise<string> => {
    assert.ok(await soon(() => board.notes.length >= count))
    return board.notes[count - 1]!
  }
  const of = async (label: string): Promise<unknown> => (await human.modes({ session: label, agent: label }))['session']
  return { ...board, told, of }
}

test('O7: /exec and /elevated set the modes of the agent that was latest when the user began the line', async (t) => {
  const { type, keys, told, of, agents } = await atDesk(t)
  type('/exec host=gatewa')
  agents.unshift('Eve')
  type('xy\u007f\u007fy ask=always\r')
  assert.equal(await told(1), 'Codex: host=gateway ask=always')
  assert.deepEqual([await of('Codex'), await of('Eve')], [{ ...NOTHING, host: 'gateway', ask: 'always' }, null])
  agents.shift()
  keys.press('/elevated full\n')
  assert.equal(await told(2), 'Codex: host=gateway ask=always /elevated full')
  keys.press('/elevated off\n')
  assert.equal(await told(3), 'Codex: host=gateway ask=always')
  keys.press('/exec host=default ask=default\n')
  assert.equal(await told(4), 'Codex: as configured')
  assert.equal(await of('Codex'), null)
  keys.press('/elevated sometimes\n')
  assert.match(await told(5), /needs one of on, off, ask, full/)
})

test('a cancelled or expired mode line has no effect, and the next key has its usual meaning', async () => {
  const lines: string[] = []
  const { type, keys, clock, rows, aborted } = keyboard(async (_whoami, line) => String(lines.push(line)))
  type('/exec xx')
  keys.press('\u001b')
  assert.deepEqual([lines, aborted], [[], []])
  type('/x\u007f\u007f')
  type('xx')
  assert.deepEqual(aborted, [1])
  type('/exec ask=off')
  await clock.advance(60_000)
  type('\r')
  assert.deepEqual([lines, rows.at(-1)], [[], []])
})

test('the console explains if no agent has run a command, or if it cannot set modes', async () => {
  const { keys, rows, agents, notes } = keyboard()
  keys.press('/exec ask=off\n')
  assert.ok(await soon(() => notes.length === 1))
  assert.match(notes[0]!, /Codex: this console cannot set modes/)
  agents.length = 0
  keys.press('/exec ask=off\n')
  assert.match(rows.at(-1)![0]!, /no AI agent has run a command yet/)
})
