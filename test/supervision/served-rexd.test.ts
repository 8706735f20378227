import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { NETWORK_RIGHTS } from '../../src/supervision/network-supervisor.ts'
import { isRunning, MeshOfDaemons, runDaemonCommand, until } from '../support/mesh-of-daemons.ts'
import { asOtherUser } from '../support/other-user.ts'
import { answers, rexdBeside, startPrograms, type RexdBeside } from '../support/rexd-beside.ts'
import { ask, connect, post, refusedSocket } from '../support/rexd-callers.ts'
import { gone } from '../support/rexd-server.ts'

// REXD runs as a separate process of x0xd. The tests use real daemons and real children.

const TIMEOUT = { timeout: 60_000 }
const NOBODY = { jsonrpc: '2.0', id: 1, method: 'session.info', params: { session_id: 'none' } }
const IS_ROOT = process.geteuid?.() === 0
const quiet = ['--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']

test('without rexd_config, no REXD process starts, and the output does not mention it', TIMEOUT, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice')
  await daemon.start()
  assert.doesNotMatch(daemon.ready, /rexd/)
  const children = (await readFile(`/proc/${daemon.pid}/task/${daemon.pid}/children`, 'latin1')).split(' ').filter(Boolean)
  const lines = await Promise.all(children.map(async (pid) => readFile(`/proc/${pid}/cmdline`, 'utf8')))
  assert.equal(lines.filter((line) => line.includes('x0xd-network')).length, 1)
  assert.deepEqual(
    lines.filter((line) => line.includes('rexd')),
    [],
  )
  assert.ok(!(await readdir(daemon.dir)).includes('rexd.pid'))
  const { stdout } = await runDaemonCommand(['--doctor', '--data-dir', daemon.dir])
  assert.doesNotMatch(stdout, /rexd/i)
})

test('REXD serves HTTP and WebSocket to clients with its token, and refuses foreign hosts and pages', TIMEOUT, async (t) => {
  const { daemon, reached, pid } = await rexdBeside(t, { listen: '127.0.0.1:0' })
  await daemon.start()
  const server = await reached()
  assert.match(server.url, /^http:\/\/127\.0\.0\.1:\d+$/)
  const caller = await connect(t, server)
  await caller
    .call('session.open', { client_name: 'a' })
    .then(({ session_id }) => caller.call('exec.start', { session_id, argv: ['/bin/echo', 'over', 'a', 'WebSocket'] }))
  assert.equal((await caller.exit()).params['exit_code'], 0)
  assert.match((await post(server, 'session.open', { client_name: 'b' })).session_id, /^s_/)
  const apiToken = (await readFile(join(daemon.dir, 'api-token'), 'latin1')).trim()
  for (const token of [null, 'x', apiToken]) {
    assert.equal((await ask(server, { body: NOBODY, token })).status, 401)
    assert.equal(await refusedSocket(server, token === null ? {} : { headers: { authorization: `Bearer ${token}` } }), 401)
  }
  const authorization = `Bearer ${server.token}`
  for (const headers of [{ host: 'evil.example' }, { origin: 'http://evil.example' }]) {
    assert.equal((await ask(server, { body: NOBODY, headers })).status, 403)
    assert.equal(await refusedSocket(server, { headers: { authorization, ...headers } }), 403)
  }
  const { status, stdout } = await runDaemonCommand(['--doctor', '--data-dir', daemon.dir])
  assert.equal(status, 0, stdout)
  assert.match(stdout, new RegExp(`ok {4}REXD +pid ${await pid()} as `))
})

test('REXD gets the data directory and the variables of pass_env, and no other variables of x0xd', TIMEOUT, async (t) => {
  const { daemon, pid } = await rexdBeside(t, { security: 'pass_env = ["GREETING"]' })
  Object.assign(daemon.options, { env: { GREETING: 'hello', UNASKED: 'secret' } })
  await daemon.start()
  const environment = (await readFile(`/proc/${await pid()}/environ`, 'utf8')).split('\0').filter(Boolean)
  const names = environment.map((entry) => entry.split('=')[0]).toSorted()
  assert.deepEqual(names, ['GREETING', 'HOME', 'LANG', 'LC_ALL', 'PATH', 'X0X_DATA_DIR'])
  assert.ok(environment.includes('GREETING=hello') && environment.includes(`X0X_DATA_DIR=${daemon.dir}`))
})

/** The sockets and pipes that a process has open. */
const channelsOf = async (pid: number): Promise<string[]> => {
  const targets = await Promise.all((await readdir(`/proc/${pid}/fd`)).map(async (fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')))
  return targets.filter((target) => /^(socket|pipe):/.test(target))
}

/** Runs code with the rights and the user of this network process. Returns what it can read and the answer of the socket. */
const fromNetworkHalf = async (networkPid: number, files: readonly string[], socket: string): Promise<Record<string, string>> => {
  const status = await readFile(`/proc/${networkPid}/status`, 'utf8')
  const [uid, gid] = ['Uid', 'Gid'].map((name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]))
  const code = `import fs from 'node:fs'
import http from 'node:http'
const outcome = {}
for (const file of ${JSON.stringify(files)}) {
  try { fs.readFileSync(file); outcome[file] = 'read' } catch (error) { outcome[file] = error.code }
}
const options = { socketPath: ${JSON.stringify(socket)}, path: '/rpc', method: 'POST', headers: { 'content-type': 'application/json' } }
outcome.asked = await new Promise((resolve) =>
  http.request(options, (answer) => resolve(String(answer.statusCode))).on('error', (error) => resolve(error.code)).end('{}'))
console.log(JSON.stringify(outcome))
process.exit()`
  const argv = [...NETWORK_RIGHTS, '--input-type=module', '--eval', code]
  const { stdout, stderr } = IS_ROOT
    ? asOtherUser(argv, { uid: uid!, gid: gid! })
    : spawnSync(process.execPath, argv, { encoding: 'utf8', env: {}, cwd: '/' })
  assert.notEqual(stdout, '', stderr)
  return JSON.parse(stdout) as Record<string, string>
}

test('a captured network process has no descriptor or file of REXD, and gets no answer without the token', TIMEOUT, async (t) => {
  const { daemon, mesh, pid, config, tokenFile } = await rexdBeside(t)
  await daemon.start()
  const network = await daemon.networkPid()
  const [its, ours] = [await channelsOf(network), new Set(await channelsOf(await pid()))]
  assert.ok(its.length > 3 && ours.size > 3)
  // They may share only standard error, which x0xd passes to all of them.
  assert.deepEqual(
    its.filter((one) => ours.has(one)),
    [],
  )
  for (const file of ['cmdline', 'environ']) {
    const text = await readFile(`/proc/${network}/${file}`, 'utf8')
    assert.ok(!text.includes(tokenFile) && !text.includes(config))
  }
  const { asked, ...files } = await fromNetworkHalf(network, [tokenFile, config], join(mesh.root, 'sock', 'rexd.sock'))
  assert.deepEqual(files, { [tokenFile]: 'ERR_ACCESS_DENIED', [config]: 'ERR_ACCESS_DENIED' })
  // As another user, it cannot even open the socket.
  assert.match(asked ?? '', /^(401|EACCES)$/)
})

/** Starts a run of the daemon itself, which prints `after` once `goOn` is called. */
const startOwnRun = async ({ daemon, mesh }: RexdBeside) => {
  const marker = join(mesh.root, 'marker')
  const ticker = await mesh.program('ticker', `echo ready\nwhile [ ! -e ${marker} ]; do sleep 0.05; done\necho after`)
  await daemon.start()
  await daemon.writeAcl([{ agent: daemon, commands: [[ticker]] }])
  await daemon.restart()
  const running = daemon.startCli(['exec', daemon.agentId, '--', ticker])
  await running.printed('ready')
  return { running, goOn: async () => writeFile(marker, '') }
}

test('after REXD is killed, its programs end, a new REXD starts, and a run of the daemon continues', TIMEOUT, async (t) => {
  const beside = await rexdBeside(t)
  const { daemon, reached, pid, another } = beside
  const { running, goOn } = await startOwnRun(beside)
  const [executor, network, first] = [daemon.pid, await daemon.networkPid(), await pid()]
  const programs = await startPrograms(beside, await reached())
  process.kill(first, 'SIGKILL')
  await gone(...programs)
  const second = await another(first)
  assert.match((await post(await reached(), 'session.open', { client_name: 'a' })).session_id, /^s_/)
  await goOn()
  const { status, stdout } = await running.finished
  assert.deepEqual([status, stdout.toString()], [0, 'ready\nafter\n'])
  assert.deepEqual([daemon.pid, await daemon.networkPid(), await pid()], [executor, network, second])
  assert.match(await daemon.log(), /"how":"SIGKILL","again_in_ms":100,"msg":"rexd ended; the executor continues, and restarts it"/)
})

test('a stop of x0xd ends REXD and its programs, and leaves no socket and no log message', TIMEOUT, async (t) => {
  const beside = await rexdBeside(t)
  const { daemon, mesh, reached, pid, dir } = beside
  await daemon.start()
  const [rexd, programs] = [await pid(), await startPrograms(beside, await reached())]
  assert.equal(await daemon.stop(), 0)
  for (const one of [rexd, ...programs]) assert.ok(!isRunning(one), `${one} is gone before x0xd is`)
  assert.ok(!(await readdir(daemon.dir)).includes('rexd.pid'))
  assert.deepEqual(await readdir(join(mesh.root, 'sock')), [])
  const events = (await readFile(join(dir, 'log', 'audit.log'), 'utf8')).split('\n').filter(Boolean)
  assert.ok(events.some((line) => line.includes('"event":"exit"')) && events.at(-2)?.includes('"state":"closed"'), 'its journal is whole')
  assert.match(events.at(-1) ?? '', /"event":"stopped"/)
  assert.equal(await daemon.log(), '')
})

test('after SIGKILL of x0xd, REXD and its programs end, and the next start ends a hung REXD', TIMEOUT, async (t) => {
  const beside = await rexdBeside(t)
  const { daemon, reached, pid } = beside
  await daemon.start()
  const [first, programs] = [await pid(), await startPrograms(beside, await reached())]
  await daemon.stop('SIGKILL')
  await gone(first, ...programs)
  await daemon.start()
  const second = await pid()
  const others = await startPrograms(beside, await reached(), 'b')
  process.kill(second, 'SIGSTOP')
  await daemon.stop('SIGKILL')
  assert.ok(isRunning(second), 'it cannot see that it is alone')
  await daemon.start()
  await gone(second, ...others)
  assert.ok(await answers(await reached()), 'its socket is no hindrance')
  assert.equal(await daemon.log(), '', 'nothing had to be tried twice')
})

test('an invalid REXD configuration prevents the start of x0xd, and --check and --doctor name the line', TIMEOUT, async (t) => {
  const { daemon, config } = await rexdBeside(t)
  const good = await readFile(config, 'utf8')
  for (const [text, line, said] of [
    [good.replace('allow_shell', 'alow_shell'), 9, /security\.alow_shell: unknown key/],
    [good.replace(/"unix:[^"]*"/, '"unix:rexd.sock"'), 2, /server\.http_listen: "rexd\.sock" must be an absolute path/],
    [good.replace(/^(http_listen|token_file).*\n/gm, ''), null, /server\.http_listen is missing/],
    ['[server\n', 1, /./],
    [null, null, /missing\.toml: no such file; .*x0x mcp --init DIR.*rexd_config of x0xd/],
  ] as const) {
    if (text === null) await writeFile(join(daemon.dir, 'config.toml'), `rexd_config = "${config}.missing.toml"\n`)
    else await writeFile(config, text)
    for (const mode of [[], ['--check'], ['--doctor']]) {
      const { status, stdout, stderr } = await runDaemonCommand([...mode, '--data-dir', daemon.dir, ...quiet])
      assert.equal(status, 2, stdout + stderr)
      const told = (stdout + stderr).split('\n').filter((one) => one.includes(`${config}${line === null ? '' : `:${line}:`}`))
      assert.ok(
        told.some((one) => said.test(one) && one.startsWith(mode.length === 0 ? 'x0xd: ' : 'fail  REXD')),
        stdout + stderr,
      )
    }
  }
  // The data directory holds the operator key, which decides about approvals.
  await writeFile(join(daemon.dir, 'config.toml'), `rexd_config = "${config}"\n`)
  await writeFile(config, `${good}\n[tools.exec]\n[[security.allowed_roots]]\npath = ${JSON.stringify(daemon.dir)}\n`)
  for (const mode of [[], ['--check'], ['--doctor']]) {
    const { status, stdout, stderr } = await runDaemonCommand([...mode, '--data-dir', daemon.dir, ...quiet])
    assert.equal(status, 2, stdout + stderr)
    assert.match(stdout + stderr, /the root .* and the data directory .*operator\.key/)
  }
  assert.deepEqual(await readdir(daemon.dir), ['config.toml'], 'it was refused before anything was made')
})

test('with its port in use, REXD waits while x0xd serves the mesh, and starts when the port is free', TIMEOUT, async (t) => {
  const holder = createServer().listen(0, '127.0.0.1')
  await once(holder, 'listening')
  const { port } = holder.address() as AddressInfo
  const { daemon, tokenFile, config } = await rexdBeside(t, { listen: `127.0.0.1:${port}` })
  await daemon.start()
  assert.match(daemon.ready, /, rexd not running, data /)
  assert.equal((await daemon.cli(['id'])).status, 0)
  const log = await daemon.log()
  assert.match(log, new RegExp(`^rexd: another program uses 127\\.0\\.0\\.1:${port}; stop it, or choose another`, 'm'))
  assert.ok(log.includes(`rexd --check --config ${config}`) && log.includes('"msg":"rexd could not be started"'), log)
  await new Promise((resolve) => holder.close(resolve))
  const token = await until('REXD listens', async () => {
    const read = (await readFile(tokenFile, 'latin1').catch(() => '')).trim()
    return (await answers({ url: `http://127.0.0.1:${port}`, token: read })) && read
  })
  assert.match((await post({ url: `http://127.0.0.1:${port}`, token }, 'session.open', { client_name: 'a' })).session_id, /^s_/)
})
