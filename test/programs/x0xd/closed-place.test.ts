import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, copyFile, link, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { RELAYED_LINE_BYTES, RELAYED_LINES_BURST } from '../../../src/supervision/relayed-log.ts'
import { until } from '../../support/mesh-of-daemons.ts'
import { tempDir } from '../../support/temp-dir.ts'

const dist = (name: string): string => fileURLToPath(new URL(`../../../dist/${name}`, import.meta.url))
const IS_ROOT = process.geteuid?.() === 0
const hasScript = spawnSync('script', ['--version']).status === 0

/** Installs x0x and its runtime in a directory that only its user may enter, with a given network program. */
const installIn = async (dir: string, networkHalf: string | null): Promise<{ readonly runtime: string; readonly program: string }> => {
  const place = join(dir, 'closed')
  await mkdir(place, { mode: 0o700 })
  const [runtime, program, network] = ['node', 'x0xd.mjs', 'x0xd-network.mjs'].map((name) => join(place, name)) as [string, string, string]
  await link(process.execPath, runtime).catch(async () => copyFile(process.execPath, runtime))
  await chmod(runtime, 0o755)
  for (const name of ['x0xd.mjs', 'x0xd.cjs']) await copyFile(dist(name), join(place, name))
  if (networkHalf === null) await copyFile(dist('x0xd-network.mjs'), network)
  else await writeFile(network, networkHalf, { mode: 0o600 })
  return { runtime, program }
}

const words = (dir: string): string[] => ['--data-dir', join(dir, 'data'), '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
const env = { PATH: process.env['PATH'], X0X_MDNS: 'false' }

test('the daemon starts in a private directory, and as root its network process runs as another user', async (t) => {
  const dir = await tempDir(t)
  const { runtime, program } = await installIn(dir, null)
  const daemon = spawn(runtime, [program, ...words(dir)], { stdio: ['ignore', 'pipe', 'inherit'], env })
  t.after(() => daemon.kill('SIGKILL'))
  const exited = once(daemon, 'exit')
  const ready = await Promise.race([once(daemon.stdout, 'data'), exited])
  assert.match(String(ready[0]), /^x0xd \S+ ready:/)
  const network = Number((await readFile(join(dir, 'data', 'network.pid'), 'utf8')).split(' ')[0])
  const uid = Number(/^Uid:\s+(\d+)/m.exec(await readFile(`/proc/${network}/status`, 'utf8'))?.[1])
  if (IS_ROOT) assert.notEqual(uid, 0)
  else assert.equal(uid, process.geteuid?.())
  daemon.kill('SIGTERM')
  assert.deepEqual(await exited, [0, null])
})

/** Ways in which an upgrade replaces a file. */
const UPGRADES = {
  'another file': async (path: string, text: string) => {
    await writeFile(`${path}.new`, text)
    await rename(`${path}.new`, path)
  },
  'written over': async (path: string, text: string) => writeFile(path, text),
}

for (const [way, upgrade] of Object.entries(UPGRADES))
  test(`a network process started after an upgrade (${way}) is of the executor's release, or does not start`, async (t) => {
    const dir = await tempDir(t)
    const { runtime, program } = await installIn(dir, null)
    const daemon = spawn(runtime, [program, ...words(dir)], { stdio: ['ignore', 'pipe', 'pipe'], env })
    t.after(() => daemon.kill('SIGKILL'))
    let said = ''
    daemon.stderr.setEncoding('utf8').on('data', (text: string) => (said += text))
    const exited = once(daemon, 'exit')
    await Promise.race([once(daemon.stdout, 'data'), exited])
    const half = async (): Promise<number> => Number((await readFile(join(dir, 'data', 'network.pid'), 'utf8')).split(' ')[0])
    const first = await half()
    await upgrade(join(dir, 'closed', 'x0xd-network.mjs'), `process.stderr.write('of another release\\n'); process.exit(9)`)
    process.kill(first, 'SIGKILL')
    if (way === 'another file') {
      await until('the next half', async () => (await half()) !== first)
      const health = async (): Promise<boolean> => {
        const where = (await readFile(join(dir, 'data', 'api.port'), 'utf8')).trim()
        return (await fetch(`http://${where}/health`)).ok
      }
      await until('its API', async () => health().catch(() => false))
    } else await until('why there is none', () => said.includes('has changed since x0xd was started'))
    assert.doesNotMatch(said, /of another release/)
    daemon.kill('SIGTERM')
    assert.deepEqual(await exited, [0, null])
  })

/** Looks for a terminal among its descriptors, then writes more than the log accepts, and an escape sequence. */
const CAPTURED = `import fs from 'node:fs'
import tty from 'node:tty'
const outcome = {}
for (let fd = 0; fd < 64; fd += 1) if (tty.isatty(fd)) outcome['fd ' + fd] = 'a terminal'
try { fs.openSync('/dev/tty', 'r'); outcome.tty = 'opened' } catch (error) { outcome.tty = error.code }
const say = (text) => { for (let rest = Buffer.from(text); rest.length > 0; ) rest = rest.subarray(fs.writeSync(2, rest)) }
say(JSON.stringify({ name: 'x0xd', level: 'warn', outcome }) + '\\n')
say('\\x1b]0;owned\\x07\\u009b31m\\n')
say('y'.repeat(1_000_000) + '\\n')
for (let n = 0; n < 20_000; n += 1) say('line ' + n + '\\n')
await new Promise((resolve) => setTimeout(resolve, 300))
process.exit(9)
`

const onTerminal = async (t: TestContext, file: string, argv: readonly string[]): Promise<string> => {
  const line = [file, ...argv].map((word) => `'${word}'`).join(' ')
  const child = spawn('script', ['-qec', line, '/dev/null'], { stdio: ['pipe', 'pipe', 'inherit'], env })
  t.after(() => child.kill('SIGKILL'))
  child.stdin.write('my-password\n')
  const parts: Buffer[] = []
  child.stdout.on('data', (part: Buffer) => parts.push(part))
  await once(child, 'close')
  // The terminal echoes the input, even in the middle of a line.
  return Buffer.concat(parts).toString().replace('my-password\r\n', '')
}

test(
  'a captured network process cannot reach the terminal, and its log lines arrive cut, limited and escaped',
  { skip: hasScript ? false : 'needs script(1)' },
  async (t) => {
    const dir = await tempDir(t)
    const { runtime, program } = await installIn(dir, CAPTURED)
    const shown = await onTerminal(t, runtime, [program, ...words(dir)])
    const lines = shown.split('\r\n').filter((line) => line.startsWith('{'))
    const said = lines.map((line) => JSON.parse(line) as { name: string; pid: number; msg?: string; outcome?: object })
    assert.deepEqual(said.find(({ outcome }) => outcome !== undefined)?.outcome, { tty: 'ERR_ACCESS_DENIED' }, shown.slice(0, 2_000))
    const its = said.filter(({ name }) => name === 'x0xd-network')
    // The burst plus the refill of a second or two, out of 20,000 lines.
    assert.ok(its.length > RELAYED_LINES_BURST / 2 && its.length < 2 * RELAYED_LINES_BURST, `${its.length} lines`)
    assert.ok(its.some(({ msg }) => msg === '\x1b]0;owned\x07\u009b31m'))
    assert.equal(its.find(({ msg }) => msg?.startsWith('yyy'))?.msg?.length, RELAYED_LINE_BYTES)
    // oxlint-disable-next-line no-control-regex -- the test checks that there are no such characters
    assert.doesNotMatch(lines.join(''), /[\x00-\x1f\x7f-\x9f]/)
    assert.ok(!said.some(({ name, outcome }) => name === 'x0xd' && outcome !== undefined), 'it cannot speak as the executor')
  },
)

test('the daemon continues if the reader of its ready line closes the pipe', async (t) => {
  const dir = await tempDir(t)
  const daemon = spawn(process.execPath, [dist('x0xd.mjs'), ...words(dir)], { stdio: ['ignore', 'pipe', 'pipe'], env })
  t.after(() => daemon.kill('SIGKILL'))
  const exited = once(daemon, 'exit')
  daemon.stdout.destroy()
  daemon.stderr.destroy()
  await until('its network half listens', () => existsSync(join(dir, 'data', 'api.port')))
  daemon.kill('SIGTERM')
  assert.deepEqual(await exited, [0, null])
})
