import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { chmod, mkdir, readFile, readdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'

import { type FileCommand, fileCommandArgv, readFileError } from '../../../src/protocol/file-command.ts'
import { FIRST_UNACKED_PER_RUN, MAX_FRAME_DATA, STDIN_PIECE_BYTES } from '../../../src/protocol/limits/wire.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import type { FakeLink, ProbeRun } from '../../support/fake-network.ts'
import { hasProc, temporaryDirectory, until } from '../../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }

interface FileHost {
  readonly host: ExecutorHost
  readonly link: FakeLink
  readonly root: string
  ask(command: FileCommand, stdin?: Buffer): Promise<ProbeRun>
}

/** Lets a peer use files below one root, with these keys. */
const hostWith = async (t: TestContext, keys = 'read = true\nwrite = true'): Promise<FileHost> => {
  const root = join(await temporaryDirectory(t), 'srv')
  await mkdir(root)
  const entryKeys = `[[exec.allow.files]]\nroot = "${root}"\n${keys}\n`
  const { host, link } = await ExecutorHost.linked(t, { entryKeys, scripts: { hello: 'echo hi' } })
  const ask: FileHost['ask'] = async (command, stdin) => link.ask(fileCommandArgv(command), stdin === undefined ? {} : { stdin })
  return { host, link, root, ask }
}

const write = (path: string, data: Buffer): FileCommand => {
  const sha256 = createHash('sha256').update(data).digest('hex')
  return {
    op: 'write',
    path,
    upload: 'b'.repeat(32),
    offset: 0,
    parents: true,
    finish: { sha256, mode: null, mtime_ms: null, expect: null },
  }
}

const sendStdin = (run: ProbeRun, data: Buffer, ends = true): void => {
  const FRAME = 32 * 1024
  const count = Math.max(1, Math.ceil(data.length / FRAME))
  for (let seq = 0; seq < count; seq++)
    run.send({
      type: 'stdin',
      request_id: run.id,
      seq,
      data: data.subarray(seq * FRAME, (seq + 1) * FRAME),
      eof: ends && seq === count - 1,
    })
}

test('a file is read by a signed run that is in the audit log', linuxOnly, async (t) => {
  const { host, root, ask } = await hostWith(t)
  const data = randomBytes(200_000)
  await writeFile(join(root, 'file'), data)
  const run = await ask({ op: 'read', path: join(root, 'file'), offset: 0, length: 1_000_000, version: null })
  const exit = await run.exit()
  assert.ok(run.output().equals(data))
  assert.deepEqual([exit.code, exit.stdout_bytes_total, run.output('stderr').length], [0, data.length, 0])
  assert.deepEqual(Buffer.from(exit.stdout_sha256), createHash('sha256').update(data).digest())
  const [asked, ...others] = (await host.lines()).filter((line) => line.request_id === run.id)
  assert.ok(asked?.event === 'request')
  assert.deepEqual([asked.argv[0], asked.executable, asked.matched_acl], ['@read', null, 'a peer'])
  assert.deepEqual(
    others.map(({ event }) => event),
    ['exit'],
  )
})

test('a failed file command exits with 1 and one line with the reason', linuxOnly, async (t) => {
  const { root, ask } = await hostWith(t)
  const run = await ask({ op: 'hash', path: join(root, 'none'), version: null })
  assert.equal((await run.exit()).code, 1)
  const text = run.output('stderr').toString()
  assert.deepEqual([readFileError(text)?.code, text.startsWith(`${root}/none: `), run.output().length], ['ENOENT', true, 0])
})

test('a file is written from signed stdin', linuxOnly, async (t) => {
  const { root, ask } = await hostWith(t)
  const data = randomBytes(STDIN_PIECE_BYTES + 10_000)
  const run = await ask(write(join(root, 'file'), data), data)
  sendStdin(run, data)
  assert.deepEqual([(await run.exit()).code, run.output('stderr').toString()], [0, ''])
  assert.ok((await readFile(join(root, 'file'))).equals(data))
  assert.deepEqual(await readdir(root), ['file'])
})

test('an empty file is written', linuxOnly, async (t) => {
  const { root, ask } = await hostWith(t)
  const run = await ask(write(join(root, 'file'), Buffer.alloc(0)), Buffer.alloc(0))
  sendStdin(run, Buffer.alloc(0))
  assert.deepEqual([(await run.exit()).code, (await readFile(join(root, 'file'))).length], [0, 0])
})

test('stdin that was not announced is never written into the file', linuxOnly, async (t) => {
  const { root, ask } = await hostWith(t)
  const data = Buffer.from('good')
  const run = await ask(write(join(root, 'file'), data), data)
  sendStdin(run, Buffer.from('evil'))
  const exit = await run.exit()
  assert.deepEqual([exit.code, run.warnings()], [null, ['stdin_mismatch']])
  const [partial, ...others] = await readdir(root)
  assert.deepEqual(others, [])
  if (partial !== undefined) assert.equal((await readFile(join(root, partial))).length, 0)
})

for (const [title, keys, command] of [
  ['outside every root', 'read = true\nwrite = true', () => ({ op: 'stat', path: '/etc/passwd' })],
  ['next to the root with a longer name', 'read = true', (root: string) => ({ op: 'stat', path: `${root}ication` })],
  ['read without the right to read', 'write = true', (root: string) => ({ op: 'hash', path: `${root}/file`, version: null })],
  ['written without the right to write', 'read = true', (root: string) => write(`${root}/file`, Buffer.from('x'))],
  ['created without create_dirs', 'write = true', (root: string) => ({ op: 'mkdir', path: `${root}/d`, mode: null })],
] as readonly (readonly [string, string, (root: string) => FileCommand])[])
  test(`a path that is ${title} is denied`, linuxOnly, async (t) => {
    const { host, root, ask } = await hostWith(t, keys)
    const asked = command(root)
    const run = await ask(asked, asked.op === 'write' ? Buffer.from('x') : undefined)
    assert.equal(await run.denial(), 'argv_not_allowed')
    assert.deepEqual(await host.events(run.id), ['denial'])
    assert.deepEqual(await readdir(root), [])
  })

test('a malformed file command, or one above its limits, is denied', linuxOnly, async (t) => {
  const { link, root, ask } = await hostWith(t)
  await writeFile(join(root, 'file'), 'x')
  const path = join(root, 'file')
  for (const argv of [
    ['@stat'],
    ['@stat', `${root}/../srv/file`],
    ['@stat', path, 'x=1'],
    ['@exec', path],
    ['@', path],
    ['@read', path, 'offset=-1'],
    ['@write', path],
  ])
    assert.equal(await (await link.ask(argv)).denial(), 'argv_not_allowed', argv.join(' '))
  assert.equal(await (await link.ask(['@stat', path], { stdin: Buffer.from('x') })).denial(), 'stdin_too_large')
  assert.equal(await (await link.ask(['@stat', path], { fields: { cwd: '/' } })).denial(), 'cwd_not_allowed')
  assert.equal(await (await link.ask(['@stat', path], { fields: { timeout_ms: 10_000_000 } })).denial(), 'timeout_too_large')
  assert.equal((await (await ask({ op: 'stat', path })).exit()).code, 0)
})

test('a root below a directory that others may change is not used', linuxOnly, async (t) => {
  const { root, ask } = await hostWith(t)
  await writeFile(join(root, 'file'), 'x')
  await chmod(dirname(root), 0o777)
  const run = await ask({ op: 'stat', path: join(root, 'file') })
  assert.equal(await run.denial(), 'spawn_failed')
  await chmod(dirname(root), 0o700)
  assert.equal((await (await ask({ op: 'stat', path: join(root, 'file') })).exit()).code, 0)
})

test('a cancelled file command ends, and its upload can be continued', linuxOnly, async (t) => {
  const { root, ask } = await hostWith(t)
  const data = randomBytes(2 * STDIN_PIECE_BYTES)
  const run = await ask(write(join(root, 'file'), data), data)
  sendStdin(run, data.subarray(0, STDIN_PIECE_BYTES), false)
  await run.frame('started')
  run.cancel()
  assert.deepEqual([(await run.exit()).code, run.warnings()], [null, ['cancelled']])
  const state = await ask({ op: 'upload', path: join(root, 'file'), upload: 'b'.repeat(32) })
  assert.equal((await state.exit()).code, 0)
  const { received } = JSON.parse(state.output().toString()) as { received: number }
  const rest = await ask(
    { ...(write(join(root, 'file'), data) as Extract<FileCommand, { op: 'write' }>), offset: received },
    data.subarray(received),
  )
  sendStdin(rest, data.subarray(received))
  assert.equal((await rest.exit()).code, 0)
  assert.ok((await readFile(join(root, 'file'))).equals(data))
})

test('a requester that reads no output cannot prolong a file command that it cancels', linuxOnly, async (t) => {
  const { host, link, root } = await hostWith(t)
  const path = join(root, 'large')
  // The window takes the first part, and the rest fits in the buffer of the file command, so that its work is complete.
  const length = FIRST_UNACKED_PER_RUN + STDIN_PIECE_BYTES / 2
  await writeFile(path, randomBytes(length))
  const argv = fileCommandArgv({ op: 'read', path, offset: 0, length, version: null })
  const run = await link.ask(argv, { ack: false })
  await run.frame('stdout')
  await until(() => run.output().length > FIRST_UNACKED_PER_RUN - MAX_FRAME_DATA)
  run.cancel()
  await until(async () => (await host.events(run.id)).includes('exit'))
  assert.equal(host.counters.activeSessions, 0)
})
