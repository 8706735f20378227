import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { isAlive } from '../../test/support/processes.ts'
import { rexdCommand } from '../../test/support/rexd-command.ts'
import { gone, pidIn, rexdPlace, startRexd } from '../../test/support/rexd-server.ts'
import { NO_TERMINALS } from './server.ts'

// `rexd exec` as installed: runs one command through a rexd and returns its status as a shell expects.

const REXD = rexdCommand('deploy/bin/rexd.mjs')
const X0X = fileURLToPath(new URL('../../deploy/bin/x0x.cjs', import.meta.url))
const TIMEOUT = { timeout: 60_000 }

interface Ended {
  readonly status: number | null
  readonly stdout: Buffer
  readonly stderr: string
}

const begin = (argv: readonly string[], [file, ...words]: readonly string[] = [...REXD, 'exec']): ChildProcess =>
  spawn(file!, [...words, ...argv])

const ended = async (child: ChildProcess): Promise<Ended> => {
  const [out, err]: [Buffer[], Buffer[]] = [[], []]
  child.stdout?.on('data', (bytes: Buffer) => out.push(bytes))
  child.stderr?.on('data', (bytes: Buffer) => err.push(bytes))
  const [status] = (await once(child, 'close')) as [number | null]
  return { status, stdout: Buffer.concat(out), stderr: Buffer.concat(err).toString() }
}

const run = async (argv: readonly string[], stdin: Buffer | string = '', program?: string[]): Promise<Ended> => {
  const child = begin(argv, program)
  child.stdin?.on('error', () => undefined)
  child.stdin?.end(stdin)
  return ended(child)
}

test('rexd exec runs a command through a local rexd and returns its output, its exit code or its signal', TIMEOUT, async (t) => {
  const { config } = await rexdPlace(t)
  const first = await run(['--config', config, '--', 'sh', '-c', 'echo out; echo err >&2; exit 7'])
  assert.deepEqual([first.status, first.stdout.toString(), first.stderr], [7, 'out\n', 'err\n'])
  assert.equal((await run(['--config', config, '--', 'sh', '-c', 'kill -9 $$'])).status, 137)
  const timed = await run(['--config', config, '--timeout', '1', '--', 'sleep', '600'])
  assert.deepEqual(
    [timed.status, timed.stderr],
    [143, 'rexd: its time limit was reached; set another with --timeout, up to limits.hard_timeout_ms\n'],
  )
  const same = await run(['--config', config, '--cwd', '.', '--', 'pwd'], '', [process.execPath, X0X, 'rexd', 'exec'])
  assert.deepEqual([same.status, same.stdout.toString().endsWith('/root\n')], [0, true])
})

test('standard input and an output of many megabytes pass unchanged', TIMEOUT, async (t) => {
  const { config } = await rexdPlace(t)
  const bytes = randomBytes(8 * 1024 * 1024)
  const { status, stdout } = await run(['--config', config, '--stdin', '--', 'cat'], bytes)
  const sum = (data: Buffer): string => createHash('sha256').update(data).digest('hex')
  assert.deepEqual([status, stdout.length, sum(stdout)], [0, bytes.length, sum(bytes)])
})

test('rexd exec fails if standard input has data that it would not send', TIMEOUT, async (t) => {
  const { config } = await rexdPlace(t)
  // The data may arrive before or after the command has started.
  const { status, stderr } = await run(['--config', config, '--', 'true'], 'text')
  assert.ok(status === 2 || status === 255, String(status))
  assert.match(stderr, /^rexd: standard input .*\(stdin_not_sent\)(?:.*\n)+.*Try: rexd exec .* --stdin -- true/)
})

test('rexd exec reports how many bytes of the output were cut', TIMEOUT, async (t) => {
  const { config } = await rexdPlace(t)
  await writeFile(config, (await readFile(config, 'utf8')).replace('max_output_bytes = 268435456', 'max_output_bytes = 4096'))
  const { status, stdout, stderr } = await run(['--config', config, '--', 'seq', '1', '100000'])
  assert.deepEqual([status, stdout.length], [0, 4096])
  assert.equal(stderr, `rexd: its output was cut off: the last ${588_895 - 4096} bytes are missing (limits.max_output_bytes)\n`)
})

test('rexd exec fails if the end of the output was lost', TIMEOUT, async (t) => {
  const { config, dir } = await rexdPlace(t)
  const writes = join(dir, 'root', 'writes')
  const text = 'echo $$ >"$0"; while :; do echo x; sleep 0.01; done'
  await writeFile(writes, `#!/bin/sh\nsetsid env -i sh -c '${text}' "$0.pid" &\nsleep 0.5\n`, { mode: 0o755 })
  const { status, stderr } = await run(['--config', config, '--', writes])
  const pid = Number(await readFile(`${writes}.pid`, 'latin1'))
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  const alone = (await readFile(join(dir, 'log', 'audit.log'), 'utf8')).includes('"containment":"group"')
  // A control group also ends the process that continues to write.
  const lost = 'rexd: the end of its output was lost: a process that it started was still writing after it ended\n'
  if (alone) assert.deepEqual([status, stderr], [255, lost])
  else {
    assert.equal(status, 0)
    assert.match(stderr, /^rexd: \d process(es)? that the command left running (was|were) ended with it\n$/)
  }
})

test('rexd exec connects to an address or socket with a token, and refuses an unsafe socket or wrong token', TIMEOUT, async (t) => {
  const server = await startRexd(t)
  const way = ['--url', server.url.replace('http:', 'ws:'), '--token-file', server.tokenFile]
  assert.equal((await run([...way, '--', 'echo', 'there'])).stdout.toString(), 'there\n')
  const place = await rexdPlace(t)
  const socket = `unix:${join(place.dir, 'socket', 'rexd.sock')}`
  const onSocket = await startRexd(t, { listen: socket })
  assert.equal(
    (await run(['--url', socket.replace(place.dir, onSocket.dir), '--token-file', onSocket.tokenFile, '--', 'true'])).status,
    255,
  )
  assert.equal((await run(['--url', socket, '--token-file', onSocket.tokenFile, '--', 'echo', 'here'])).stdout.toString(), 'here\n')
  await chmod(join(place.dir, 'socket', 'rexd.sock'), 0o666)
  await chmod(join(place.dir, 'socket'), 0o755)
  const open = await run(['--url', socket, '--token-file', onSocket.tokenFile, '--', 'true'])
  assert.deepEqual([open.status, /rexd\.sock lets others connect \(mode 0666\)/.test(open.stderr)], [255, true], open.stderr)
  const wrong = join(server.dir, 'wrong')
  await writeFile(wrong, 'f'.repeat(64))
  const refused = await run(['--url', server.url, '--token-file', wrong, '--', 'true'])
  assert.deepEqual([refused.status, /401|token/.test(refused.stderr)], [255, true], refused.stderr)
  for (const text of ['', 'two words\n', 'ä']) {
    await writeFile(wrong, text)
    const none = await run(['--url', server.url, '--token-file', wrong, '--', 'true'])
    assert.deepEqual(
      [none.status, none.stderr],
      [255, `rexd: --token-file: ${wrong} holds no token; take a copy of the server's token_file\n`],
    )
  }
})

test('a command that cannot run ends with status 255 and a message, and a usage error with status 2', TIMEOUT, async (t) => {
  const { config, root } = await rexdPlace(t)
  const missing = await run(['--config', config, '--', 'no-such-program'])
  assert.deepEqual([missing.status, missing.stdout.length], [255, 0])
  assert.match(missing.stderr, /^rexd: .*no-such-program/)
  const nowhere = await run(['--config', join(root, 'none.toml'), '--', 'true'])
  assert.equal(nowhere.status, 255)
  assert.match(nowhere.stderr, /no such file/)
  for (const wrong of [
    [],
    ['--config', config],
    ['--nonsense', '--', 'true'],
    ['--url', 'ws://127.0.0.1:1', '--', 'true'],
    ['--timeout', '0', '--', 'true'],
  ]) {
    const { status, stderr } = await run(wrong)
    assert.deepEqual([status, /rexd exec --help/.test(stderr)], [2, true], stderr)
  }
  const help = await run(['--help'])
  assert.deepEqual([help.status, /Exit status:\n/.test(help.stdout.toString())], [0, true])
})

test('a signal reaches the command, and its exit status comes back', TIMEOUT, async (t) => {
  const { config, root } = await rexdPlace(t)
  const child = begin([
    '--config',
    config,
    '--',
    'sh',
    '-c',
    'trap "echo asked; exit 5" INT; echo $$ > pid.tmp; mv pid.tmp pid; while :; do sleep 0.05; done',
  ])
  const end = ended(child)
  const pid = await pidIn(join(root, 'pid'))
  child.kill('SIGINT')
  const { status, stdout } = await end
  assert.deepEqual([status, stdout.toString()], [5, 'asked\n'])
  await gone(pid)
})

test('a reader that closes the pipe ends rexd exec and its command', TIMEOUT, async (t) => {
  const { config, root } = await rexdPlace(t)
  const child = begin(['--config', config, '--', 'sh', '-c', 'echo $$ > pid.tmp; mv pid.tmp pid; exec seq 1 100000000'])
  const end = once(child, 'exit')
  const pid = await pidIn(join(root, 'pid'))
  child.stdout?.destroy()
  assert.deepEqual(await end, [141, null])
  await gone(pid)
})

test('killing rexd exec ends its command', TIMEOUT, async (t) => {
  const { config, root } = await rexdPlace(t)
  const child = begin(['--config', config, '--', 'sh', '-c', 'echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600'])
  const end = ended(child)
  const pid = await pidIn(join(root, 'pid'))
  child.kill('SIGKILL')
  await end
  await gone(pid)
})

test(
  `a terminal has a size, and its program gets what is typed${NO_TERMINALS === null ? '' : ` (${NO_TERMINALS})`}`,
  { ...TIMEOUT, skip: NO_TERMINALS !== null },
  async (t) => {
    const { config } = await rexdPlace(t, { security: 'allow_pty = true' })
    const { status, stdout } = await run(
      ['--config', config, '--tty', '--', 'sh', '-c', 'stty size; read answer; echo "got $answer"; exit 3'],
      'yes\n',
    )
    assert.equal(status, 3)
    assert.match(stdout.toString(), /24 80\r\n[^]*got yes\r\n/)
  },
)

test(
  'input that a program on a terminal does not read stays with the client, and the exit status comes back',
  { ...TIMEOUT, skip: NO_TERMINALS !== null },
  async (t) => {
    const { config } = await rexdPlace(t, { security: 'allow_pty = true' })
    const child = begin(['--config', config, '--tty', '--', 'sh', '-c', 'stty raw -echo; echo ready; sleep 3; exit 4'])
    child.stdin?.on('error', () => undefined)
    const end = ended(child)
    await once(child.stdout!, 'data')
    child.stdin?.write(Buffer.alloc(32 * 1024 * 1024, 'x'))
    await sleep(1_500)
    const left = child.stdin?.writableLength ?? 0
    assert.deepEqual([(await end).status, left > 16 * 1024 * 1024], [4, true], `${left} bytes were left`)
  },
)

test('a large input to a terminal is read completely by its program', { ...TIMEOUT, skip: NO_TERMINALS !== null }, async (t) => {
  const { config } = await rexdPlace(t, { security: 'allow_pty = true' })
  const size = 512 * 1024
  const child = begin(['--config', config, '--tty', '--', 'sh', '-c', `stty raw -echo; echo ready; exec head -c ${size}`])
  const end = ended(child)
  await once(child.stdout!, 'data')
  child.stdin?.write(Buffer.alloc(size, 'x'))
  const { status, stdout } = await end
  assert.deepEqual([status, stdout.length], [0, 'ready\n'.length + size])
})
