import assert from 'node:assert/strict'
import { copyFile, link, mkdir, readdir, readFile, rename, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { findExecutable } from '../../src/policy/executable.ts'
import type { Params, Peer, Session } from './peer.ts'
import { Home, runRexd, type ConfigOptions } from './server.ts'
import { overStdio } from './transports.ts'

// Clients that try to exceed their permissions. Each refusal is in the journal. `ending.test.ts` tests programs that resist their end.

/** Journal lines about refusals of a session, as method and code. */
const refusedTo = async (peer: Peer, sessionId?: string): Promise<string[]> =>
  (await peer.home.refusals())
    .filter((line) => sessionId === undefined || line['session_id'] === sessionId)
    .map((line) => `${String(line['method'])} ${String(line['code'])}`)

/** Checks that each attempt is refused with this code, and that the journal has one line for each, in order. */
const allRefused = async (
  session: Session,
  code: number,
  name: string,
  attempts: readonly (readonly [method: string, params: Params])[],
): Promise<void> => {
  const before = (await refusedTo(session.peer)).length
  for (const [method, params] of attempts) await session.failure(code, method, params)
  assert.deepEqual(
    (await refusedTo(session.peer)).slice(before),
    attempts.map(([method]) => `${method} ${name}`),
  )
}

const programAt = (name: string): string => {
  const lookup = findExecutable(name)
  assert.equal(lookup.kind, 'found')
  return lookup.kind === 'found' ? lookup.executable.path : ''
}

test('sessions and processes of another server, or invented IDs, cannot be used', async (t) => {
  const [mine, other] = [await overStdio.open(t), await overStdio.open(t)]
  const session = await other.session()
  const log = await session.start({ argv: ['cat'], stdin_open: true })
  const own = await mine.session()
  const ids = [session.id, 's_', 's_1', `${own.id.slice(0, -1)}_`, own.id.toUpperCase(), '__proto__', 'constructor']
  for (const session_id of ids) {
    await mine.failure(-32001, 'session.info', { session_id })
    await mine.failure(-32001, 'session.close', { session_id })
    await mine.failure(-32001, 'exec.start', { session_id, argv: ['true'] })
    await mine.failure(-32001, 'fs.read', { session_id, path: 'x' })
    await mine.failure(-32001, 'exec.kill', { session_id, process_id: log.id })
  }
  for (const process_id of [log.id, 'p_', '1', String(other.process.pid), '__proto__']) {
    await own.failure(-32005, 'exec.kill', { process_id, signal: 'KILL' })
    await own.failure(-32005, 'exec.input', { process_id, data: 'x' })
    await own.failure(-32005, 'exec.wait', { process_id })
  }
  assert.equal((await session.wait(log, { timeout_ms: 0 }))['status'], 'running')
  await Promise.all([mine.close(), other.close()])
})

test('sessions and processes above their limits are refused and logged', async (t) => {
  const peer = await overStdio.open(t, { limits: ['max_concurrent_sessions = 3', 'max_processes_per_session = 2'] })
  const sessions = await Promise.all([peer.session(), peer.session(), peer.session()])
  const attempts = await Promise.all(Array.from({ length: 20 }, async () => peer.ask('session.open', { client_name: 'more' })))
  assert.ok(attempts.every(({ error }) => error?.code === -32008))
  assert.equal((await refusedTo(peer)).filter((line) => line === 'session.open resource_limit').length, 20)
  const [session] = sessions
  const started = await Promise.all(
    Array.from({ length: 20 }, async () => peer.ask('exec.start', { session_id: session.id, argv: ['sleep', '1000'] })),
  )
  assert.equal(started.filter(({ result }) => result !== undefined).length, 2)
  assert.equal((await refusedTo(peer, session.id)).filter((line) => line === 'exec.start resource_limit').length, 18)
  await peer.close()
})

test('no message can raise a limit or widen the roots', async (t) => {
  const peer = await overStdio.open(t)
  const { root } = peer.home
  await mkdir(`${root}2`)
  await symlink(`${root}2`, join(root, 'link'))
  await symlink('..', join(root, 'up'))
  const limits = { max_output_bytes: 2 ** 40, max_file_read_bytes: 2 ** 40, max_processes_per_session: 9, hard_timeout_ms: 300_001 }
  for (const [limit, value] of Object.entries(limits))
    await peer.failure(-32008, 'session.open', { client_name: 'x', limits: { [limit]: value } })
  const roots = [
    '/',
    '/tmp',
    `${root}2`,
    `${root}/../root2`,
    `${root}/link`,
    `${root}/up`,
    '..',
    'link',
    '/proc/self/root',
    '/proc/self/cwd',
  ]
  for (const wider of roots) {
    await peer.failure(-32002, 'session.open', { client_name: 'x', workspace_roots: [wider] })
    const { workspace_roots } = await peer.call('session.open', { client_name: 'x', workspace_roots: [root, wider] })
    assert.deepEqual(workspace_roots, [root], wider)
  }
  const refused = await refusedTo(peer)
  assert.deepEqual(refused, [
    ...Object.keys(limits).map(() => 'session.open resource_limit'),
    ...roots.flatMap(() => ['session.open forbidden_path', 'session.open forbidden_path']),
  ])
  const session = await peer.session({ limits: { max_output_bytes: 100, hard_timeout_ms: 60_000 } })
  const asked = { timeout_ms: Number.MAX_SAFE_INTEGER, max_output_bytes: Number.MAX_SAFE_INTEGER }
  const { timeout_ms, max_output_bytes } = await session.call('exec.start', { argv: ['true'], ...asked })
  assert.deepEqual([timeout_ms, max_output_bytes], [60_000, 100])
  await session.failure(-32602, 'exec.start', { argv: ['true'], limits: { max_output_bytes: 1_000 } })
  await peer.close()
})

test('no path leads outside the roots, and files outside stay unchanged', async (t) => {
  const peer = await overStdio.open(t)
  const session = await peer.session()
  const outside = `${session.dir}-outside`
  await mkdir(outside)
  await writeFile(join(outside, 'secret'), 'secret')
  await mkdir(session.path('in'))
  for (const [target, name] of [
    [outside, 'dir'],
    [join(outside, 'secret'), 'file'],
    ['../../s1-outside', 'in/relative'],
    ['in/relative', 'chain'],
    [join(outside, 'new'), 'dangling'],
    ['/proc/self/root', 'proc'],
    ['..', 'up'],
  ] as const)
    await symlink(target, session.path(name))
  const read = [
    'file',
    'dir/secret',
    'in/relative/secret',
    'chain/secret',
    'proc/etc/passwd',
    'up/s1-outside/secret',
    '../s1-outside/secret',
  ]
  const written = [...read, 'dangling', 'dir/new', `${outside}/new`, '//etc/x', 'in/../../s1-outside/new']
  await allRefused(session, -32002, 'forbidden_path', [
    ...read.map((path) => ['fs.read', { path }] as const),
    ...written.map((path) => ['fs.write', { path, content: 'x', mkdir_parents: true }] as const),
    ...written.map((path) => ['fs.write', { path, content: 'x', mode: 'append', atomic: false }] as const),
    ...read.map((path) => ['fs.edit', { path, old_string: 'secret', new_string: 'x' }] as const),
    ['fs.patch', { patch_text: '*** Begin Patch\n*** Add File: dir/new\n+x\n*** End Patch' }],
    ['fs.patch', { patch_text: '*** Begin Patch\n*** Delete File: ../s1-outside/secret\n*** End Patch' }],
    ...['dir', 'chain', 'up', '..', outside].map((path) => ['fs.list', { path }] as const),
    ...['dir', 'chain', 'up', '..', outside].map((cwd) => ['fs.glob', { pattern: '*', cwd }] as const),
    ...['dir', 'chain', 'up', '..', '/', outside].map((cwd) => ['exec.start', { argv: ['pwd'], cwd }] as const),
    ...['dir/secret', '../s1-outside', outside].map((path) => ['fs.stat', { path }] as const),
  ])
  assert.deepEqual(await readdir(outside), ['secret'])
  assert.equal(await readFile(join(outside, 'secret'), 'utf8'), 'secret')
  const { entries } = await session.call<{ entries: { path: string }[] }>('fs.list', { path: '.', recursive: true })
  assert.ok(entries.every(({ path }) => !path.includes('secret')))
  assert.deepEqual((await session.call('fs.glob', { pattern: '**/secret' }))['matches'], [])
  await peer.close()
})

test('a root that is replaced by another directory is refused', async (t) => {
  const peer = await overStdio.open(t)
  const session = await peer.session()
  await writeFile(session.path('file'), 'mine')
  await mkdir(`${session.dir}-other`)
  await writeFile(`${session.dir}-other/file`, 'not mine')
  await rename(session.dir, `${session.dir}-away`)
  await rename(`${session.dir}-other`, session.dir)
  await allRefused(session, -32002, 'forbidden_path', [
    ['fs.read', { path: 'file' }],
    ['exec.start', { argv: ['cat', 'file'] }],
  ])
  await peer.close()
})

test('variables that are not allowed are refused by name, and their values are not stored', async (t) => {
  const peer = await overStdio.open(t)
  const session = await peer.session()
  const names = ['LD_PRELOAD', 'BASH_ENV', 'NODE_OPTIONS', 'GIT_SSH_COMMAND', 'PATH', 'HOME', 'lc_time', 'LC_TIME ', '__proto__x']
  await allRefused(
    session,
    -32001,
    'command_denied',
    names.map((name) => ['exec.start', { argv: ['true'], env: { LC_TIME: 'fine', [name]: 'value-that-is-secret' } }] as const),
  )
  const lines = await peer.home.refusals()
  for (const [at, name] of names.entries()) assert.ok(String(lines[at]?.['detail']).includes(name))
  assert.ok(!JSON.stringify(lines).includes('value-that-is-secret'))
  await peer.close()
})

const DANGEROUS = `LD_PRELOAD LD_AUDIT DYLD_INSERT_LIBRARIES BASH_ENV ENV SHELLOPTS PS4 ZDOTDIR IFS PATH
  NODE_OPTIONS NODE_PATH PYTHONPATH PYTHONSTARTUP PERL5OPT PERL5LIB RUBYOPT RUBYLIB
  JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS GIT_SSH_COMMAND GIT_CONFIG_COUNT GCONV_PATH`.split(/\s+/)

test('the configuration cannot grant variables that load code, and --check warns about others that may be dangerous', async (t) => {
  const home = await Home.create()
  t.after(async () => home.remove())
  await home.configure({ security: [`allow_env = ${JSON.stringify([...DANGEROUS, 'TAR_OPTIONS', 'HOME', 'CI'])}`] })
  const { status, stdout } = await runRexd(home, ['--check', '--config', home.configFile])
  assert.equal(status, 2)
  assert.deepEqual(
    [...DANGEROUS, 'TAR_OPTIONS', 'HOME', 'CI'].filter((name) => !stdout.includes(`: ${name} can change which program runs`)),
    ['TAR_OPTIONS', 'HOME', 'CI'],
  )
  await home.configure({ security: ['allow_env = ["TAR_OPTIONS", "HOME", "CI"]'] })
  const warned = await runRexd(home, ['--check', '--config', home.configFile])
  assert.equal(warned.status, 0)
  assert.deepEqual(
    ['TAR_OPTIONS', 'HOME', 'CI'].filter((name) => warned.stdout.includes(`: ${name} may be dangerous`)),
    ['TAR_OPTIONS', 'HOME'],
  )
})

test('with a list of commands, rexd does not start if clients could replace a listed program', async (t) => {
  const home = await Home.create()
  t.after(async () => home.remove())
  const program = join(home.root, 'run-tests.sh')
  await writeFile(program, '#!/bin/sh\necho mine\n', { mode: 0o755 })
  const security = [`allow_commands = [{ argv = [${JSON.stringify(program)}] }]`]
  await home.configure({ security })
  for (const how of ['--check', '--stdio']) {
    const { status, stdout, stderr } = await runRexd(home, [how, '--config', home.configFile])
    assert.equal(status, 2)
    assert.match(stdout + stderr, /run-tests\.sh is below the root .*: clients could replace the program of this rule/)
  }
  await home.configure({ security: [...security, 'allow_write = false'] })
  assert.equal((await runRexd(home, ['--check', '--config', home.configFile])).status, 0)
})

const RULES: ConfigOptions = {
  security: [
    'allow_commands = [{ argv = ["echo"], args = "any" }, { argv = ["cat", "<INT>"] }, { argv = ["/bin/ls"] }]',
    'deny_commands = [{ argv = ["echo", "no"] }]',
  ],
}

test('with a list of commands, no other command runs in any spelling', async (t) => {
  const peer = await overStdio.open(t, RULES)
  const session = await peer.session()
  await (await session.start({ argv: ['echo', 'x', '; id'] })).finished()
  const forbidden = [
    ['env'],
    [programAt('echo'), 'x'],
    ['cat', 'file'],
    ['cat', '1', '2'],
    ['cat', '-1'],
    ['ls'],
    ['/bin/ls', '-l'],
    ['/bin/../bin/ls'],
    ['sh', '-c', 'echo x'],
    ['echo', 'no'],
    ['ECHO', 'x'],
    [' echo', 'x'],
  ]
  await allRefused(
    session,
    -32001,
    'command_denied',
    forbidden.map((argv) => ['exec.start', { argv }] as const),
  )
  await allRefused(session, -32007, 'unsupported_capability', [
    ['exec.start', { shell: true, command: 'echo x' }],
    ['exec.start', { argv: ['echo'], detach: true }],
  ])
  await peer.close()
})

test('a denied program is denied by every path and link to it, but a copy of it is another program', async (t) => {
  const peer = await overStdio.open(t, { security: ['deny_commands = [{ argv = ["env"], args = "any" }]'] })
  const session = await peer.session()
  const env = programAt('env')
  await symlink(env, session.path('link'))
  await symlink('link', session.path('chain'))
  await copyFile(env, session.path('copy'))
  await link(session.path('copy'), session.path('hard'))
  const names = ['env', env, '/usr/../usr/bin/env', '//usr/bin/env', session.path('link'), session.path('chain')]
  await allRefused(
    session,
    -32001,
    'command_denied',
    names.flatMap((name) => [[name], [name, 'true']]).map((argv) => ['exec.start', { argv }] as const),
  )
  // These commands show that a list of denied commands is not a security boundary.
  for (const argv of [[session.path('copy')], ['sh', '-c', 'env']])
    assert.equal((await (await session.start({ argv })).finished())['exit_code'], 0)
  await peer.close()
})

test('a program that other users can change does not run', async (t) => {
  const peer = await overStdio.open(t)
  const session = await peer.session()
  const marker = session.path('marker')
  await writeFile(session.path('loose'), `#!/bin/sh\ntouch ${marker}\n`, { mode: 0o755 })
  await (await session.start({ argv: ['chmod', '777', 'loose'] })).finished()
  const { error } = await peer.ask('exec.start', { session_id: session.id, argv: [session.path('loose')] })
  assert.match(String(error?.message), /writable by other users/)
  assert.ok(!(await readdir(session.dir)).includes('marker'))
  await peer.close()
})
