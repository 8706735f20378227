import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { chmod, mkdir, readFile, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import fc from 'fast-check'

import { silentLogger } from '../../src/base/log.ts'
import { isVisible } from '../../src/base/visible-text.ts'
import { parseCastEvent, parseCastHeader } from '../../src/protocol/console/asciicast.ts'
import { MAX_RECORDING_UNWRITTEN, RECORDING_DAYS, RECORDING_WRITE_MS } from '../../src/protocol/limits/terminal.ts'
import { listRecordings, readRecording, removeRecording } from '../../src/transcripts/read-recording.ts'
import { type RecordingBounds, Recordings, recordingNames } from '../../src/transcripts/recordings.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/processes.ts'
import { NO_DISK, smallDisk } from '../support/small-disk.ts'
import { tempDir } from '../support/temp-dir.ts'

const NOW = Date.UTC(2026, 4, 21, 9, 42, 18)
const AGENT = 'a1'.repeat(32)
const OTHER = 'b2'.repeat(32)
const MIB = 1024 * 1024
const BOUNDS: RecordingBounds = { each: MIB, agent: 3 * MIB, all: 5 * MIB, files: 20, agentFiles: 20 }
const HEADER = { width: 80, height: 24, timestamp: NOW / 1_000, title: 'htop', term: 'xterm', x0x: { agent_id: AGENT, argv: ['htop'] } }

const recordingsOf = async (t: TestContext, { bounds = BOUNDS, root }: { bounds?: RecordingBounds; root?: string } = {}) => {
  const clock = new ManualClock(NOW)
  const directory = join(root ?? (await tempDir(t)), 'recordings')
  const recordings = new Recordings({ clock, log: silentLogger }, { directory, bounds })
  const told: string[] = []
  const begin = async (agentId = AGENT) =>
    recordings.begin({ agentId, header: HEADER, onRoom: () => told.push('room'), onFailed: (why) => told.push(why) })
  return { clock, directory, recordings, told, begin }
}

const eventsIn = async (directory: string, name: string) => {
  const events: [number, string, string][] = []
  for await (const { ms, kind, text } of readRecording(directory, name)) events.push([ms, kind, text])
  return events
}

test('a recording has a header, output with times and sizes, and the hash of all its bytes', async (t) => {
  const { clock, directory, begin, recordings } = await recordingsOf(t)
  const recording = await begin()
  assert.equal(recording.name, `2026-05-21-09:42:18-${AGENT.slice(0, 16)}`)
  recording.output('stdout', Buffer.from('one'))
  await clock.advance(5)
  recording.output('stdout', Buffer.from('two'))
  await clock.advance(RECORDING_WRITE_MS)
  for (const cols of [81, 82, 83]) recording.resized({ cols, rows: 30 })
  // A character in two parts, then an invalid byte.
  recording.output('stdout', Buffer.from([0xc3]))
  recording.output('stdout', Buffer.from([0xa4, 0xff, 0x1b]))
  const { bytes, sha256, complete, name } = await recording.finish()
  recordings.ended(AGENT)
  const path = join(directory, `${name}.cast`)
  const file = await readFile(path)
  assert.deepEqual([bytes, sha256, complete], [file.length, createHash('sha256').update(file).digest('hex'), true])
  assert.deepEqual([(await stat(path)).mode & 0o777, (await stat(directory)).mode & 0o777], [0o600, 0o700])
  const [head = '', ...lines] = file.toString().trimEnd().split('\n')
  const { version, width, env } = parseCastHeader(Buffer.from(head)) as Record<string, unknown>
  assert.deepEqual([version, width, env], [2, 80, { TERM: 'xterm' }])
  assert.deepEqual(await eventsIn(directory, name), [
    [0, 'o', 'onetwo'],
    [255, 'r', '83x30'],
    [255, 'o', 'ä\ufffd\u001b'],
  ])
  // A control character would affect a terminal that shows the file.
  assert.ok(lines.every(isVisible))
  const [listed] = await listRecordings(directory, 10)
  assert.deepEqual([listed?.argv, listed?.duration_ms, listed?.agent_id, listed?.bytes], [['htop'], 255, AGENT, bytes])
})

test('property: a recording contains all output of a program, in pieces of any size', async (t) => {
  const { begin, directory, recordings } = await recordingsOf(t, {
    bounds: { each: 64 * MIB, agent: 1e12, all: 1e12, files: 1e6, agentFiles: 1e6 },
  })
  const pieces = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 30 })
  await fc.assert(
    fc.asyncProperty(pieces, async (all) => {
      const recording = await begin()
      for (const piece of all) recording.output('stdout', piece)
      const { name, complete } = await recording.finish()
      recordings.ended(AGENT)
      const texts = (await eventsIn(directory, name)).map(([, , text]) => text)
      assert.equal(texts.join(''), new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(all)))
      assert.equal(complete, true)
      await removeRecording(directory, name)
    }),
    { numRuns: 50 },
  )
})

test('a program waits while its recording is written, and continues when there is room', async (t) => {
  const { clock, begin, told, directory } = await recordingsOf(t, {
    bounds: { each: 64 * MIB, agent: 1e12, all: 1e12, files: 20, agentFiles: 20 },
  })
  const recording = await begin()
  const part = Buffer.alloc(MAX_RECORDING_UNWRITTEN / 4, 'x')
  const taken = [1, 2, 3, 4].map(() => recording.output('stdout', part))
  assert.deepEqual([taken, told], [[true, true, true, false], []])
  await clock.advance(0)
  await until(() => told.includes('room'))
  assert.deepEqual(told, ['room'])
  assert.equal(recording.output('stdout', part), true)
  const { name } = await recording.finish()
  const all = (await eventsIn(directory, name)).map(([, , text]) => text)
  assert.equal(all.join('').length, 5 * part.length)
})

test('a full recording or a removed file ends the recording once, and the result is marked incomplete', async (t) => {
  const full = await recordingsOf(t)
  const one = await full.begin()
  one.output('stdout', Buffer.alloc(2 * MIB, 'x'))
  await full.clock.advance(0)
  await until(() => full.told.length > 0)
  one.output('stdout', Buffer.from('more'))
  const end = await one.finish()
  assert.match(full.told.join(), /^the recording has more than 1048576 bytes(,room)?$/)
  assert.equal(end.complete, false)
  const file = await readFile(join(full.directory, `${end.name}.cast`))
  assert.deepEqual([end.bytes, end.sha256], [file.length, createHash('sha256').update(file).digest('hex')])
  const removed = await recordingsOf(t)
  const other = await removed.begin()
  await removeRecording(removed.directory, other.name)
  other.output('stdout', Buffer.from('x'))
  assert.equal((await other.finish()).complete, false)
  assert.match(removed.told.join(), /the file of the recording was removed/)
})

test('a recording does not start on a full disk', async (t) => {
  const root = await smallDisk(t, 64)
  if (root === null) return t.skip(NO_DISK)
  await chmod(root, 0o700)
  const { begin, recordings } = await recordingsOf(t, { root })
  const first = await begin()
  await first.finish()
  recordings.ended(AGENT)
  await writeFile(join(root, 'filler'), Buffer.alloc(64 * 1024)).catch(() => undefined)
  await assert.rejects(begin(), /too little space left on the disk/)
})

test('recordings have limits per agent, in total and in number, and an open one counts with its maximum size', async (t) => {
  const { begin, recordings, directory } = await recordingsOf(t)
  const open = [await begin(), await begin()]
  // The header of each recording is already on the disk.
  await assert.rejects(begin(), /the recordings of this agent leave no room/)
  const names = open.map(({ name }) => name.slice(36))
  assert.deepEqual(names, ['', '-2'])
  const others = [await begin(OTHER), await begin(OTHER)]
  await assert.rejects(begin('c3'.repeat(32)), /the recordings of this machine leave no room/)
  for (const recording of [...open, ...others]) await recording.finish()
  for (const agent of [AGENT, AGENT, OTHER, OTHER]) recordings.ended(agent)
  await (await begin('c3'.repeat(32))).finish()
  recordings.ended('c3'.repeat(32))
  for (let at = 0; at < 15; at++)
    await writeFile(join(directory, `2026-05-20-00:00:${String(at + 10)}-${OTHER.slice(0, 16)}.cast`), '', { mode: 0o600 })
  await assert.rejects(begin(), /the recordings of this machine leave no room/)
})

test('an old recording is removed at a start, and other files stay', async (t) => {
  const { clock, begin, directory, recordings } = await recordingsOf(t)
  await (await begin()).finish()
  recordings.ended(AGENT)
  await writeFile(join(directory, 'other.cast'), '')
  await clock.advance(RECORDING_DAYS * 24 * 3_600_000 + 1_000)
  assert.equal((await recordingNames(directory)).length, 1)
  await recordings.start()
  recordings.stop()
  assert.deepEqual(await readdir(directory), ['other.cast'])
})

test('a directory that others may enter, or a link in place of a recording, is refused', async (t) => {
  const { begin, directory } = await recordingsOf(t)
  await mkdir(directory, { mode: 0o755 })
  await chmod(directory, 0o755)
  await assert.rejects(begin(), { code: 'loose_permissions' })
  await rm(directory, { recursive: true })
  await (await begin()).finish()
  const name = `2020-01-01-00:00:00-${AGENT.slice(0, 16)}`
  await symlink('/etc/passwd', join(directory, `${name}.cast`))
  await assert.rejects(eventsIn(directory, name), { code: 'loose_permissions' })
  for (const bad of ['../x', '2020-01-01-00:00:00', `${name}/../x`, ''])
    await assert.rejects(eventsIn(directory, bad), { code: 'bad_request' })
})

test('property: the parser accepts any bytes without an exception', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.uint8Array({ maxLength: 60 }),
        fc.json().map((text) => Buffer.from(text)),
      ),
      (line) => {
        const event = parseCastEvent(line)
        assert.ok(event === null || (event.ms >= 0 && ['o', 'r'].includes(event.kind) && typeof event.text === 'string'))
        parseCastHeader(line)
      },
    ),
  )
})
