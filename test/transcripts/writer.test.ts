import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, symlink, truncate, writeFile, type FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { listTranscripts } from '../../src/transcripts/browse.ts'
import { removeOldest } from '../../src/transcripts/browse.ts'
import { TranscriptWriter, type TranscriptWriterInit } from '../../src/transcripts/writer.ts'
import { HIDDEN_VALUE } from '../../src/protocol/console/transcript.ts'
import { MAX_TRANSCRIPT_LINE, MAX_TRANSCRIPTS, MAX_WAITING_ENTRIES } from '../../src/protocol/limits/tools.ts'
import { fileHandles } from '../support/file-handles.ts'
import { until } from '../support/processes.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { endedCommand, entriesInFile, linesIn, outputsIn, transcriptOf, transcriptsDirectory } from '../support/transcripts.ts'

const NAME = '2026-05-21-09:42:18'

const begin = async (t: TestContext, init: Partial<TranscriptWriterInit> = {}) => {
  const clock = new ManualClock(Date.UTC(2026, 4, 21, 9, 42, 18))
  const said: string[] = []
  const directory = init.directory ?? (await transcriptsDirectory(t))
  const writer = await TranscriptWriter.start({ clock }, { directory, recordEnv: false, say: (text) => void said.push(text), ...init })
  t.after(() => writer.close())
  /** Records a command that begins and ends. */
  const run = (text: string): Promise<boolean> => writer.end(writer.arrive(), endedCommand(text))
  return { writer, directory, clock, said, run }
}

test('an entry starts with the fields of the format and is on the disk when confirmed', async (t) => {
  const { writer, run } = await begin(t)
  assert.equal(writer.name, NAME)
  assert.equal(await run('a\n'), true)
  const [line = '', rest] = (await readFile(writer.path, 'utf8')).split('\n')
  assert.equal(rest, '')
  assert.ok(
    line.startsWith(
      '{"whoami":"Codex","dir":"/srv","envs":{},"exec":["echo","a\\n"],"exit":0,"output":"a\\n","time":"2026-05-21T09:42:18Z","started_at":"2026-05-21T09:42:18.120Z",',
    ),
    line,
  )
  assert.equal((await stat(writer.path)).mode & 0o777, 0o600)
  assert.equal((await stat(join(writer.path, '..'))).mode & 0o777, 0o700)
})

test('a directory that others may enter or that is a link is refused, and no link is followed', async (t) => {
  const { directory } = await begin(t)
  for (const mode of [0o755, 0o770, 0o701]) {
    const loose = await transcriptsDirectory(t)
    await mkdir(loose)
    await chmod(loose, mode)
    await assert.rejects(begin(t, { directory: loose }), { code: 'loose_permissions' })
  }
  const link = await transcriptsDirectory(t)
  await symlink(directory, link)
  await assert.rejects(begin(t, { directory: link }), { code: 'loose_permissions', message: /is a link/ })
  const other = await transcriptsDirectory(t)
  await mkdir(other, { mode: 0o700 })
  await symlink(join(other, 'elsewhere'), join(other, `${NAME}.jsonl`))
  assert.equal((await begin(t, { directory: other })).writer.name, '2026-05-21-09:42:19')
  assert.deepEqual((await readdir(other)).sort(), [`${NAME}.jsonl`, '2026-05-21-09:42:19.jsonl'])
})

test('consoles that start in the same second get separate transcripts, named after the next free seconds', async (t) => {
  const { directory, run } = await begin(t)
  await run('a')
  const second = await begin(t, { directory })
  await second.run('b')
  assert.equal(second.writer.name, '2026-05-21-09:42:19')
  assert.deepEqual([await outputsIn(directory, NAME), await outputsIn(directory, second.writer.name)], [['a'], ['b']])
  for (let n = 20; n < 80; n++)
    await transcriptOf(directory, new Date(Date.UTC(2026, 4, 21, 9, 42, n)).toISOString().slice(0, 19).replace('T', '-'), [])
  await assert.rejects(begin(t, { directory }), { code: 'conflict' })
})

test('entries are in order of arrival, whichever command ends first', async (t) => {
  const { writer, directory } = await begin(t)
  const [one, two, three, four] = [writer.arrive(), writer.arrive(), writer.arrive(), writer.arrive()]
  await Promise.all([writer.end(three, endedCommand('three')), writer.end(two, endedCommand('two'))])
  assert.deepEqual(await entriesInFile(writer.path), [])
  assert.deepEqual(
    (await linesIn(directory, NAME)).map(({ waits }) => waits),
    [true, true],
  )
  assert.deepEqual(await outputsIn(directory, NAME), ['two', 'three'])
  await writer.end(one, endedCommand('one'))
  assert.deepEqual(
    (await entriesInFile(writer.path)).map(({ output, arrival }) => [output, arrival]),
    [
      ['one', 1],
      ['two', 2],
      ['three', 3],
    ],
  )
  assert.deepEqual(await outputsIn(directory, NAME), ['one', 'two', 'three'])
  await until(async () => (await stat(join(directory, `${NAME}.waiting`))).size === 0)
  await writer.end(four, null)
  await writer.close()
  assert.deepEqual(await readdir(directory), [`${NAME}.jsonl`])
})

test('an orderly stop writes all ended commands, even if an earlier one still runs', async (t) => {
  const { writer, directory } = await begin(t)
  writer.arrive()
  await writer.end(writer.arrive(), endedCommand('two'))
  void writer.end(writer.arrive(), endedCommand('three'))
  await writer.close()
  assert.deepEqual(
    (await entriesInFile(writer.path)).map(({ output }) => output),
    ['two', 'three'],
  )
  assert.deepEqual(await readdir(directory), [`${NAME}.jsonl`])
  assert.equal(await writer.end(1, endedCommand('one')), false)
})

test('a waiting entry that cannot be moved at a stop is not lost', async (t) => {
  const { writer, directory, said, run } = await begin(t)
  writer.arrive()
  await run('waits')
  const fault = t.mock.method(await fileHandles(), 'datasync', () => Promise.reject(new Error('the disk fails')))
  await writer.close()
  fault.mock.restore()
  assert.deepEqual(await outputsIn(directory, NAME), ['waits'])
  assert.doesNotMatch(said.join('\n'), /missing/)
})

test('a slow command loses its place when too many later entries wait, and its number shows this', async (t) => {
  const { writer, run } = await begin(t)
  const slow = writer.arrive()
  await Promise.all(Array.from({ length: MAX_WAITING_ENTRIES }, (_item, n) => run(`${n}`)))
  assert.deepEqual(await entriesInFile(writer.path), [])
  await run('last')
  assert.equal((await entriesInFile(writer.path)).length, MAX_WAITING_ENTRIES + 1)
  await writer.end(slow, endedCommand('slow'))
  const entries = await entriesInFile(writer.path)
  assert.deepEqual([entries.at(-1)?.output, entries.at(-1)?.arrival], ['slow', 1])
})

test('only the names of variables are written, unless the values were requested', async (t) => {
  const envs = { TOKEN: 's3cret-value', EMPTY: '' }
  const { writer } = await begin(t)
  await writer.end(writer.arrive(), endedCommand('x', { envs }))
  assert.deepEqual((await entriesInFile(writer.path))[0]?.envs, { TOKEN: HIDDEN_VALUE, EMPTY: HIDDEN_VALUE })
  assert.ok(!(await readFile(writer.path, 'utf8')).includes('s3cret'))
  const other = await begin(t, { recordEnv: true })
  await other.writer.end(other.writer.arrive(), endedCommand('x', { envs }))
  assert.deepEqual((await entriesInFile(other.writer.path))[0]?.envs, envs)
})

test('a command that is too long for one line is written without its longest parts', async (t) => {
  const { writer, directory } = await begin(t)
  await writer.end(
    writer.arrive(),
    endedCommand('x', { exec: ['echo', '\u0001'.repeat(MAX_TRANSCRIPT_LINE / 4)], whoami: 'w'.repeat(100_000) }),
  )
  const [line] = await linesIn(directory, NAME)
  assert.ok(line !== undefined && 'entry' in line)
  assert.deepEqual([line.entry.exec_truncated, line.entry.output_truncated, line.entry.exec.length], [true, true, 2])
})

test('a full file continues in another that names it, and waiting entries move with it', async (t) => {
  const { writer, directory, said, run } = await begin(t, { maxFileBytes: 400 })
  for (const text of ['a', 'b']) await run(text)
  const slow = writer.arrive()
  await run('d')
  await run('e'.repeat(400))
  await writer.end(slow, endedCommand('c'))
  await run('f')
  await writer.close()
  const names = (await listTranscripts(directory, 10)).map(({ name }) => name).reverse()
  assert.ok(names.length > 1)
  assert.deepEqual(
    (await Promise.all(names.map(async (name) => outputsIn(directory, name)))).flat().map((text) => text[0]),
    [...'abcdef'],
  )
  const first = await Promise.all(names.map(async (name) => (await entriesInFile(join(directory, `${name}.jsonl`)))[0]?.continues))
  assert.deepEqual(first, [undefined, ...names.slice(0, -1)])
  assert.equal(said.filter((text) => text.includes('is full; it continues in')).length, names.length - 1)
  assert.deepEqual(
    (await readdir(directory)).filter((file) => !file.endsWith('.jsonl')),
    [],
  )
})

test('a waiting entry is always on the disk, also while its transcript continues in another file', async (t) => {
  const handles = await fileHandles()
  // oxlint-disable-next-line typescript/unbound-method
  const { datasync } = handles
  for (const succeed of [0, 1]) {
    const { writer, directory, clock, run } = await begin(t, { maxFileBytes: 400 })
    const [full, slow] = [writer.arrive(), writer.arrive()]
    await run('waits')
    await writer.end(full, endedCommand('f'.repeat(400)))
    let calls = 0
    const fault = t.mock.method(handles, 'datasync', async function (this: FileHandle): Promise<void> {
      if (++calls > succeed) throw new Error('the disk fails')
      await datasync.call(this)
    })
    assert.equal(await run('too'), succeed === 1)
    assert.notEqual(writer.name, NAME)
    const outputs = async () => [...(await outputsIn(directory, NAME)).slice(1), ...(await outputsIn(directory, writer.name))]
    assert.ok((await outputs()).includes('waits'))
    fault.mock.restore()
    await clock.advance(1_000)
    await until(async () => (await readdir(directory)).length === 3)
    assert.deepEqual(await outputs(), ['waits', 'too'])
    await writer.end(slow, endedCommand('slow'))
    assert.deepEqual(await outputs(), ['slow', 'waits', 'too'])
  }
})

test('a removed file continues in another, and the user is notified', async (t) => {
  const { writer, said, run } = await begin(t)
  await run('a')
  await rm(writer.path)
  await run('b')
  assert.deepEqual(
    (await entriesInFile(writer.path)).map(({ output }) => output),
    ['b'],
  )
  assert.match(said.join('\n'), /was removed; it continues in/)
})

test('a transcript names its predecessor, even if an empty file between them was removed', async (t) => {
  const { writer, run } = await begin(t)
  await run('a')
  const slow = writer.arrive()
  for (const text of ['b', 'c']) {
    await rm(writer.path)
    await run(text)
  }
  await writer.end(slow, endedCommand('slow'))
  assert.deepEqual(
    (await entriesInFile(writer.path)).map(({ output, continues }) => [output, continues]),
    [
      ['slow', NAME],
      ['b', undefined],
      ['c', undefined],
    ],
  )
})

test('the oldest transcripts above the total limit are removed', async (t) => {
  const directory = await transcriptsDirectory(t)
  for (const year of [2021, 2022, 2023]) await transcriptOf(directory, `${year}-01-01-00:00:00`, ['x'.repeat(1_000)])
  await writeFile(join(directory, '2021-01-01-00:00:00.waiting'), 'x', { mode: 0o600 })
  await writeFile(join(directory, 'notes.txt'), 'x')
  assert.deepEqual(await removeOldest(directory, null, 10_000), [])
  assert.deepEqual(await removeOldest(directory, '2022-01-01-00:00:00', 1_500), ['2021-01-01-00:00:00'])
  assert.deepEqual((await readdir(directory)).sort(), ['2022-01-01-00:00:00.jsonl', '2023-01-01-00:00:00.jsonl', 'notes.txt'])
})

test('the oldest transcripts are removed when a transcript begins or continues in another file', async (t) => {
  const directory = await transcriptsDirectory(t)
  const large = async (name: string): Promise<void> => truncate(await transcriptOf(directory, name, []), MAX_TRANSCRIPTS)
  await transcriptOf(directory, '2021-01-01-00:00:00', ['x'])
  await large('2022-01-01-00:00:00')
  const { writer, said, run } = await begin(t, { directory })
  assert.deepEqual(said.splice(0), ['too many transcripts: the oldest were removed, 2021-01-01-00:00:00'])
  await run('a')
  await large('2023-01-01-00:00:00')
  await rm(writer.path)
  await run('b')
  assert.equal(said.at(-1), 'too many transcripts: the oldest were removed, 2022-01-01-00:00:00')
})

/** A file system of `kib` KiB, or null if this user may not mount one. */
const smallDisk = async (t: TestContext, kib: number): Promise<string | null> => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x-test-'))
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${kib}k,mode=700`, 'tmpfs', directory])
  t.after(async () => {
    if (status === 0) assert.equal(spawnSync('umount', ['-l', directory]).status, 0)
    await rm(directory, { recursive: true })
  })
  return status === 0 ? directory : null
}

test('a full disk is reported at once, commands still run, and entries are written when there is room', async (t) => {
  const directory = await smallDisk(t, 512)
  if (directory === null) return t.skip('may not mount a file system')
  const { writer, said, run, clock } = await begin(t, { directory })
  await run('before')
  // The free space is between one and two reserves of a journal.
  await writeFile(join(directory, 'ballast'), Buffer.alloc(470 * 1024))
  assert.equal(await run('meanwhile'), false)
  assert.match(said.join('\n'), /cannot be written: too little space left on the disk; commands still run/)
  assert.equal(await run('and this'), false)
  assert.equal(said.length, 1)
  await rm(join(directory, 'ballast'))
  await clock.advance(1_000)
  await until(() => said.some((text) => text.includes('is written again')))
  assert.equal(await run('after'), true)
  assert.deepEqual(
    (await entriesInFile(writer.path)).map(({ output }) => output),
    ['before', 'meanwhile', 'and this', 'after'],
  )
})

test('entries that could not be written are written at a stop', async (t) => {
  const { writer, directory, said, run } = await begin(t)
  await run('before')
  const slow = writer.arrive()
  await rename(directory, `${directory}.away`)
  assert.equal(await run('meanwhile'), false)
  await rename(`${directory}.away`, directory)
  await writer.close()
  assert.deepEqual(
    (await entriesInFile(writer.path)).map(({ output }) => output),
    ['before', 'meanwhile'],
  )
  assert.doesNotMatch(said.join('\n'), /missing/)
  assert.equal(await writer.end(slow, endedCommand('slow')), false)
})

test('entries that exceed the memory limit during a full disk are counted in the next entry', async (t) => {
  const directory = await smallDisk(t, 64 * 1024)
  if (directory === null) return t.skip('may not mount a file system')
  const { writer, run, clock, said } = await begin(t, { directory })
  await writeFile(join(directory, 'ballast'), Buffer.alloc(60 * 1024 * 1024))
  const large = endedCommand('large', { exec: ['x'.repeat(6 * 1024 * 1024)] })
  for (let n = 0; n < 5; n++) assert.equal(await writer.end(writer.arrive(), large), false)
  await rm(join(directory, 'ballast'))
  await clock.advance(1_000)
  await until(() => said.length === 2)
  await run('after')
  assert.deepEqual(
    (await entriesInFile(writer.path)).map((entry) => entry.missing_before),
    [undefined, undefined, undefined, 2],
  )
  await writeFile(join(directory, 'ballast'), Buffer.alloc(40 * 1024 * 1024))
  assert.equal(await run('never'), false)
  await writer.close()
  assert.match(said.at(-1) ?? '', /^1 of its commands are missing in the transcript/)
})
