import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmod, mkdir, readFile, readdir, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { AppError } from '../../../src/base/errors.ts'
import { FileClient } from '../../../src/exec/files/file-client.ts'
import { FILE_CHUNK_BYTES } from '../../../src/protocol/api/files.ts'
import { changesFiles } from '../../../src/protocol/file-command.ts'
import { type InProcess, type InProcessOptions, runCli } from '../../support/fake-daemon.ts'
import { FakeFileTarget, MTIME, sha256Of } from '../../support/fake-file-target.ts'
import { AGENT, TOKEN, startDoor } from '../../support/rest-server.ts'
import { tempDir } from '../../support/temp-dir.ts'

// Runs the command line against the real routes and the real engine. Only the target is a fake.

interface Stage {
  readonly target: FakeFileTarget
  /** A directory on this machine. */
  readonly here: string
  cli(argv: readonly string[], options?: InProcessOptions): Promise<InProcess>
}

const stageOf = async (t: TestContext): Promise<Stage> => {
  const target = new FakeFileTarget()
  target.directories.add('/srv')
  const directory = {
    resolve: (agent: string) => {
      if (agent === 'bob' || agent === AGENT) return AGENT
      throw new AppError('unknown_agent', `no contact or agent matches "${agent}" (unknown_agent)`)
    },
    select: ([host = '']: readonly string[]) => [{ host, agent_id: directory.resolve(host), name: host, trust: 'trusted', labels: {} }],
  }
  const files = new FileClient({ runner: target, clock: systemClock })
  const { socketPath } = await startDoor(t, { directory: directory as never, files })
  const env = { X0X_API_TOKEN: TOKEN, NO_COLOR: '1' }
  return {
    target,
    here: await tempDir(t),
    cli: async (argv, options = {}) => runCli(['--data-dir', dirname(socketPath), ...argv], { ...options, env }),
  }
}

const SILENT = { status: 0, stdout: '', stderr: '' }

test('cp copies one file in both directions, under the given name', async (t) => {
  const { target, here, cli } = await stageOf(t)
  await writeFile(join(here, 'a'), 'hello')
  assert.deepEqual(await cli(['cp', join(here, 'a'), 'bob:/srv']), SILENT)
  assert.deepEqual(await cli(['cp', join(here, 'a'), 'bob:/srv/b']), SILENT)
  assert.deepEqual(
    [...target.files].map(([path, bytes]) => [path, bytes.toString()]),
    [
      ['/srv/a', 'hello'],
      ['/srv/b', 'hello'],
    ],
  )
  assert.deepEqual(await cli(['cp', 'bob:/srv/a', join(here, 'c')]), SILENT)
  await mkdir(join(here, 'into'))
  assert.deepEqual(await cli(['cp', 'bob:/srv/a', 'bob:/srv/b', join(here, 'into')]), SILENT)
  assert.equal(await readFile(join(here, 'c'), 'utf8'), 'hello')
  assert.deepEqual((await readdir(join(here, 'into'))).toSorted(), ['a', 'b'])
})

test('a destination with a trailing slash is a directory, and cp creates it', async (t) => {
  const { target, here, cli } = await stageOf(t)
  await writeFile(join(here, 'a'), 'hello')
  assert.deepEqual(await cli(['cp', join(here, 'a'), 'bob:/srv/new/']), SILENT)
  assert.deepEqual([target.files.has('/srv/new/a'), target.of('mkdir').length], [true, 1])
  assert.deepEqual(await cli(['cp', 'bob:/srv/new/a', `${join(here, 'new')}/`]), SILENT)
  assert.deepEqual(await readdir(join(here, 'new')), ['a'])
  const file = await cli(['cp', join(here, 'a'), 'bob:/srv/new/a/'])
  assert.deepEqual([file.status, file.stderr], [1, 'x0x: bob:/srv/new/a: is not a directory\n'])
  for (const words of [
    [join(here, 'a'), join(here, 'a'), 'bob:/srv/none'],
    ['bob:/srv/new/a', 'bob:/srv/new/a', join(here, 'none')],
  ]) {
    const { status, stderr } = await cli(['cp', ...words])
    assert.deepEqual([status, /several sources need a directory/.test(stderr)], [2, true], stderr)
  }
})

test('without -p, a new file gets the mode that the umask leaves, and an existing file keeps its mode', async (t) => {
  const { target, here, cli } = await stageOf(t)
  target.files.set('/srv/a', Buffer.from('new'))
  target.falsify = ({ op }, output) => (op === 'stat' ? Buffer.from(output.toString().replace('"mode":420', '"mode":2541')) : output)
  const mode = async (name: string): Promise<number> => (await stat(join(here, name))).mode & 0o7777
  await cli(['cp', 'bob:/srv/a', join(here, 'new')])
  assert.equal(await mode('new'), 0o755 & ~process.umask(), 'without the bit for set-user-ID')
  await writeFile(join(here, 'old'), 'old')
  await chmod(join(here, 'old'), 0o604)
  await cli(['cp', 'bob:/srv/a', join(here, 'old')])
  assert.deepEqual([await mode('old'), await readFile(join(here, 'old'), 'utf8')], [0o604, 'new'])
  await cli(['cp', '-p', 'bob:/srv/a', join(here, 'kept')])
  assert.deepEqual([await mode('kept'), (await stat(join(here, 'kept'))).mtimeMs], [0o755, 1_000])
  await chmod(join(here, 'old'), 0o777)
  await utimes(join(here, 'old'), 5, 5)
  await cli(['cp', '-p', join(here, 'old'), 'bob:/srv/up'])
  await cli(['cp', join(here, 'old'), 'bob:/srv/up'])
  assert.deepEqual(
    target.of('write').map(({ finish }) => [finish?.mode, finish?.mtime_ms]),
    [
      [0o777, 5_000],
      [0o777 & ~process.umask(), null],
    ],
  )
})

test('cp writes through a link to a file, and does not replace a device', async (t) => {
  const { target, here, cli } = await stageOf(t)
  target.files.set('/srv/a', Buffer.from('new'))
  await writeFile(join(here, 'real'), 'old')
  await symlink('real', join(here, 'link'))
  assert.deepEqual(await cli(['cp', 'bob:/srv/a', join(here, 'link')]), SILENT)
  assert.equal(await readFile(join(here, 'real'), 'utf8'), 'new')
  const device = await cli(['cp', 'bob:/srv/a', '/dev/null'])
  assert.deepEqual([device.status, device.stderr], [1, 'x0x: /dev/null: is not a regular file\n     Use "-" for standard output\n'])
  assert.ok((await stat('/dev/null')).isCharacterDevice())
})

test('cp -r copies a tree with its empty directories, and skips links', async (t) => {
  const { target, here, cli } = await stageOf(t)
  await mkdir(join(here, 'tree/deep/er'), { recursive: true })
  await mkdir(join(here, 'tree/empty'))
  await writeFile(join(here, 'tree/a'), 'a')
  await writeFile(join(here, 'tree/deep/er/b'), 'b')
  await symlink('/etc/passwd', join(here, 'tree/link'))
  const up = await cli(['cp', '-r', join(here, 'tree'), 'bob:/srv'])
  assert.deepEqual(up, { ...SILENT, stderr: `x0x: ${here}/tree/link: a symbolic link, skipped\n` })
  assert.deepEqual([...target.files.keys()].toSorted(), ['/srv/tree/a', '/srv/tree/deep/er/b'])
  assert.ok(['/srv/tree/empty', '/srv/tree/deep/er'].every((path) => target.directories.has(path)))
  assert.deepEqual(await cli(['cp', '-r', 'bob:/srv/tree', join(here, 'back')]), SILENT)
  assert.deepEqual((await readdir(join(here, 'back'), { recursive: true })).toSorted(), ['a', 'deep', 'deep/er', 'deep/er/b', 'empty'])
  const plain = await cli(['cp', join(here, 'tree'), 'bob:/srv'])
  assert.equal(plain.status, 1)
  assert.match(plain.stderr, /^x0x: \S*\/tree: is a directory \(EISDIR\)\n {5}Try: x0x .*cp -r\n$/)
  const directory = await cli(['cp', 'bob:/srv/tree', join(here, 'other')])
  assert.equal(directory.status, 1)
  assert.match(directory.stderr, /^x0x: bob:\/srv\/tree: is a directory \(EISDIR\)\n {5}Try: x0x .*cp -r\n$/)
})

test('each failed file prints one line, the other files are copied, and --json prints one object per file', async (t) => {
  const { target, here, cli } = await stageOf(t)
  target.files.set('/srv/a', Buffer.from('a'))
  const { status, stdout, stderr } = await cli(['cp', '--json', 'bob:/srv/none', 'bob:/srv/a', here])
  assert.deepEqual([status, stderr], [1, 'x0x: bob:/srv/none: no such file or directory (ENOENT)\n'])
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .toSorted((one) => (one['ok'] === true ? 1 : -1))
  assert.deepEqual(
    lines.map(({ ok, source, destination, bytes, sha256, error }) => [ok, source, destination, bytes, sha256, error]),
    [
      [false, 'bob:/srv/none', join(here, 'none'), undefined, undefined, 'file_not_found'],
      [true, 'bob:/srv/a', join(here, 'a'), 1, sha256Of(Buffer.from('a')), undefined],
    ],
  )
  const local = await cli(['cp', join(here, 'a'), join(here, 'nothing'), 'bob:/srv'])
  assert.deepEqual([local.status, local.stderr], [1, `x0x: ${here}/nothing: no such file or directory (ENOENT)\n`])
})

test('a denial and an unknown agent exit with 255 and the reason', async (t) => {
  const { target, here, cli } = await stageOf(t)
  target.judge = () => ({ denial_reason: 'argv_not_allowed' })
  for (const words of [
    ['cp', 'bob:/etc/shadow', here],
    ['ls', 'bob:/etc'],
  ]) {
    const { status, stdout, stderr } = await cli(words)
    assert.deepEqual([status, stdout], [255, ''])
    assert.match(stderr, /^x0x: bob denied access to \/etc.* \(argv_not_allowed\): no files table.*\n {5}Try: x0x .*acl mine bob\n/)
  }
  const unknown = await cli(['cp', 'nobody:/a', here])
  assert.deepEqual([unknown.status, unknown.stderr.startsWith('x0x: no contact or agent matches "nobody"')], [255, true])
  const none = await runCli(['--data-dir', here, 'cp', 'bob:/a', here])
  assert.deepEqual([none.status, /cannot connect to x0xd/.test(none.stderr)], [255, true])
})

test('with write permission only, an upload checks the destination, asks once and writes', async (t) => {
  const { target, here, cli } = await stageOf(t)
  await writeFile(join(here, 'a'), 'hello')
  target.judge = (command) => (changesFiles(command) ? null : { denial_reason: 'argv_not_allowed' })
  const opsOf = async (...words: readonly string[]): Promise<string[]> => {
    target.commands.length = 0
    const { status, stderr } = await cli(['cp', ...words])
    assert.deepEqual([status, stderr], [0, ''], words.join(' '))
    return target.commands.map(({ op, path }) => `${op} ${path}`)
  }
  const into = ['stat /srv', 'upload /srv/a', 'write /srv/a']
  assert.deepEqual(await opsOf(join(here, 'a'), 'bob:/srv/'), into)
  assert.deepEqual(await opsOf(join(here, 'a'), 'bob:/srv/b'), ['stat /srv/b', 'upload /srv/b', 'write /srv/b'])
  await writeFile(join(here, 'b'), 'hello')
  const both = await opsOf(join(here, 'a'), join(here, 'b'), 'bob:/srv')
  assert.deepEqual(both.toSorted(), [...into, 'write /srv/b'].toSorted())
})

test('a denied upload names the write access that it needs, once for all files', async (t) => {
  const { target, here, cli } = await stageOf(t)
  const names = Array.from({ length: 30 }, (_, index) => join(here, `${index}`))
  for (const name of names) await writeFile(name, 'hello')
  for (const denial_reason of ['argv_not_allowed', 'agent_machine_not_in_acl'] as const) {
    target.judge = () => ({ denial_reason })
    target.commands.length = 0
    const { status, stderr } = await cli(['cp', ...names, 'bob:/srv/app/'])
    assert.deepEqual([status, target.commands.map(({ op, path }) => `${op} ${path}`)], [255, ['stat /srv/app', 'upload /srv/app/0']])
    assert.match(stderr, new RegExp(`^x0x: bob denied writing /srv/app/0 \\(${denial_reason}\\)`))
  }
})

test('a directory is not copied to an unreadable place unless the destination ends with a slash', async (t) => {
  const { target, here, cli } = await stageOf(t)
  await mkdir(join(here, 'site'))
  target.judge = (command) => (changesFiles(command) ? null : { denial_reason: 'argv_not_allowed' })
  const { status, stderr } = await cli(['cp', '-r', join(here, 'site'), 'bob:/srv/app'])
  assert.deepEqual([status, target.commands.length], [255, 1], stderr)
  assert.deepEqual(await cli(['cp', '-r', join(here, 'site'), 'bob:/srv/app/']), SILENT)
  assert.deepEqual(
    target.of('mkdir').map(({ path }) => path),
    ['/srv/app/site'],
  )
})

test('an interrupted copy keeps its partial files, says so, and continues from them', async (t) => {
  const { target, here, cli } = await stageOf(t)
  const content = randomBytes(2 * FILE_CHUNK_BYTES + 5)
  target.files.set('/srv/large', content)
  const words = ['cp', 'bob:/srv/large', join(here, 'large')]
  let interrupt: (signal: NodeJS.Signals) => void = () => undefined
  target.before = async (command) => {
    if (command.op !== 'read' || command.offset !== 2 * FILE_CHUNK_BYTES) return
    // The first chunks must be on disk.
    while ((await stat(join(here, '.large.x0x-part'))).size < FILE_CHUNK_BYTES) await new Promise((resolve) => setTimeout(resolve, 5))
    interrupt('SIGINT')
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  const onSignal = (listener: (signal: NodeJS.Signals) => void) => {
    interrupt = listener
    return () => undefined
  }
  const first = await cli(words, { onSignal })
  assert.equal(first.status, 130)
  assert.match(
    first.stderr,
    /^x0x: interrupted: 0 of 1 file copied\n.*\.large\.x0x-part has [\d.]+ MiB of 32\.0 MiB\n.*run the same command again\n$/,
  )
  assert.equal((await stat(join(here, '.large.x0x-part'))).mode & 0o777, 0o600)
  assert.deepEqual((await readdir(here)).toSorted(), ['.large.x0x-part', '.large.x0x-part.json'])
  target.before = async () => undefined
  target.commands.length = 0
  assert.deepEqual(await cli(words), SILENT)
  assert.ok(target.of('read')[0]!.offset >= FILE_CHUNK_BYTES)
  assert.deepEqual(await readdir(here), ['large'])
  assert.ok((await readFile(join(here, 'large'))).equals(content))
})

test('a partial file of another version or source, or with other content, is not used', async (t) => {
  const { target, here, cli } = await stageOf(t)
  const content = randomBytes(FILE_CHUNK_BYTES + 5)
  target.files.set('/srv/large', content)
  const version = sha256Of(content).slice(0, 16)
  const note = { agent: AGENT, path: '/srv/large', size: content.length, mode: 0o644, mtime_ms: 1_000, version }
  const part = join(here, '.large.x0x-part')
  const copy = async (): Promise<InProcess> => cli(['cp', 'bob:/srv/large', join(here, 'large')])
  for (const other of [{ version: '0' }, { path: '/srv/other' }, { agent: 'c'.repeat(64) }, { size: 3 }]) {
    await writeFile(part, randomBytes(1_000))
    await writeFile(`${part}.json`, JSON.stringify({ ...note, ...other }))
    assert.deepEqual(await copy(), SILENT, JSON.stringify(other))
    assert.ok((await readFile(join(here, 'large'))).equals(content))
    assert.deepEqual(await readdir(here), ['large'])
  }
  await writeFile(part, randomBytes(1_000))
  await writeFile(`${part}.json`, JSON.stringify(note))
  const mixed = await copy()
  assert.deepEqual([mixed.status, /SHA-256 of the copy differs/.test(mixed.stderr)], [1, true], mixed.stderr)
  assert.deepEqual(await copy(), SILENT)
  // In a directory that all users share, a link can lead to the file of another user.
  await writeFile(join(here, 'victim'), 'x'.repeat(1_000))
  await symlink('victim', part)
  await writeFile(`${part}.json`, JSON.stringify(note))
  assert.deepEqual(await copy(), SILENT)
  assert.equal(await readFile(join(here, 'victim'), 'utf8'), 'x'.repeat(1_000))
})

test('a complete partial file of an old version is not used, and a named pipe as its record is ignored', async (t) => {
  const { target, here, cli } = await stageOf(t)
  const content = randomBytes(FILE_CHUNK_BYTES + 5)
  target.files.set('/srv/large', content)
  const part = join(here, '.large.x0x-part')
  const old = randomBytes(content.length)
  const note = { agent: AGENT, path: '/srv/large', size: old.length, mode: 0o644, mtime_ms: 1_000, version: sha256Of(old).slice(0, 16) }
  await writeFile(part, old)
  await writeFile(`${part}.json`, JSON.stringify(note))
  assert.deepEqual(await cli(['cp', 'bob:/srv/large', join(here, 'large')]), SILENT)
  assert.ok((await readFile(join(here, 'large'))).equals(content))
  // Reading a named pipe would block forever.
  await writeFile(part, content.subarray(0, 1_000))
  spawnSync('mkfifo', [`${part}.json`])
  assert.deepEqual(await cli(['cp', 'bob:/srv/large', join(here, 'large')]), SILENT)
})

test('file names and contents from the target reach a terminal without control characters', async (t) => {
  const { target, here, cli } = await stageOf(t)
  const evil = 'a\u001b]52;c;ZXZpbA==\u0007b'
  target.directories.add('/srv/tree')
  target.falsify = (command, output) =>
    command.op === 'list'
      ? Buffer.from(`${JSON.stringify({ path: evil, type: 'symlink', size: 1, mode: 0o777, mtime_ms: 0, mtime: MTIME })}\n{"left_out":0}\n`)
      : output
  const { stderr } = await cli(['cp', '-r', 'bob:/srv/tree', join(here, 'tree')])
  assert.match(stderr, /a symbolic link, skipped/)
  assert.ok(!stderr.includes('\u001b') && !stderr.includes('\u0007'), JSON.stringify(stderr))
  target.files.set('/srv/evil', Buffer.from(`log ${evil}\n`))
  const shown = await cli(['cp', 'bob:/srv/evil', '-'], { terminal: true })
  assert.match(shown.stdout, /^log a/)
  assert.ok(!shown.stdout.includes('\u001b'), JSON.stringify(shown.stdout))
  assert.equal((await cli(['cp', 'bob:/srv/evil', '-'])).stdout, `log ${evil}\n`)
})

test('an interrupted upload continues from the bytes that the target has', async (t) => {
  const { target, here, cli } = await stageOf(t)
  const content = randomBytes(2 * FILE_CHUNK_BYTES + 5)
  await writeFile(join(here, 'large'), content)
  const words = ['cp', join(here, 'large'), 'bob:/srv/large']
  target.judge = (command) =>
    command.op === 'write' && command.offset > 0 ? { stderr: `${command.path}: no space left (ENOSPC)\n` } : null
  const first = await cli(words)
  assert.equal(first.status, 1)
  assert.match(first.stderr, /^x0x: bob:\/srv\/large: no space left \(ENOSPC\)\n(.*\n)*.*run the same command again\n$/)
  target.judge = () => null
  target.commands.length = 0
  assert.deepEqual(await cli(words), SILENT)
  assert.equal(target.of('write')[0]?.offset, FILE_CHUNK_BYTES)
  assert.ok(target.files.get('/srv/large')!.equals(content))
})

test('standard input can be the source of a copy and standard output its destination', async (t) => {
  const { target, cli } = await stageOf(t)
  assert.deepEqual(await cli(['cp', '-', 'bob:/srv/in'], { stdin: 'typed' }), SILENT)
  assert.equal(target.files.get('/srv/in')?.toString(), 'typed')
  assert.deepEqual(await cli(['cp', 'bob:/srv/in', '-']), { ...SILENT, stdout: 'typed' })
  const into = await cli(['cp', '-', 'bob:/srv'], { stdin: 'typed' })
  assert.deepEqual([into.status, /is a directory/.test(into.stderr)], [2, true])
})

test('ls prints names, or all attributes with -l, and lists a file by itself', async (t) => {
  const { target, cli } = await stageOf(t)
  target.directories.add('/srv/dir')
  target.files.set('/srv/b\nc', Buffer.alloc(1_234))
  target.files.set('/srv/dir/a', Buffer.alloc(5))
  assert.deepEqual(await cli(['ls', 'bob:/srv']), { ...SILENT, stdout: 'b\\nc\ndir/\n' })
  assert.equal((await cli(['ls', '-r', 'bob:/srv/'])).stdout, 'b\\nc\ndir/\ndir/a\n')
  assert.equal(
    (await cli(['ls', '-l', 'bob:/srv'])).stdout,
    '-rw-r--r--  1234  1970-01-01 00:00:01  b\\nc\ndrwxr-xr-x     0  1970-01-01 00:00:01  dir/\n',
  )
  assert.equal((await cli(['ls', 'bob:/srv/dir/a'])).stdout, '/srv/dir/a\n')
  const { entries, left_out } = JSON.parse((await cli(['ls', '--json', 'bob:/srv/dir'])).stdout) as { entries: object[]; left_out: number }
  assert.deepEqual([entries.length, left_out], [1, 0])
  const missing = await cli(['ls', 'bob:/none'])
  assert.deepEqual([missing.status, missing.stderr], [1, 'x0x: bob:/none: is not a directory (ENOENT)\n'])
  target.falsify = (_command, output) => Buffer.from(output.toString().replace('"left_out":0', '"left_out":3'))
  const cut = await cli(['ls', 'bob:/srv'])
  assert.deepEqual([cut.status, cut.stderr], [1, 'x0x: bob:/srv: the agent left 3 entries out\n'])
})

test('cp ends with one line of statistics on a terminal, and is silent with -q', async (t) => {
  const { target, here, cli } = await stageOf(t)
  target.files.set('/srv/a', Buffer.alloc(2_048))
  const { status, stderr } = await cli(['cp', 'bob:/srv/a', join(here, 'a')], { terminal: true })
  assert.equal(status, 0)
  assert.match(stderr, /^x0x: 1 of 1 file, 2\.0 KiB in \d+ s, [\d.]+ [KM]?i?B\/s\n$/)
  assert.deepEqual(await cli(['-q', 'cp', 'bob:/srv/a', join(here, 'a')], { terminal: true }), SILENT)
})
