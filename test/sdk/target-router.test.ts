import assert from 'node:assert/strict'
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { RexdDisconnected } from '../../src/sdk/errors.ts'
import { stdio } from '../../src/sdk/byte-transport.ts'
import { webSocket } from '../../src/sdk/web-socket.ts'
import { TargetRouter, UnknownTarget, type TargetRouterInit } from '../../src/sdk/target-router.ts'
import { OPENED, ScriptedServer } from './scripted-server.ts'
import { until } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'
import { proxied } from './web-server.ts'

const nowhere = stdio({ command: ['/no/such/program'] })
const TARGETS = { local: { transport: nowhere }, 'server-a': { transport: nowhere, cwd: '/srv/app' }, 'server-b': { transport: nowhere } }
const router = (init: Partial<TargetRouterInit> = {}): TargetRouter => new TargetRouter({ targets: TARGETS, clientName: 'test', ...init })
const unknown = (text: RegExp) => (error: unknown) => {
  assert.ok(error instanceof UnknownTarget, String(error))
  assert.match(error.message, text)
  return true
}

/** A directory with a subdirectory and, optionally, a project file. */
const project = async (t: TestContext, text?: string): Promise<{ outer: string; inner: string; file: string }> => {
  const outer = await tempDir(t)
  const inner = join(outer, 'src', 'deep')
  const file = join(outer, '.rexd.json')
  await mkdir(inner, { recursive: true })
  if (text !== undefined) await writeFile(file, text, { mode: 0o644 })
  return { outer, inner, file }
}

test('a selection, project file, path, carried target and default decide in this order', async (t) => {
  const { inner, file } = await project(t, '{"target": "server-b", "cwd": "/srv/b"}')
  const everything = router({ defaultTarget: 'local', paths: { '/srv/app': 'server-a' } })
  const at = { path: '/srv/app/x', cwd: inner }
  assert.deepEqual(await everything.resolve(), { target: 'local', reason: 'default', by: null, cwd: null })
  // The router does not carry over a default target.
  assert.equal((await everything.resolve()).reason, 'default')
  assert.deepEqual(await everything.resolve({ path: '/srv/app/x' }), {
    target: 'server-a',
    reason: 'path',
    by: '/srv/app',
    cwd: '/srv/app',
  })
  assert.deepEqual(await everything.resolve({ path: '/elsewhere' }), { target: 'server-a', reason: 'carried', by: null, cwd: '/srv/app' })
  assert.deepEqual(await everything.resolve(at), { target: 'server-b', reason: 'project', by: file, cwd: '/srv/b' })
  assert.equal((await everything.resolve()).target, 'server-b')
  everything.select('local')
  assert.deepEqual(await everything.resolve(at), { target: 'local', reason: 'selected', by: null, cwd: null })
  everything.clear()
  assert.equal((await everything.resolve(at)).reason, 'project')
  everything.clear()
  assert.equal((await everything.resolve()).reason, 'default')
})

test('without a chosen target, or with an unknown one, the error lists the known targets', async (t) => {
  const one = new TargetRouter({ targets: { only: { transport: nowhere } }, clientName: 'x' })
  await assert.rejects(one.resolve(), unknown(/^the target is not given; there are only$/))
  await assert.rejects(new TargetRouter({ targets: {}, clientName: 'x' }).resolve(), unknown(/there are none$/))
  const some = router({ defaultTarget: 'local' })
  const candidates = /no target "server-c"; there are local, server-a, server-b$/
  assert.throws(() => some.select('server-c'), unknown(candidates))
  await assert.rejects(some.session('server-c'), unknown(candidates))
  await assert.rejects(some.session('constructor'), unknown(/no target "constructor"/))
  assert.throws(() => router({ defaultTarget: 'server-c' }), unknown(candidates))
  assert.throws(() => router({ paths: { '/srv': 'server-c' } }), unknown(candidates))
  assert.throws(() => router({ projectTargets: ['server-c'] }), unknown(candidates))
  // An unknown target in a project file does not fall back to the default.
  const { inner } = await project(t, '{"target": "server-c\\u001b[2J"}')
  await assert.rejects(some.resolve({ cwd: inner }), unknown(/\.rexd\.json: no target "server-c \[2J"/))
  assert.equal((await some.resolve()).reason, 'default')
})

test('a project file may choose only the targets that projectTargets allows', async (t) => {
  const { inner } = await project(t, '{"target": "server-b"}')
  const careful = router({ projectTargets: ['server-a'] })
  await assert.rejects(careful.resolve({ cwd: inner }), unknown(/the client may not choose the target "server-b"; there are server-a$/))
})

test('the nearest project file decides', async (t) => {
  const { outer, inner } = await project(t, '{"target": "server-a"}')
  await writeFile(join(outer, 'src', '.rexd.json'), '{"target": "server-b"}')
  assert.equal((await router().resolve({ cwd: inner })).target, 'server-b')
  assert.equal((await router().resolve({ cwd: outer })).target, 'server-a')
})

const BAD: readonly (readonly [string, string | null, RegExp])[] = [
  ['invalid JSON', '{target: 1}', /\.rexd\.json: /],
  ['a list instead of an object', '["server-a"]', /not an object/],
  ['an unknown key', '{"target": "server-a", "host": "x"}', /unknown key "host"/],
  ['no target', '{}', /target: must be the name of a target/],
  ['an invalid target name', '{"target": 1}', /target: must be/],
  ['an empty directory', '{"target": "server-a", "cwd": ""}', /cwd: must be a path/],
  ['too many bytes', `{"target": "server-a"${' '.repeat(20_000)}}`, /more than 16384 bytes/],
  ['a directory in its place', null, /EISDIR|not a regular file/],
]

for (const [name, text, complaint] of BAD)
  test(`a project file with ${name} causes an error, and the next rule is not used`, async (t) => {
    const { outer, inner } = await project(t, text ?? undefined)
    if (text === null) await mkdir(join(outer, '.rexd.json'))
    await assert.rejects(router({ defaultTarget: 'local' }).resolve({ cwd: inner }), complaint)
  })

test('a project file that other users can write is refused, and a link to a good one is accepted', async (t) => {
  const { outer, inner, file } = await project(t, '{"target": "server-a"}')
  await chmod(file, 0o666)
  await assert.rejects(router().resolve({ cwd: inner }), /others may write it/)
  await chmod(file, 0o644)
  await symlink(file, join(outer, 'src', '.rexd.json'))
  assert.equal((await router().resolve({ cwd: inner })).target, 'server-a')
})

test('the longest prefix of whole names decides about a path, in any notation', async () => {
  const paths = { '/srv/app': 'server-a', '/srv/app/vendor/': 'server-b', '/': 'local' }
  const targetOf = async (path: string, cwd?: string): Promise<string> =>
    (await router({ paths }).resolve({ path, ...(cwd === undefined ? {} : { cwd }) })).target
  for (const [path, target] of [
    ['/srv/app', 'server-a'],
    ['/srv/app/', 'server-a'],
    ['/srv/app/x/../y', 'server-a'],
    ['/srv//app/./z', 'server-a'],
    ['/srv/app2', 'local'],
    ['/srv/app/../app2', 'local'],
    ['/srv/app/vendor', 'server-b'],
    ['/srv/app/vendor/../vendors', 'server-a'],
  ] as const)
    assert.equal(await targetOf(path), target, path)
  assert.equal(await targetOf('vendor/x', '/srv/app'), 'server-b')
  // Without a path, the working directory decides.
  assert.equal((await router({ paths }).resolve({ cwd: '/srv/app/nothing/there' })).target, 'server-a')
  await assert.rejects(router({ paths: { '/srv': 'server-a' } }).resolve({ path: 'relative' }), UnknownTarget)
  assert.throws(() => router({ paths: { 'srv/app': 'server-a' } }), TypeError)
  assert.throws(() => router({ paths: { '/srv/app': 'server-a', '/srv//app/': 'server-b' } }), TypeError)
})

test('simultaneous questions are answered in order', async (t) => {
  const { inner } = await project(t, '{"target": "server-b"}')
  const some = router({ paths: { '/srv/app': 'server-a' } })
  const answers = await Promise.all([some.resolve({ cwd: inner }), some.resolve(), some.resolve({ path: '/srv/app' }), some.resolve()])
  assert.deepEqual(
    answers.map(({ target, reason }) => `${target} ${reason}`),
    ['server-b project', 'server-b carried', 'server-a path', 'server-a carried'],
  )
})

/** A router with one target, whose server does what the test says. */
const scriptedRouter = (t: TestContext): { server: ScriptedServer; one: TargetRouter; answer: (id: string) => Promise<void> } => {
  const server = new ScriptedServer()
  const one = new TargetRouter({
    targets: { a: { transport: server.factory, roots: ['/srv/app'], cwd: '/srv/app/x' } },
    clientName: 'routed',
  })
  t.after(async () => one.close())
  const answer = async (id: string): Promise<void> => {
    const asked = await server.line.next('session.open')
    assert.deepEqual(asked.params, { client_name: 'routed', workspace_roots: ['/srv/app'], limits: {} })
    server.line.answer(asked, { ...OPENED, session_id: id })
  }
  return { server, one, answer }
}

test('a session opens on first use, is shared, and opens again after a loss or close', async (t) => {
  const { server, one, answer } = scriptedRouter(t)
  assert.equal(server.tries, 0)
  const both = [one.session('a'), one.session('a')]
  await until(() => server.tries === 1)
  await answer('s_1')
  const [first, second] = await Promise.all(both)
  assert.equal(first, second)
  assert.equal(first?.cwd, '/srv/app/x')
  assert.equal(await one.session('a'), first)
  server.line.lose()
  assert.equal(first?.ended, true)
  const reopening = [one.session('a'), one.session('a')]
  await until(() => server.tries === 2)
  await answer('s_2')
  const [third, fourth] = await Promise.all(reopening)
  assert.equal(third, fourth)
  assert.ok(third)
  assert.equal(third.id, 's_2')
  // Only the session was closed, so the connection is still usable.
  const closing = third.close()
  server.line.answer(await server.line.next('session.close'), { ok: true, terminated: 0 })
  await closing
  const again = one.session('a')
  await answer('s_3')
  assert.deepEqual([(await again).id, server.tries], ['s_3', 2])
})

test('a failed opening is tried again, and an aborted wait does not affect the others', async (t) => {
  const { server, one, answer } = scriptedRouter(t)
  server.failures.push(new Error('asleep'))
  await assert.rejects(one.session('a'), /asleep/)
  const stop = new AbortController()
  const given = one.session('a', { signal: stop.signal })
  const kept = one.session('a')
  await until(() => server.tries === 2)
  stop.abort(new Error('no patience'))
  await assert.rejects(given, /no patience/)
  await answer('s_1')
  assert.equal((await kept).id, 's_1')
  const refused = server.line
  refused.lose()
  const next = one.session('a')
  await until(() => server.tries === 3)
  server.line.refuse(await server.line.next('session.open'), { code: -32_008, message: 'no room', data: { code: 'resource_limit' } })
  await assert.rejects(next, /no room/)
  assert.equal(server.line.closed, true)
})

test('closing a router closes its connections, including those being opened', async (t) => {
  const { server, one, answer } = scriptedRouter(t)
  const opening = one.session('a')
  await until(() => server.tries === 1)
  const closing = one.close()
  await answer('s_1')
  await Promise.all([opening, closing])
  assert.equal(server.line.closed, true)
  await assert.rejects(one.session('a'), RexdDisconnected)
})

test('the target of an agent is sent to the server with its name', async (t) => {
  const server = new ScriptedServer()
  const one = new TargetRouter({ targets: { bob: { transport: server.factory, agent: 'bob' } }, clientName: 'routed' })
  t.after(async () => one.close())
  const opening = one.session('bob')
  await until(() => server.tries === 1)
  const asked = await server.line.next('session.open')
  assert.equal(asked.params['target'], 'bob')
  server.line.answer(asked, OPENED)
  assert.equal((await opening).id, 's_1')
})

test('a target behind a WebSocket keeps its session after a connection loss', async (t) => {
  const { server, proxy, url } = await proxied(t)
  const one = new TargetRouter({ targets: { a: { transport: webSocket({ url, token: server.token }) } }, clientName: 'router' })
  t.after(async () => one.close())
  const session = await one.session('a')
  const running = await session.exec({ shell: 'read line; echo "$line"' }, { stdinOpen: true })
  proxy.cut()
  assert.equal(await one.session('a'), session)
  await session.info()
  await running.write('still here\n')
  assert.equal(await running.stdout.text(100), 'still here\n')
  assert.equal(await one.session('a'), session)
})
