import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import type { JournalEvent } from '../../../src/journal/events.ts'
import { Chain, prepareLine } from '../../../src/journal/line.ts'
import { parseLine } from '../../../src/journal/parse-line.ts'
import { Timeline } from '../../../src/journal/timeline.ts'
import { textWidth } from '../../../src/doors/console/screen/cells.ts'
import { timelinePicture } from '../../../src/programs/x0x/commands/audit.ts'
import { peersGraph, type DrawnPeer } from '../../../src/programs/x0x/commands/peers.ts'
import { drawingFor, type Drawing } from '../../../src/programs/x0x/drawing.ts'
import { fakeDaemon, json, runCli } from '../../support/fake-daemon.ts'
import { RUN_ID } from '../../support/journal-exit.ts'
import { denialEvent, exitEvent, requestEvent, runKey } from '../../support/journal.ts'
import { tempDir } from '../../support/temp-dir.ts'

const drawing = (columns: number, env: Record<string, string> = { LANG: 'C.UTF-8', NO_COLOR: '1' }): Drawing =>
  drawingFor(Object.assign(new PassThrough(), { isTTY: true, columns }), env)

const HOSTILE = 'x\u001b[2J\u202e\n\u05d0\t\u0301界'

const peer = (name: string, rtt_ms: number | null, more: Partial<DrawnPeer> = {}): DrawnPeer => ({
  name,
  rtt_ms,
  linked: true,
  connected: true,
  agent_id: 'a'.repeat(64),
  last_seen: '2026-05-01T12:00:00.000Z',
  ...more,
})

const PEERS = [
  peer('far', 80),
  peer(HOSTILE, null, { linked: false, connected: false }),
  peer('near', 4),
  peer('carol', 9, { linked: false }),
]

const assertFits = (lines: readonly string[], columns: number): void => {
  for (const line of lines) assert.ok(textWidth(line) <= columns, `${columns}: ${line}`)
}

test('peers are drawn nearest first within the width of the terminal, with hostile names escaped', () => {
  assert.deepEqual(peersGraph({ self: 'alice', peers: PEERS }, drawing(72)), [
    'alice',
    '├══  near                      linked     aaaaaaaaaaaa  4 ms',
    '├══  far                       linked     aaaaaaaaaaaa  ━━━━━━━ 80 ms',
    '├──  carol                     connected  aaaaaaaaaaaa  ━ 9 ms',
    '└╌╌  x\\x1b[2J\\u202e\\n\\u05d0\\…  announced  aaaaaaaaaaaa  seen 2026-05-01…',
    '══ linked, ── connected, ╌╌ discovered, ━ round trip',
  ])
  for (const columns of [1, 40, 55, 80, 200])
    assertFits(peersGraph({ self: 'alice', peers: PEERS }, drawing(columns)), Math.max(40, columns))
  const bars = peersGraph({ self: 'alice', peers: PEERS.slice(2).concat(peer('far', 80)) }, drawing(100)).map(
    (line) => line.split('━').length - 1,
  )
  assert.ok(bars[2]! > 10 * bars[1]! && bars[1]! > 0, String(bars))
  const many = peersGraph({ self: 'alice', peers: Array.from({ length: 300 }, (_none, at) => peer(`p${at}`, at)) }, drawing(80))
  assert.equal(many.length, 103)
  assert.match(many[101]!, /200 more: x0x peers/)
})

test('drawings are ASCII if the locale has no UTF-8, and coloured if the terminal supports it', () => {
  const plain = peersGraph({ self: 'älice', peers: PEERS }, drawing(80, { LANG: 'C', NO_COLOR: '1' })).join('\n')
  assert.match(plain, /^[ -~\n]+$/)
  assert.match(plain, /\|==/)
  const coloured = drawing(80, { LC_ALL: 'de_DE.utf8' })
  assert.equal(coloured.paint('red', 'x'), '\u001b[31mx\u001b[0m')
  assertFits(peersGraph({ self: 'alice', peers: PEERS }, coloured), 80)
})

/** A journal of these events, one second apart. */
const journal = (events: readonly JournalEvent[]): string[] =>
  new Chain({ id: RUN_ID }).encode(events.map((event, at) => prepareLine(event, at * 1000))).map(({ bytes }) => bytes.toString())

const EVENTS = [
  requestEvent(1, ['df', '-h']),
  requestEvent(2, ['sleep', HOSTILE]),
  exitEvent(1),
  denialEvent(3),
  requestEvent(4, ['make']),
  { ...exitEvent(4), code: null, signal: 15 } as JournalEvent,
  requestEvent(5, ['true']),
  { event: 'lost', ...runKey(5) } as JournalEvent,
]

test('a timeline has one row for each run and each denial, ordered by start on one time axis', async (t) => {
  const timeline = new Timeline({ max: 10 })
  for (const line of journal(EVENTS)) timeline.add(parseLine(Buffer.from(line))!)
  const picture = { entries: timeline.entries, suppressed: 2, whose: () => HOSTILE }
  const lines = timelinePicture(picture, drawing(100))
  const bars = lines.slice(1, 6).map((line) => line.slice(line.search(/[━╸✗›]/)).trimEnd())
  assert.deepEqual(
    bars.map((line) => line.replaceAll(/━+/g, '━').replaceAll(/ {2,}/g, '  ')),
    ['━  exit 0, 2 s', '━›  no end yet', '✗  argv_not_allowed', '━  SIGTERM, 1 s', '╸  lost'],
  )
  assert.ok(lines[1]!.indexOf('━') < lines[3]!.indexOf('✗') && lines[3]!.indexOf('✗') < lines[5]!.indexOf('╸'))
  assert.match(lines.at(-1)!, /^2 denials more/)
  for (const columns of [1, 40, 61, 80, 200]) assertFits(timelinePicture(picture, drawing(columns)), Math.max(40, columns))
  assert.match(timelinePicture(picture, drawing(80, { LANG: 'C', NO_COLOR: '1' })).join('\n'), /^[ -~\n]+$/)

  const newest = new Timeline({ max: 2 })
  for (const line of journal(EVENTS)) newest.add(parseLine(Buffer.from(line))!)
  assert.deepEqual(
    newest.entries.map(({ command }) => command),
    ['make', 'true'],
  )

  const path = join(await tempDir(t), 'exec.log')
  await writeFile(path, `${journal(EVENTS).join('\n')}\nno line of ours\n`)
  const { status, stdout } = await runCli(['audit', 'timeline', path, '--json'])
  assert.equal(status, 0)
  assert.equal((JSON.parse(stdout) as { entries: unknown[] }).entries.length, 5)
  assert.equal((await runCli(['audit', 'timeline', path, '-n', '0'])).status, 2)
  // An empty timeline says which log has the requests to other agents.
  await writeFile(path, '')
  assert.match((await runCli(['audit', 'timeline', path])).stdout, /^no runs and no denials on this machine.* x0x audit tail --outgoing\n$/)
})

test('peers --graph uses the names of the contacts, and --json prints the same as without --graph', async (t) => {
  const [agent_id, machine_id] = ['a'.repeat(64), 'b'.repeat(64)]
  const way = { relayed_by: null, rtt_ms: 3, last_heard: null, last_seen: null }
  const peers = [{ agent_id, machine_id, name: 'liar', addresses: [], connected: true, linked: true, ...way }]
  const bob = { name: 'bob', agent_id, trust: 'known', machines: [], addresses: [], formerly: [], labels: {}, revoked: false }
  const mesh = { heard: 1, known: 1, standing: 1, connected: 1 }
  const answers: Record<string, object> = {
    '/peers': { ok: true, peers, mesh },
    '/contacts': { ok: true, groups: [], contacts: [{ ...bob, revoked_machines: [] }] },
    '/agent': { agent_id, machine_id, name: 'alice' },
  }
  const { dir } = await fakeDaemon(t, ({ path }, response) => json(response, 200, answers[path]))
  const { stdout } = await runCli(['--data-dir', dir, 'peers', '--graph'])
  assert.match(stdout, /^alice, agent a{12} on machine b{12}\n`== {2}bob {2}linked/)
  const asJson = await runCli(['--data-dir', dir, 'peers', '--graph', '--json'])
  assert.deepEqual(JSON.parse(asJson.stdout), { ok: true, peers, mesh })
})

test('peers uses the singular for one', async (t) => {
  const counts = [
    [{ heard: 1, known: 1, standing: 1, connected: 1 }, '1 machine heard of, 1 agent known, 1 persistent connection, 1 connected'],
    [{ heard: 2, known: 0, standing: 3, connected: 2 }, '2 machines heard of, 0 agents known, 3 persistent connections, 2 connected'],
  ] as const
  for (const [mesh, line] of counts) {
    const { dir } = await fakeDaemon(t, (_call, response) => json(response, 200, { ok: true, peers: [], mesh }))
    const { stdout } = await runCli(['--data-dir', dir, 'peers'])
    assert.equal(stdout.trimEnd().split('\n').at(-1), line)
  }
})
