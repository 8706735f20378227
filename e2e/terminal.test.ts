import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { beginRunAnswer, fakeDaemon, json, runAnswer, runEventBytes } from '../test/support/fake-daemon.ts'
import { fleetDaemon, hostEnd, notStarted, type AskedFanout } from '../test/support/fleet-daemon.ts'
import { cliCommand, startCli } from '../test/support/mesh-of-daemons.ts'
import { tempDir } from '../test/support/temp-dir.ts'

const [PROGRAM, ...WORDS] = cliCommand

// Behaviour that needs a real process: its end during a read, on a closed terminal, and on a full disk.

const python = spawnSync('python3', ['-c', 'import pty']).status === 0
const withPty = python ? '' : ' (skipped: no python3 with pty)'
const FULL = '/dev/full'
const withFull = existsSync(FULL) ? '' : ` (skipped: no ${FULL})`

/**
 * Starts argv on its own terminal. After a line on stdin, types a line and Ctrl-C, or closes the terminal when it shows `hi`. Prints the
 * wait status.
 */
const ON_A_TERMINAL = `
import os, pty, signal, sys
how, argv = sys.argv[1], sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    os.execv(argv[0], argv)
def give_up(*_):
    os.kill(pid, signal.SIGKILL)
    sys.exit(1)
signal.signal(signal.SIGALRM, give_up)
signal.alarm(30)
sys.stdin.readline()
if how == 'close':
    while b'hi' not in os.read(master, 4096): pass
    os.close(master)
else:
    os.write(master, b'a line\\n')
    while b'a line' not in os.read(master, 4096): pass
    os.write(master, b'\\x03')
print(os.waitpid(pid, 0)[1])
`

/** Wait status as waitpid returns it. */
const onTerminal = async (how: 'close' | 'interrupt', argv: readonly string[], ready: Promise<unknown>): Promise<number> => {
  const child = spawn('python3', ['-c', ON_A_TERMINAL, how, ...cliCommand, ...argv], { stdio: ['pipe', 'pipe', 'inherit'] })
  let text = ''
  child.stdout.on('data', (part: Buffer) => (text += part.toString()))
  void ready.then(() => child.stdin.end('\n'))
  await once(child, 'close')
  return Number(text)
}

for (const [file, title] of [
  ['-', 'is still being typed'],
  ['/dev/tty', 'is read from the terminal by its name'],
] as const) {
  test(`Ctrl-C at once ends a command whose stdin ${title}${withPty}`, { skip: !python }, async (t) => {
    const asked = Promise.withResolvers<void>()
    const { dir } = await fakeDaemon(
      t,
      (request, response) => {
        if (request.path === '/exec/cancel') json(response, 404, { ok: false, error: 'unknown_run', message: 'no run' })
      },
      asked.resolve,
    )
    const status = await onTerminal('interrupt', ['--data-dir', dir, 'exec', 'bob', '--stdin-file', file, '--', 'cat'], asked.promise)
    assert.equal(status >> 8, 130)
    assert.equal(status & 0x7f, 0)
  })
}

test('Ctrl-C at once ends a command whose stdin is a named pipe, with and without a writer', async (t) => {
  const fifo = join(await tempDir(t), 'fifo')
  assert.equal(spawnSync('mkfifo', [fifo]).status, 0)
  for (const writes of [false, true]) {
    const asked = Promise.withResolvers<void>()
    const { dir } = await fakeDaemon(
      t,
      (request, response) => {
        if (request.path === '/exec/cancel') json(response, 404, { ok: false, error: 'unknown_run', message: 'no run' })
      },
      asked.resolve,
    )
    const argv = ['--data-dir', dir, 'exec', 'bob', '--stdin-file', fifo, '--', 'cat']
    const child = spawn(PROGRAM, [...WORDS, ...argv], {
      stdio: ['ignore', 'ignore', 'inherit'],
      timeout: 30_000,
      killSignal: 'SIGKILL',
    })
    const ended = once(child, 'exit')
    await asked.promise
    const writer = writes ? await open(fifo, 'w') : null
    await writer?.write('a line\n')
    child.kill('SIGINT')
    assert.deepEqual(await ended, [130, null])
    await writer?.close()
  }
})

test('stdin from a named pipe is read to its end, no matter which side opens it first', async (t) => {
  const fifo = join(await tempDir(t), 'fifo')
  assert.equal(spawnSync('mkfifo', [fifo]).status, 0)
  const asked = Promise.withResolvers<void>()
  const { dir, seen } = await fakeDaemon(t, (_request, response) => runAnswer(response), asked.resolve)
  const argv = ['--data-dir', dir, 'exec', 'bob', '--stdin-file', fifo, '--', 'cat']
  const first = startCli(argv)
  await asked.promise
  await writeFile(fifo, 'x'.repeat(100_000))
  await first.finished
  const writing = writeFile(fifo, 'x'.repeat(100_000))
  await startCli(argv).finished
  await writing
  assert.equal(seen.length, 2)
  for (const { body } of seen) {
    const lines = body.trimEnd().split('\n').slice(1)
    const sent = lines.map((line) => Buffer.from((JSON.parse(line) as { stdin_b64: string }).stdin_b64, 'base64').toString())
    assert.equal(sent.join(''), 'x'.repeat(100_000))
  }
})

test('Ctrl-C at once ends a command whose stdin is a pipe that stays open', async (t) => {
  const asked = Promise.withResolvers<void>()
  const { dir } = await fakeDaemon(
    t,
    (request, response) => {
      if (request.path === '/exec/cancel') json(response, 404, { ok: false, error: 'unknown_run', message: 'no run' })
    },
    asked.resolve,
  )
  const argv = ['--data-dir', dir, 'exec', 'bob', '--stdin-file', '-', '--', 'cat']
  const child = spawn(PROGRAM, [...WORDS, ...argv], { stdio: ['pipe', 'ignore', 'inherit'], timeout: 30_000, killSignal: 'SIGKILL' })
  child.stdin.write('a line\n')
  await asked.promise
  child.kill('SIGINT')
  assert.deepEqual(await once(child, 'exit'), [130, null])
  child.stdin.destroy()
})

test(`closing the terminal cancels the run, and the command line dies of SIGHUP${withPty}`, { skip: !python }, async (t) => {
  const begun = Promise.withResolvers<void>()
  let ended: { end(): void } | null = null
  const { dir, seen } = await fakeDaemon(t, (request, response) => {
    if (request.path === '/exec/cancel') {
      json(response, 200, { ok: true })
      ended?.end()
      return
    }
    ended = beginRunAnswer(response)
    response.write(runEventBytes({ type: 'stdout', request_id: 'x', seq: 0, data_b64: 'aGkK' }), () => begun.resolve())
  })
  const status = await onTerminal('close', ['--data-dir', dir, 'exec', 'bob', '--', 'ticker'], begun.promise)
  assert.equal(status, 1, 'ended by SIGHUP, no core')
  assert.deepEqual(
    seen.map(({ path }) => path),
    ['/exec/run', '/exec/cancel'],
  )
})

/** Exit status and standard error of the command line. */
const intoFull = async (dir: string, ...argv: readonly string[]): Promise<[number | null, string]> => {
  const child = spawn('/bin/sh', ['-c', `exec "$@" > ${FULL}`, 'sh', ...cliCommand, '--data-dir', dir, ...argv])
  let stderr = ''
  child.stderr.on('data', (part: Buffer) => (stderr += part.toString()))
  await once(child, 'close')
  return [child.exitCode, stderr]
}

test(`a full disk for the output is a failure with an error line${withFull}`, { skip: !existsSync(FULL) }, async (t) => {
  const { dir } = await fakeDaemon(t, (request, response) => {
    if (request.path === '/exec/run') runAnswer(response, { type: 'stdout', request_id: 'x', seq: 0, data_b64: 'NQo=' })
    else json(response, 200, { ok: true, agent_id: 'a', machine_id: 'b', contacts: [], groups: [] })
  })
  for (const argv of [['id'], ['--json', 'id'], ['contacts', 'list'], ['--help']]) {
    const [status, stderr] = await intoFull(dir, ...argv)
    assert.equal(status, 1, argv.join(' '))
    assert.match(stderr, /^x0x: cannot write the output: .*ENOSPC.*\n$/)
  }
  const [status, stderr] = await intoFull(dir, 'exec', 'bob', '--', 'echo', '5')
  assert.equal(status, 255)
  assert.match(stderr, /^x0x: cannot write the output: .*\n$/)
})

test(`a full disk cancels a fan-out, and the summary counts the ends of its hosts${withFull}`, { skip: !existsSync(FULL) }, async (t) => {
  let fanout: AskedFanout
  const { dir } = await fleetDaemon(
    t,
    ['web1', 'web2'],
    (asked) => {
      fanout = asked
      asked.begun('web1')
      asked.output('web1', 'lost\n')
    },
    () => {
      fanout.ended(hostEnd('web1', { end: 'cancelled', code: null, signal: 15 }), notStarted('web2'))
      fanout.close()
    },
  )
  const [status, stderr] = await intoFull(dir, 'exec', '@all', '--', 'x')
  assert.equal(status, 3)
  assert.match(stderr, /^x0x: 2 hosts asked: 0 ran, 0 denied, 0 unreachable, 1 not started, 1 cancelled, 0 unknown; /)
  assert.match(stderr, /\nx0x: cannot write the output: ENOSPC.*\n$/)
})

test('a reader that closes the pipe ends the command line quietly with status 141', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, link: 'x'.repeat(8 * 1024 * 1024) }))
  const running = startCli(['--data-dir', dir, 'card'], { unread: true })
  running.child.stdout?.destroy()
  const { status, stderr } = await running.finished
  assert.equal(status, 128 + 13)
  assert.equal(stderr, '')
})
