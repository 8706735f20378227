import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, existsSync, openSync, readFileSync, writeSync } from 'node:fs'
import { appendFile, mkdir, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { pathsIn } from '../../src/clients/paths.ts'
import { loadPty } from '../../src/process/terminal.ts'
import { ConsolePlace } from '../support/console-place.ts'
import { DIST, MeshOfDaemons, until, type TestDaemon } from '../support/mesh-of-daemons.ts'
import { mcpPlace } from '../support/mcp-server.ts'
import { rexdPlace } from '../support/rexd-server.ts'
import { script } from '../support/processes.ts'
import { NO_DISK, smallDisk } from '../support/small-disk.ts'
import { tempDir } from '../support/temp-dir.ts'

const LINUX = { skip: process.platform !== 'linux' && 'the shell makes these descriptors by /proc and mkfifo' }
const PIPE_FILLED = Buffer.alloc(1024 * 1024, 'filler\n')

/** The shell line that starts a program with a certain log, and the function that makes this log fail. */
interface Log {
  /** A shell line in which `"$@"` is the program. */
  readonly shell: string
  lose(): Promise<void> | void
}

const fifo = async (t: TestContext): Promise<string> => {
  const path = join(await tempDir(t), 'log')
  assert.equal(spawnSync('mkfifo', [path]).status, 0)
  return path
}

const LOSSES: Readonly<Record<string, (t: TestContext) => Promise<Log | string>>> = {
  'is a full device': async () => ({ shell: 'exec "$@" 2>/dev/full', lose: () => undefined }),
  'is on a disk that fills up': async (t) => {
    const disk = await smallDisk(t, 1024)
    if (disk === null) return NO_DISK
    const fill = async (): Promise<void> => writeFile(join(disk, 'filler'), PIPE_FILLED).catch(() => undefined)
    return { shell: `exec "$@" 2>>${join(disk, 'log')}`, lose: fill }
  },
  'has reached the size limit of the process': async (t) => {
    const file = join(await tempDir(t), 'log')
    await writeFile(file, '')
    return { shell: `ulimit -f 1024; exec "$@" 2>>${file}`, lose: async () => appendFile(file, PIPE_FILLED) }
  },
  'is a pipe whose reader has left': async (t) => {
    const path = await fifo(t)
    const fd = openSync(path, constants.O_RDWR)
    return { shell: `exec "$@" 2>${path}`, lose: () => closeSync(fd) }
  },
  'is a pipe that is not read': async (t) => {
    const path = await fifo(t)
    const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
    t.after(() => closeSync(fd))
    return { shell: `exec "$@" 2>${path}`, lose: () => void writeSync(fd, PIPE_FILLED) }
  },
  'was its controlling terminal, which has closed': async () => {
    const { master, shell } = terminal()
    return { shell, lose: () => closeSync(master) }
  },
  // This terminal is not that of the session, so no SIGHUP arrives.
  'is another terminal, which has closed': async () => {
    const { master, pty } = terminal()
    return { shell: `exec ${master}>&-; exec setsid "$@" 2>${pty}`, lose: () => closeSync(master) }
  },
  'is a terminal that accepts no more output': async (t) => {
    const { master, shell, pty } = terminal()
    t.after(() => closeSync(master))
    const own = openSync(pty, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    const fill = (): void => {
      try {
        for (;;) writeSync(own, PIPE_FILLED)
      } catch {
        closeSync(own)
      }
    }
    return { shell, lose: fill }
  },
}

/** Creates a terminal that becomes the controlling terminal, the input and the log of a program. */
const terminal = (): { readonly master: number; readonly shell: string; readonly pty: string } => {
  const loaded = loadPty()
  assert.ok('native' in loaded)
  const { master, slave, pty } = loaded.native.open(80, 24)
  closeSync(slave)
  return { master, pty, shell: `exec ${master}>&-; exec setsid -c "$@" <${pty} 2>${pty}` }
}

const through = ({ shell }: Log, program: readonly string[]): [string, ...string[]] => [
  '/bin/bash',
  '-c',
  `ulimit -c 0; ${shell}`,
  'sh',
  ...program,
]

const reloads = async (daemon: TestDaemon): Promise<void> => {
  process.kill(daemon.pid, 'SIGHUP')
  await daemon.ok('contacts', 'list')
}

test('a daemon and its runs continue without its log', LINUX, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const go = join(await tempDir(t), 'go')
  const waits = await script(t, `echo begun; until [ -e ${go} ]; do sleep 0.05; done; echo ended`)
  const daemon = mesh.add('web', { env: { X0X_LOG_LEVEL: 'debug' } })
  await daemon.start()
  await daemon.stop()
  await daemon.writeAcl([{ agent: daemon, commands: [[waits], ['/bin/echo', 'ok']] }])
  const goesOn = async (t: TestContext, make: (typeof LOSSES)[string]): Promise<void> => {
    const log = await make(t)
    if (typeof log === 'string') return t.skip(log)
    Object.assign(daemon.options, { program: through(log, [process.execPath, join(DIST, 'x0xd.mjs')]) })
    await rm(go, { force: true })
    await daemon.start()
    const run = daemon.startCli(['exec', daemon.agentId, '--', waits])
    await run.printed('begun')
    await log.lose()
    for (let round = 0; round < 3; round += 1) await reloads(daemon)
    const other = await daemon.exec(daemon.agentId, ['/bin/echo', 'ok'])
    assert.deepEqual([other.status, other.stdout.toString()], [0, 'ok\n'], other.stderr)
    await writeFile(go, '')
    const { status, stdout } = await run.finished
    assert.deepEqual([status, stdout.toString()], [0, 'begun\nended\n'])
    assert.equal(await daemon.stop(), 0)
  }
  for (const [what, make] of Object.entries(LOSSES)) await t.test(what, async (t) => goesOn(t, make))
})

const REXD = join(import.meta.dirname, '../../deploy/bin/rexd.mjs')
const X0X = join(import.meta.dirname, '../../deploy/bin/x0x.cjs')

/** Sends an invalid line, which each of the programs logs, and waits until it is read. */
const disturb = async (socket: string): Promise<void> => {
  const client = connect(socket).on('error', () => undefined)
  client.resume().end('no line of this protocol\n')
  await once(client, 'close')
}

/** Waits until the program prints a match. */
const watch = (output: Readable) => {
  let said = ''
  output.on('data', (part: Buffer) => (said += part.toString()))
  return async (wanted: RegExp): Promise<RegExpExecArray> => until(`it prints ${wanted}`, () => wanted.exec(said))
}

for (const what of ['is a full device', 'is a pipe that is not read']) {
  test(`x0x desk continues if its log ${what}`, LINUX, async (t) => {
    const log = (await LOSSES[what]!(t)) as Log
    const dir = join(await tempDir(t), 'data')
    await mkdir(dir, { mode: 0o700 })
    const [file, ...words] = through(log, [process.execPath, X0X, 'desk', '--data-dir', dir])
    const desk = spawn(file, words, { stdio: ['ignore', 'pipe', 'ignore'] })
    t.after(() => desk.kill('SIGKILL'))
    const ended = once(desk, 'exit')
    assert.match(String(await Promise.race([once(desk.stdout, 'data'), ended])), /approval service for/)
    await log.lose()
    for (let round = 0; round < 3; round += 1) await disturb(pathsIn(dir).approvalsSocket)
    desk.kill('SIGTERM')
    assert.deepEqual(await ended, [143, null])
  })

  test(`x0x mcp continues until its input ends if its log ${what}`, LINUX, async (t) => {
    const log = (await LOSSES[what]!(t)) as Log
    const place = await mcpPlace(t)
    await writeFile(place.config, `[server]\nlog_level = "debug"\n${readFileSync(place.config, 'utf8')}`, { mode: 0o600 })
    const [file, ...words] = through(log, [process.execPath, X0X, 'mcp', '--whoami', 'tester', '--config', place.config])
    const server = spawn(file, words, { stdio: ['pipe', 'pipe', 'ignore'] })
    t.after(() => server.kill('SIGKILL'))
    const ended = once(server, 'exit')
    let said = ''
    server.stdout.on('data', (part: Buffer) => (said += part.toString()))
    const ping = async (id: number): Promise<void> => {
      server.stdin.write(`{"jsonrpc":"2.0","id":${id},"method":"ping"}\n`)
      await until(`its answer to ${id}`, () => said.includes(`"id":${id}`))
    }
    await ping(1)
    await log.lose()
    for (let round = 0; round < 3; round += 1) server.stdin.write('no message\n')
    await ping(2)
    server.stdin.end()
    assert.deepEqual(await ended, [0, null])
  })

  test(`rexd continues on standard input and over HTTP if its log ${what}`, LINUX, async (t) => {
    const place = await rexdPlace(t, { server: 'log_level = "debug"' })
    const start = async (flag: string) => {
      const log = (await LOSSES[what]!(t)) as Log
      const [file, ...words] = through(log, [process.execPath, REXD, flag, '--config', place.config])
      const server = spawn(file, words, { stdio: ['pipe', 'pipe', 'ignore'] })
      t.after(() => server.kill('SIGKILL'))
      const printed = watch(server.stdout)
      return { server, log, printed, ended: once(server, 'exit') }
    }
    const line = await start('--stdio')
    const ping = async (id: number): Promise<void> => {
      line.server.stdin.write(`{"jsonrpc":"2.0","id":${id},"method":"server.ping"}\n`)
      await line.printed(new RegExp(`"id":${id}\\b`))
    }
    await ping(1)
    await line.log.lose()
    for (let round = 0; round < 3; round += 1) line.server.stdin.write('no message\n')
    await ping(2)
    line.server.stdin.end()
    assert.deepEqual(await line.ended, [0, null])

    const web = await start('--http')
    const [url = ''] = await web.printed(/http:\/\/[\d.]+:\d+/)
    await web.log.lose()
    const headers = { authorization: 'Bearer wrong' }
    for (let round = 0; round < 3; round += 1) assert.equal((await fetch(`${url}/rpc`, { method: 'POST', headers })).status, 401)
    web.server.kill('SIGTERM')
    assert.deepEqual(await web.ended, [143, null])
  })
}

for (const what of [
  'is a full device',
  'is a pipe whose reader has left',
  'is a pipe that is not read',
  'is another terminal, which has closed',
])
  for (const [output, redirection] of [
    ['screen', '>'],
    ['standard error', '2>'],
  ])
    test(`a console continues if its ${output} ${what}`, LINUX, async (t) => {
      const log = (await LOSSES[what]!(t)) as Log
      const place = await ConsolePlace.make(t)
      const shell = log.shell.replaceAll('2>', redirection!)
      const host = place.begin(['--start-host', '--plain'], { through: through({ ...log, shell }, []) })
      await until('it listens', () => existsSync(place.socket))
      await log.lose()
      for (let round = 0; round < 3; round += 1) {
        const { status, stdout } = await place.run(['echo', 'ok'])
        assert.deepEqual([status, stdout], [0, 'ok\n'])
      }
      host.child.kill('SIGTERM')
      assert.equal((await host.ended).status, 0)
    })
