import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { createHash } from 'node:crypto'
import { mkdir, readFile, rename, rm, rmdir, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test } from 'node:test'

import { verifyJournal } from '../../../src/journal/verify.ts'
import type { FileAnswer } from '../../../src/executor-api/local.ts'
import { NO_BYTES } from '../../../src/protocol/wire/schema.ts'
import { refuses } from '../../support/file-permit.ts'
import { LocalHost } from '../../support/local-engine.ts'
import { ruleText } from '../../support/local-policy.ts'

const write = (host: LocalHost, session: string, path: string, data: Uint8Array = NO_BYTES): Promise<FileAnswer> =>
  host.executor.file({ method: 'fs.write', session, path, mode: 'replace', mkdir_parents: false, atomic: true, expected_mtime: null, data })

const read = (host: LocalHost, session: string, path: string): Promise<FileAnswer> =>
  host.executor.file({ method: 'fs.read', session, path, offset: 0, length: null })

/** Checks that calls that cannot be logged are refused. */
const isRefused = async (host: LocalHost, session: string): Promise<void> => {
  const run = await host.run(session, ['touch', 'ran'])
  const { denial_reason, code } = await run.outcome()
  assert.deepEqual([denial_reason, code, await run.run.begun], ['audit_unavailable', null, await run.outcome()])
  await refuses(read(host, session, 'file'), 'journal_unavailable')
  await refuses(write(host, session, 'written'), 'journal_unavailable')
  await refuses(write(host, session, 'file', Buffer.from('changed')), 'journal_unavailable')
  await refuses(host.open(), 'journal_unavailable')
  assert.deepEqual(
    ['ran', 'written'].map((name) => existsSync(join(host.root, name))),
    [false, false],
  )
  assert.equal(await readFile(join(host.root, 'file'), 'utf8'), 'as it was')
}

const works = async (host: LocalHost, session: string): Promise<void> => {
  assert.equal((await (await host.run(session, ['true'])).outcome()).code, 0)
  assert.equal(Buffer.from((await read(host, session, 'file')).data).toString(), 'as it was')
  await host.close(await host.open())
}

test('with a directory in place of the audit log all calls are refused until it is gone', async (t) => {
  const host = await LocalHost.start(t)
  await writeFile(join(host.root, 'file'), 'as it was')
  const session = await host.open()
  const path = host.journalPath!
  await rename(path, `${path}.old`)
  await mkdir(path)
  await isRefused(host, session)
  await rmdir(path)
  await works(host, session)
  const report = await verifyJournal([`${path}.old`, path])
  assert.deepEqual([report.ok, report.chains], [true, 1])
})

test('a program that runs while the audit log is lost still ends and reports its result', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  const run = await host.run(session, ['cat'], { input: true })
  await run.run.begun
  await rm(dirname(host.journalPath!), { recursive: true })
  run.run.input(NO_BYTES, true)
  assert.equal((await run.outcome()).code, 0)
  assert.equal(await host.close(session), 0)
})

test('without an audit log all calls work and no line is written', async (t) => {
  const host = await LocalHost.start(t, { journalPath: null })
  await writeFile(join(host.root, 'file'), 'as it was')
  await works(host, await host.open())
  assert.equal(existsSync(join(host.dir, 'log')), false)
})

test('the request is on disk before the command starts', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  const run = await host.run(session, ['grep', '-c', 'a-word-of-its-own', host.journalPath!])
  await run.outcome()
  assert.equal(run.text, '1\n')
  const events = (await host.lines()).flatMap((line) => ('request_id' in line && line.request_id === run.run.requestId ? [line.event] : []))
  assert.deepEqual(events, ['request', 'started', 'exit'])
})

test('the lines of a run say which program ran, with which identity, where, and its result', async (t) => {
  const host = await LocalHost.start(t, { security: 'allow_env = ["CI"]', rules: ruleText('allow_commands', ['sh'], 'any') })
  const session = await host.open()
  const argv = ['sh', '-c', 'cat >/dev/null; echo out; echo error >&2; exit 3']
  const run = await host.run(session, argv, { env: { CI: 'v' }, stdin: Buffer.from('four'), timeout_ms: 5_000 })
  const outcome = await run.outcome()
  const key = { door: 'stdio', session_id: session, client_name: 'a test', request_id: run.run.requestId }
  const lines = (await host.lines()).map(({ ts: _ts, chain: _chain, n: _n, prev: _prev, ...line }) => line).slice(1)
  const hash = (text: string): string => createHash('sha256').update(text).digest('hex')
  const [request] = lines
  const executable = request?.event === 'request' ? request.executable : null
  const info = await stat(executable!.path, { bigint: true })
  assert.deepEqual([executable!.path.endsWith('/sh'), executable!.dev, executable!.ino], [true, `${info.dev}`, `${info.ino}`])
  const evidence = { stdin_sha256: hash('four'), request_sha256: null, executable, account: null }
  const facts = {
    argv,
    matched_acl: 'allow_commands[0]',
    stdin_bytes: 4,
    timeout_ms: 5_000,
    cwd: host.root,
    env: ['CI'],
    target: null,
    ...evidence,
  }
  assert.deepEqual(lines[0], { event: 'request', ...key, ...facts })
  assert.ok(lines[1]?.event === 'started' && lines[1].pid > 1)
  const hashes = { stdout_sha256: hash('out\n'), stderr_sha256: hash('error\n') }
  const totals = { stdout_bytes: 4, stderr_bytes: 6, ...hashes, truncated: false }
  assert.deepEqual(lines[2], { event: 'exit', ...key, code: 3, signal: null, duration_ms: outcome.duration_ms, ...totals })
})

const SECRET = 'hunter2-correct-horse'
const bytes = Buffer.from(SECRET)

test('the audit log contains no variable value, input, output or file content', async (t) => {
  const host = await LocalHost.start(t, { security: 'allow_env = ["TOKEN"]' })
  await writeFile(join(host.root, 'file'), SECRET)
  const session = await host.open()
  const run = await host.run(session, ['sh', '-c', 'echo "$TOKEN"; cat >&2'], {
    env: { TOKEN: SECRET },
    stdin: bytes,
    input: true,
  })
  run.run.input(bytes, true)
  await run.outcome()
  assert.match(run.text, new RegExp(SECRET))
  const at = { session, path: 'file' }
  await read(host, session, 'file')
  await write(host, session, 'other', bytes)
  await host.executor.file({
    method: 'fs.edit',
    ...at,
    old_string: bytes,
    new_string: Buffer.from(`${SECRET}2`),
    replace_all: false,
    expected_mtime: null,
  })
  const patch = `*** Begin Patch\n*** Add File: new\n+${SECRET}\n*** End Patch`
  await host.executor.file({ method: 'fs.patch', session, path: '.', patch_text: Buffer.from(patch) })
  const old_string = Buffer.from(`${SECRET}-x`)
  await assert.rejects(
    host.executor.file({ method: 'fs.edit', ...at, old_string, new_string: bytes, replace_all: false, expected_mtime: null }),
  )
  await assert.rejects(host.executor.file({ method: 'fs.patch', session, path: '.', patch_text: bytes }))
  await assert.rejects(host.run(session, ['true'], { env: { OTHER: SECRET } }))
  await assert.rejects(write(host, session, '/outside', bytes))
  await host.close(session)
  assert.equal((await host.journalText()).includes(SECRET), false)
})

test('a session that cannot be logged takes no place', async (t) => {
  const host = await LocalHost.start(t, { limits: 'max_concurrent_sessions = 1' })
  const directory = dirname(host.journalPath!)
  await rm(directory, { recursive: true })
  for (let round = 0; round < 5; round++) await refuses(host.open(), 'journal_unavailable')
  await mkdir(directory, { mode: 0o700 })
  await host.open()
})

test('a refused run takes no place, however often it is tried', async (t) => {
  const host = await LocalHost.start(t, { limits: 'max_processes_per_session = 1' })
  const session = await host.open()
  await rm(dirname(host.journalPath!), { recursive: true })
  for (let round = 0; round < 5; round++)
    assert.equal((await (await host.run(session, ['true'])).outcome()).denial_reason, 'audit_unavailable')
  assert.equal(host.engine.session(session).slots.active, 0)
})
