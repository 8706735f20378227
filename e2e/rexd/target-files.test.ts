import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdir, readFile, readdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { connect, stdio } from '../../src/sdk/entry.ts'
import { WatchingHuman } from '../../test/support/mesh-approvals.ts'
import { aliceBobCharlie, MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import type { Params, Peer, Result } from './peer.ts'
import type { ConfigOptions } from './server.ts'
import { overStdio } from './transports.ts'

// Files in a session for another agent. The ACL of that agent decides. Methods and errors are those of local files.

const REXD = fileURLToPath(new URL('../../deploy/bin/rexd.mjs', import.meta.url))
const TARGETS: ConfigOptions = { security: ['allow_targets = ["bob"]'] }

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
/** Roots on bob. */
let open: string
let readOnly: string
let tight: string
let asked: string

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[open, readOnly, tight, asked] = ['open', 'read-only', 'tight', 'asked'].map((name) => join(mesh.root, name)) as [
    string,
    string,
    string,
    string,
  ]
  await Promise.all([open, readOnly, tight, asked].map(async (root) => mkdir(root)))
  const limits = 'max_file_bytes = 6_000_000\nmax_total_bytes = 9_000_000\n'
  const tables = [
    `[[exec.allow.files]]\nroot = "${open}"\nread = true\nwrite = true\ncreate_dirs = true\n${limits}`,
    `[[exec.allow.files]]\nroot = "${readOnly}"\nread = true\n`,
    `[[exec.allow.files]]\nroot = "${tight}"\nread = true\nwrite = true\nmax_total_bytes = 10_000\n`,
    `[[exec.allow.files]]\nroot = "${asked}"\nread = true\nwrite = true\nask = true\n`,
  ]
  ;({ alice, bob } = await aliceBobCharlie(mesh, [['true']]))
  await bob.writeAcl([{ agent: alice, commands: [], keys: tables.join('\n') }])
  await bob.restart()
})

after(async () => mesh.stop())

interface There {
  readonly peer: Peer
  readonly session_id: string
  call(method: string, params: Params): Promise<Result>
  refusal(method: string, params: Params): Promise<readonly [code: unknown, reason: unknown, message: string]>
}

const there = async (t: TestContext, options = TARGETS): Promise<There> => {
  const peer = await overStdio.open(t, options, { X0X_DATA_DIR: alice.dir })
  const opened = await peer.call('session.open', { client_name: 'test', target: 'bob' })
  const session_id = String(opened['session_id'])
  return {
    peer,
    session_id,
    call: async (method, params) => peer.call(method, { session_id, ...params }),
    refusal: async (method, params) => {
      const { error } = await peer.ask(method, { session_id, ...params })
      return [error?.data['code'], error?.data['reason'] ?? error?.data['errno'] ?? null, String(error?.message)]
    },
  }
}

test('a session for another agent writes, reads, lists, finds and edits files on that agent', async (t) => {
  const { call, peer, session_id } = await there(t)
  const path = join(open, 'notes/a.txt')
  const made = await call('fs.write', { path, content: 'one\ntwo\n', mode: 'create', mkdir_parents: true })
  assert.deepEqual([made['created'], made['bytes_written'], made['atomic']], [true, 8, true])
  const read = await call('fs.read', { path, offset: 4, length: 3 })
  assert.deepEqual([read['content'], read['size'], read['truncated'], read['mtime']], ['two', 8, true, made['mtime']])
  const appended = await call('fs.write', { path, content: 'three\n', mode: 'append', expected_mtime: made['mtime'] })
  assert.deepEqual([appended['created'], appended['bytes_written']], [false, 6])
  const edited = await call('fs.edit', { path, old_string: 'two', new_string: 'zwei', expected_mtime: appended['mtime'] })
  assert.deepEqual([edited['replacements'], edited['bytes_written']], [1, 15])
  const patch = `*** Begin Patch\n*** Update File: a.txt\n@@\n-three\n+drei\n*** Add File: b.txt\n+new\n*** End Patch`
  const patched = await call('fs.patch', { patch_text: patch, cwd: join(open, 'notes') })
  assert.deepEqual([patched['updated'], patched['added']], [[path], [join(open, 'notes/b.txt')]])
  assert.equal(await readFile(path, 'utf8'), 'one\nzwei\ndrei\n')
  const { entries } = await call('fs.list', { path: open, recursive: true })
  const listed = (entries as { path: string; type: string; name: string }[]).filter((entry) => entry.path.includes('/notes'))
  assert.deepEqual(
    listed.map((entry) => [entry.path, entry.type]),
    [
      [join(open, 'notes'), 'dir'],
      [path, 'file'],
      [join(open, 'notes/b.txt'), 'file'],
    ],
  )
  assert.deepEqual((await call('fs.glob', { pattern: '**/*.txt', cwd: open }))['matches'], [path, join(open, 'notes/b.txt')])
  assert.deepEqual((await call('fs.glob', { pattern: `${open}/*/b.*` }))['matches'], [join(open, 'notes/b.txt')])
  const status = await call('fs.stat', { path })
  assert.deepEqual([status['exists'], status['type'], status['size'], status['uid']], [true, 'file', 14, null])
  assert.equal((await call('fs.stat', { path: join(open, 'missing') }))['exists'], false)
  const lines = (await peer.home.journal()).filter(({ event }) => event === 'file_write')
  assert.deepEqual(
    lines.slice(0, 2).map((line) => [line['method'], line['path'], line['session_id']]),
    [
      ['fs.write', path, session_id],
      ['fs.write', path, session_id],
    ],
  )
  const commands = (await bob.journal()).filter(({ event }) => event === 'request').map(({ argv }) => String((argv as string[])[0]))
  for (const name of ['@write', '@read', '@append', '@list', '@stat']) assert.ok(commands.includes(name), name)
  await peer.close()
})

test('a change is refused without effect if the file is not the expected one', async (t) => {
  const { call, refusal, peer } = await there(t)
  const path = join(open, 'expected')
  await writeFile(path, 'first')
  const { mtime, mtime_ms } = await call('fs.stat', { path })
  assert.deepEqual((await refusal('fs.write', { path, content: 'x', mode: 'create' })).slice(0, 2), ['conflict', 'exists'])
  await writeFile(path, 'second')
  for (const expected_mtime of [mtime, '2001-01-01T00:00:00.000000000Z'])
    for (const mode of ['replace', 'append'])
      assert.deepEqual((await refusal('fs.write', { path, content: 'x', mode, expected_mtime })).slice(0, 2), ['conflict', 'changed'])
  const change = { path, old_string: 'second', new_string: 'x', expected_mtime: mtime }
  assert.deepEqual((await refusal('fs.edit', change)).slice(0, 2), ['conflict', 'changed'])
  assert.deepEqual((await refusal('fs.edit', { path, old_string: 'none', new_string: 'x' })).slice(0, 2), ['conflict', 'no_match'])
  const missing = join(open, 'missing/deep')
  assert.equal((await refusal('fs.write', { path: missing, content: 'x' }))[0], 'file_not_found')
  // The second value is a template field that the client did not fill in.
  for (const expected_mtime of [mtime_ms, 'undefined'])
    assert.equal((await refusal('fs.write', { path: missing, content: 'x', expected_mtime }))[1], 'changed')
  assert.equal(await readFile(path, 'utf8'), 'second')
  const deletes = `*** Begin Patch\n*** Delete File: ${path}\n*** End Patch`
  const [code, , message] = await refusal('fs.patch', { patch_text: deletes })
  assert.deepEqual([code, /cannot|not delete/.test(message)], ['unsupported_capability', true])
  assert.deepEqual(
    (await readdir(open)).toSorted().filter((name) => name.startsWith('.x0x')),
    [],
  )
  await peer.close()
})

test('if a later file of a patch fails, the earlier changes are undone', async (t) => {
  const { refusal, peer } = await there(t)
  const first = join(tight, 'p1')
  await writeFile(first, 'one\n')
  // Each file fits the limit, but both together do not.
  const long = `+${'y'.repeat(9_998)}`
  const patch = `*** Begin Patch\n*** Update File: ${first}\n@@\n-one\n+ONE\n*** Add File: ${join(tight, 'p2')}\n${long}\n*** End Patch`
  const [code, , message] = await refusal('fs.patch', { patch_text: patch })
  assert.equal(code, 'file_error', message)
  assert.deepEqual([await readFile(first, 'utf8'), await readdir(tight)], ['one\n', ['p1']])
  await peer.close()
})

test('the ACL of the target refuses other paths, links to outside, and changes below a read-only root', async (t) => {
  const { call, refusal, peer } = await there(t)
  await writeFile(join(readOnly, 'file'), 'text')
  await symlink('/etc', join(open, 'etc'))
  assert.equal((await call('fs.read', { path: join(readOnly, 'file') }))['content'], 'text')
  for (const [method, params] of [
    ['fs.read', { path: '/etc/passwd' }],
    ['fs.stat', { path: join(open, '../../etc/passwd') }],
    ['fs.list', { path: '/' }],
    ['fs.glob', { pattern: '/etc/*' }],
    ['fs.write', { path: join(readOnly, 'file'), content: 'x' }],
    ['fs.edit', { path: join(readOnly, 'file'), old_string: '', new_string: 'x' }],
  ] as const) {
    const [code, reason] = await refusal(method, params)
    assert.deepEqual([code, reason], ['command_denied', null], method)
  }
  const [code] = await refusal('fs.read', { path: join(open, 'etc/passwd') })
  assert.ok(code === 'file_error' || code === 'forbidden_path', String(code))
  assert.equal((await refusal('fs.read', { path: 'relative' }))[0], 'bad_request')
  assert.equal(await readFile(join(readOnly, 'file'), 'utf8'), 'text')
  await peer.close()
})

test('a server without write permission gives none to its sessions for other agents', async (t) => {
  const { call, refusal, peer } = await there(t, { security: ['allow_targets = ["bob"]', 'allow_write = false'] })
  await writeFile(join(open, 'kept'), 'kept')
  assert.equal((await call('fs.read', { path: join(open, 'kept') }))['content'], 'kept')
  assert.equal((await refusal('fs.write', { path: join(open, 'kept'), content: 'x' }))[0], 'unsupported_capability')
  assert.equal(await readFile(join(open, 'kept'), 'utf8'), 'kept')
  await peer.close()
})

test('the SDK copies a large file to another agent and back', async (t) => {
  const { peer } = await there(t)
  const command = [process.execPath, REXD, '--stdio', '--config', peer.home.configFile]
  const client = await connect({ transport: stdio({ command, env: { ...process.env, X0X_DATA_DIR: alice.dir } }) })
  const session = await client.open({ clientName: 'test', target: 'bob' })
  const content = randomBytes(5_500_000)
  const path = join(open, 'large')
  const { bytesWritten, created } = await session.files.write(path, content)
  assert.deepEqual([bytesWritten, created], [content.length, true])
  assert.deepEqual(await readFile(path), content)
  assert.deepEqual(Buffer.from((await session.files.readAll(path)).data), content)
  await assert.rejects(session.files.write(path, randomBytes(6_500_000)), /large/)
  await client.close()
  await peer.close()
})

test('each file waits for its approval, and is denied without an approver', async (t) => {
  const { call, refusal } = await there(t)
  const path = join(asked, 'a.txt')
  const denied = await refusal('fs.write', { path, content: 'one' })
  assert.equal(denied[0], 'command_denied')
  assert.match(denied[2], /bob denied writing \S*a\.txt \(approval_unavailable\)/)
  const human = await WatchingHuman.at(bob)
  t.after(() => human.close())
  const writing = call('fs.write', { path, content: 'one' })
  const pending = await human.next()
  assert.deepEqual([pending.question.file?.action, pending.question.file?.path], ['write', path])
  await human.decide(pending, 'allow_once')
  assert.equal((await writing)['created'], true)
  const reading = refusal('fs.read', { path })
  await human.decide(await human.next(), 'deny')
  assert.match((await reading)[2], /bob denied reading \S*a\.txt \(approval_denied\)/)
})
