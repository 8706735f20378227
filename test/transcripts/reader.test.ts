import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, chmod, mkdir, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import * as fc from 'fast-check'

import { followTranscript } from '../../src/transcripts/browse.ts'
import { listTranscripts } from '../../src/transcripts/browse.ts'
import { readTranscript, type TranscriptLine } from '../../src/transcripts/read.ts'
import { searchTranscripts } from '../../src/transcripts/browse.ts'
import { TranscriptWriter } from '../../src/transcripts/writer.ts'
import { systemClock } from '../../src/base/clock.ts'
import { parseEntry } from '../../src/protocol/console/transcript.ts'
import { MAX_TRANSCRIPT_LINE } from '../../src/protocol/limits/tools.ts'
import { until } from '../support/processes.ts'
import { endedCommand, entriesInFile, entry, linesIn, outputsIn, transcriptOf, transcriptsDirectory } from '../support/transcripts.ts'

const NAME = '2026-05-21-09:42:18'
const LATER = '2026-05-21-09:50:00'
const HOST = fileURLToPath(new URL('../support/transcript-host.ts', import.meta.url))

test('a host killed with SIGKILL leaves a valid transcript, and ended commands after a running one stay readable', async (t) => {
  const directory = await transcriptsDirectory(t)
  const host = spawn(process.execPath, [HOST, directory], { stdio: ['pipe', 'pipe', 'inherit'] })
  t.after(() => host.kill('SIGKILL'))
  const said: string[] = []
  createInterface({ input: host.stdout }).on('line', (line) => said.push(line))
  host.stdin.write('arrive\nend 1 first\narrive\narrive\narrive\nend 4 fourth\nend 3 third\n')
  await until(() => said.includes('first true') && said.includes('third true') && said.includes('fourth true'))
  host.kill('SIGKILL')
  await once(host, 'exit')
  const name = said[0]!.slice('name '.length)
  assert.deepEqual(
    (await entriesInFile(join(directory, `${name}.jsonl`))).map(({ output }) => output),
    ['first'],
  )
  assert.deepEqual(await outputsIn(directory, name), ['first', 'third', 'fourth'])
  assert.deepEqual(
    (await listTranscripts(directory, 1)).map(({ commands }) => commands),
    [3],
  )
})

test('a torn line and an invalid entry are each reported with the problem, and the others are read', async (t) => {
  const directory = await transcriptsDirectory(t)
  const { output: _output, ...incomplete } = entry()
  const lines = [
    entry({ output: 'a' }),
    'nonsense\n',
    `${JSON.stringify(incomplete)}\n`,
    `${JSON.stringify({ ...entry(), exit: 'x' })}\n`,
    `${'['.repeat(100_000)}\n`,
    `${'x'.repeat(MAX_TRANSCRIPT_LINE + 1)}\n`,
    '\n',
    '[]\n',
    entry({ output: 'b' }),
    JSON.stringify(entry()).slice(0, 40),
  ]
  await transcriptOf(directory, NAME, lines)
  assert.deepEqual(await outputsIn(directory, NAME), [
    'a',
    '(it is not JSON)',
    '(output is missing)',
    '(exit is not a whole number)',
    '(it is nested too deeply, or has too many values)',
    `(it is longer than ${MAX_TRANSCRIPT_LINE} bytes)`,
    '(it is not JSON)',
    '(it is not an object)',
    'b',
    '(it is incomplete: the host ended while it wrote it, or is writing it now)',
  ])
})

test('a waiting entry is shown once, even if it was already moved when its host was killed', async (t) => {
  const directory = await transcriptsDirectory(t)
  await transcriptOf(directory, NAME, [entry({ output: 'a', arrival: 0 }), entry({ output: 'b', arrival: 1 })])
  const waiting = [entry({ output: 'd', arrival: 3 }), entry({ output: 'b', arrival: 1 }), entry({ output: 'c', arrival: 2 })]
  await writeFile(join(directory, `${NAME}.waiting`), `${waiting.map((one) => JSON.stringify(one)).join('\n')}\n{"torn`, { mode: 0o600 })
  assert.deepEqual(await outputsIn(directory, NAME), ['a', 'b', 'c', 'd'])
  assert.deepEqual(
    (await linesIn(directory, NAME)).map(({ waits, number }) => [waits, number]),
    [
      [false, 1],
      [false, 2],
      [true, 3],
      [true, 4],
    ],
  )
})

test('unknown fields are ignored, and an entry of the original format is valid', () => {
  const line = { ...entry(), later: true, __proto__x: 1 }
  assert.deepEqual(parseEntry(Buffer.from(JSON.stringify(line))), { entry: entry() })
})

test('property: any entry is read as written, and a changed byte gives an entry or a problem, never an exception', () => {
  const text = fc.string({ unit: 'binary', maxLength: 20 })
  const count = fc.nat()
  const arbitrary = fc.record(
    {
      whoami: text,
      dir: text,
      envs: fc.dictionary(
        text.filter((name) => name !== '__proto__'),
        text,
      ),
      exec: fc.array(text, { minLength: 1, maxLength: 5 }),
      exit: fc.integer(),
      output: text,
      time: fc.constant('2026-05-21T09:42:24Z'),
      error: text,
      duration_ms: count,
      output_bytes: count,
      output_truncated: fc.boolean(),
      timing: fc.array(fc.tuple(count, count), { maxLength: 5 }),
      arrival: count,
    },
    { requiredKeys: ['whoami', 'dir', 'envs', 'exec', 'exit', 'output', 'time'] },
  )
  fc.assert(
    fc.property(arbitrary, fc.nat(), fc.nat(255), (value, at, byte) => {
      const line = Buffer.from(JSON.stringify(value))
      assert.deepEqual(parseEntry(line), { entry: { ...JSON.parse(line.toString()) } })
      line[at % line.length] = byte
      const parsed = parseEntry(line)
      assert.ok('entry' in parsed || parsed.problem.length < 200)
      assert.ok('problem' in parseEntry(line.subarray(0, at % line.length)))
    }),
    { numRuns: 300 },
  )
})

test('a transcript name cannot be a path, and only a private regular file of this user is read', async (t) => {
  const directory = await transcriptsDirectory(t)
  const path = await transcriptOf(directory, NAME, [entry()])
  for (const name of ['../x', '/etc/passwd', `${NAME}.jsonl`, `${NAME}\0`, `./${NAME}`, `../transcripts/${NAME}`, `${NAME}\n`, '', '..'])
    await assert.rejects(linesIn(directory, name), { code: 'bad_request' }, name)
  await assert.rejects(linesIn(directory, LATER), { code: 'not_found' })
  await symlink(path, join(directory, `${LATER}.jsonl`))
  await assert.rejects(linesIn(directory, LATER), { code: 'loose_permissions', message: /is a link/ })
  await rename(path, join(directory, 'elsewhere'))
  assert.equal(spawnSync('mkfifo', [path]).status, 0)
  await assert.rejects(linesIn(directory, NAME), { code: 'loose_permissions', message: /not a regular file/ })
  const other = await transcriptsDirectory(t)
  await chmod(await transcriptOf(other, NAME, [entry()]), 0o644)
  await assert.rejects(linesIn(other, NAME), { code: 'loose_permissions', message: /chmod 0600/ })
})

test('a directory that others may enter, or that is a link, is not read', async (t) => {
  const directory = await transcriptsDirectory(t)
  await transcriptOf(directory, NAME, [entry()])
  const link = await transcriptsDirectory(t)
  await symlink(directory, link)
  await assert.rejects(linesIn(link, NAME), { code: 'loose_permissions', message: /is a link/ })
  await chmod(directory, 0o750)
  await assert.rejects(listTranscripts(directory, 10), { code: 'loose_permissions', message: /chmod 0700/ })
  const none = await transcriptsDirectory(t)
  assert.deepEqual(await listTranscripts(none, 10), [])
  await mkdir(none, { mode: 0o700 })
  assert.deepEqual(await listTranscripts(none, 10), [])
})

test('the list shows the newest transcripts first, up to the requested number', async (t) => {
  const directory = await transcriptsDirectory(t)
  await transcriptOf(directory, NAME, [entry(), entry()])
  await transcriptOf(directory, LATER, [entry()])
  await writeFile(join(directory, 'x.jsonl'), 'x', { mode: 0o600 })
  const list = async (count: number) => (await listTranscripts(directory, count)).map(({ name, commands }) => `${name} ${commands}`)
  assert.deepEqual(await list(10), [`${LATER} 1`, `${NAME} 2`])
  assert.deepEqual(await list(1), [`${LATER} 1`])
  assert.deepEqual(await list(0), [])
})

/** Follows a transcript until the test ends. `seen` grows meanwhile. */
const follow = (t: TestContext, directory: string) => {
  const ending = new AbortController()
  const seen: string[] = []
  const text = (line: TranscriptLine): string => ('entry' in line ? line.entry.output : line.problem)
  const done = (async () => {
    for await (const line of followTranscript(directory, NAME, ending.signal)) seen.push(text(line))
  })()
  t.after(async () => {
    ending.abort()
    await done
  })
  return seen
}

test('following shows new lines after a repaired torn line, and continues in the next file', async (t) => {
  const directory = await transcriptsDirectory(t)
  const path = await transcriptOf(directory, NAME, [entry({ output: 'a' })])
  const size = JSON.stringify(entry({ output: 'a' })).length + 1
  const seen = follow(t, directory)
  await until(() => seen.length === 1)
  await appendFile(path, '{"whoami":"torn')
  await truncate(path, size)
  await appendFile(path, `${JSON.stringify(entry({ output: 'b' }))}\n`)
  await until(() => seen.length === 2)
  await transcriptOf(directory, '2026-05-21-09:45:00', [entry({ output: 'of another console' })])
  await transcriptOf(directory, LATER, [entry({ output: 'c', continues: NAME })])
  await until(() => seen.length === 3)
  await appendFile(join(directory, `${LATER}.jsonl`), `nonsense\n${JSON.stringify(entry({ output: 'd' }))}\n`)
  await until(() => seen.length === 5)
  assert.deepEqual(seen, ['a', 'b', 'c', 'it is not JSON', 'd'])
})

test('removing a transcript during a search or a listing does not disturb the others', async (t) => {
  const directory = await transcriptsDirectory(t)
  const paths = await Promise.all(
    [NAME, LATER, '2026-05-21-09:55:00'].map((name) => transcriptOf(directory, name, [entry({ output: 'needle\n' })])),
  )
  const found: string[] = []
  for await (const { transcript } of searchTranscripts(directory, { text: 'needle', ignoreCase: false, name: null })) {
    found.push(transcript)
    await rm(paths[1]!, { force: true })
  }
  assert.deepEqual(found, ['2026-05-21-09:55:00', NAME])
  const named = searchTranscripts(directory, { text: 'needle', ignoreCase: false, name: LATER })
  await assert.rejects(async () => named.next(), { code: 'not_found' })
  const listing = listTranscripts(directory, 2)
  await rm(paths[0]!)
  // The list may or may not contain the removed transcript.
  assert.equal((await listing)[0]?.name, '2026-05-21-09:55:00')
})

test('reading stops when its signal aborts', async (t) => {
  const directory = await transcriptsDirectory(t)
  await transcriptOf(directory, NAME, [entry()])
  await assert.rejects(
    async () => {
      for await (const _line of readTranscript(directory, NAME, AbortSignal.abort())) continue
    },
    { name: 'AbortError' },
  )
})

test('property: readers show all ended commands in order of arrival, before and after the writer stops', async (t) => {
  const parent = await transcriptsDirectory(t)
  let count = 0
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(), { minLength: 1, maxLength: 12 }), fc.nat(11), async (order, open) => {
      const directory = `${parent}-${count++}`
      const writer = await TranscriptWriter.start({ clock: systemClock }, { directory, recordEnv: false, say: () => undefined })
      try {
        const places = order.map(() => writer.arrive())
        const ending = places.toSorted((one, other) => order[one - 1]! - order[other - 1]!).filter((place) => place !== open)
        for (const place of ending) assert.equal(await writer.end(place, endedCommand(`${place}`)), true)
        const expected = places.filter((place) => place !== open).map(String)
        assert.deepEqual(await outputsIn(directory, writer.name), expected)
        const first = places.includes(open) ? expected.filter((text) => Number(text) < open) : expected
        assert.deepEqual(
          (await entriesInFile(writer.path)).map(({ output }) => output),
          first,
        )
        await writer.close()
        assert.deepEqual(
          (await entriesInFile(writer.path)).map(({ output }) => output),
          expected,
        )
      } finally {
        await writer.close()
        await rm(directory, { recursive: true })
      }
    }),
    { numRuns: 60 },
  )
})

test('property: a cut or changed transcript is readable, and all other lines stay the same', async (t) => {
  const directory = await transcriptsDirectory(t)
  const entries = Array.from({ length: 6 }, (_item, n) => entry({ output: `output ${n} \n`, arrival: n + 1 }))
  const path = await transcriptOf(directory, NAME, entries)
  const whole = await readFile(path)
  const ends = entries.map((_one, n) => entries.slice(0, n + 1).reduce((sum, one) => sum + JSON.stringify(one).length + 1, 0))
  await fc.assert(
    fc.asyncProperty(fc.nat(whole.length - 1), fc.nat(255), fc.boolean(), async (at, byte, cuts) => {
      const changed = cuts ? whole.subarray(0, at) : Buffer.from(whole)
      if (!cuts) changed[at] = byte
      await writeFile(path, changed)
      const outputs = await outputsIn(directory, NAME)
      const touched = ends.findIndex((end) => at < end)
      const before = entries.slice(0, touched).map(({ output }) => output)
      assert.deepEqual(outputs.slice(0, touched), before)
      const behind = entries.slice(touched + 1).map(({ output }) => output)
      if (cuts) assert.ok(outputs.length <= touched + 1)
      // A changed line feed joins the next line to this one.
      else
        assert.deepEqual(
          outputs.slice(outputs.length - behind.length + (at === ends[touched]! - 1 ? 1 : 0)),
          behind.slice(at === ends[touched]! - 1 ? 1 : 0),
        )
    }),
    { numRuns: 300 },
  )
})
