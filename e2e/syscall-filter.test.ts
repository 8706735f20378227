import assert from 'node:assert/strict'
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { NETWORK_RIGHTS } from '../src/supervision/network-supervisor.ts'
import { MeshOfDaemons, startCli, until, type CliResult } from '../test/support/mesh-of-daemons.ts'
import { callsIn, straceNeeds, traced } from '../test/support/strace.ts'
import { tempDir } from '../test/support/temp-dir.ts'

// What each half in a unit of its own asks of the kernel is written down beside the filter of its unit, and held against both.

const ROOT = join(import.meta.dirname, '..')
const DEPLOY = join(ROOT, 'deploy')
const HALVES = ['x0xd-executor', 'x0xd-network'] as const
type Half = (typeof HALVES)[number]

/** WRITE_SYSCALLS=1 adds to the lists what was seen and does not stand there. */
const WRITES = process.env['WRITE_SYSCALLS'] === '1'

/** What libc and the runtime call besides where the moment wants it: threads that wait for each other, memory that moves, reads and writes that come together. */
const OF_THE_MOMENT =
  'getrusage membarrier mremap nanosleep ppoll pwrite64 pwritev readv recvmsg restart_syscall rt_sigreturn sched_yield sendmsg tgkill'.split(
    ' ',
  )

const listFile = (half: Half): string => join(DEPLOY, `${half}.syscalls`)
const linesOf = (text: string): string[] => text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
const listed = async (half: Half): Promise<string[]> => linesOf(await readFile(listFile(half), 'utf8'))

const analyze = (...groups: readonly string[]) => spawnSync('systemd-analyze', ['syscall-filter', ...groups], { encoding: 'utf8' })

/** All calls of these groups and of those within them; by the systemd that is here. */
const callsOf = (groups: readonly string[]): string[] =>
  groups.flatMap((group) => {
    const words = analyze(group)
      .stdout.split('\n')
      .slice(1)
      .map((line) => line.trim())
      .filter((word) => /^@?[a-z]/.test(word))
    return [...words.filter((word) => !word.startsWith('@')), ...callsOf(words.filter((word) => word.startsWith('@')))]
  })

test(
  'what a half calls is let through by the filter of its unit',
  { skip: analyze().status === 0 ? false : 'needs systemd-analyze' },
  async () => {
    for (const half of HALVES) {
      const unit = await readFile(join(DEPLOY, `${half}.service`), 'utf8')
      const filters = [...unit.matchAll(/^SystemCallFilter=(~?)(.*)$/gm)]
      const groups = (negative: string): string[] => filters.flatMap(([, sign, text = '']) => (sign === negative ? text.split(' ') : []))
      const letThrough = new Set(callsOf(groups('')))
      for (const call of callsOf(groups('~'))) letThrough.delete(call)
      assert.ok(letThrough.size > 100, half)
      const refused = [...(await listed(half)), ...OF_THE_MOMENT].filter((call) => !letThrough.has(call))
      assert.deepEqual(refused, [], half)
    }
  },
)

const needs = process.arch === 'x64' ? straceNeeds() : 'the names of the calls of x64'

/** Two halves on a socket, as two units run them, and a daemon of another machine that has one run something. */
const lifeOfBoth = async (t: TestContext): Promise<Record<Half, string>> => {
  const root = await tempDir(t)
  const dir = join(root, 'data')
  await mkdir(dir, { mode: 0o700 })
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const alice = mesh.add('alice')
  await alice.start()
  const who = `agent_id = "${alice.agentId}"\nmachine_id = "${alice.machineId}"`
  const acl = `[exec]\nenabled = true\naudit_log_path = "${join(dir, 'exec.log')}"\n[[exec.allow]]\n${who}\n[[exec.allow.commands]]\nargv = ["cat"]\n`
  await writeFile(join(dir, 'exec-acl.toml'), acl, { mode: 0o600 })
  await writeFile(join(dir, 'config.toml'), 'mdns = false\napi_port = 0\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n', { mode: 0o600 })
  const socket = join(root, 'executor.sock')
  const trace = (half: Half): string => join(root, half)
  const start = (half: Half, flags: readonly string[], words: readonly string[]): { child: ChildProcess; ended: Promise<unknown> } => {
    const [file = '', ...argv] = traced(trace(half), [
      process.execPath,
      ...flags,
      join(ROOT, 'dist', `${half.replace('-executor', '')}.mjs`),
      ...words,
    ])
    const child = spawn(file, argv, { stdio: ['ignore', 'pipe', 'inherit'] })
    const ended = once(child, 'exit')
    t.after(async () => {
      child.kill('SIGKILL')
      await ended
    })
    return { child, ended }
  }
  const executor = start('x0xd-executor', [], ['--data-dir', dir, '--exec-acl', join(dir, 'exec-acl.toml'), '--executor-socket', socket])
  await once(executor.child.stdout!, 'data')
  const rights = [...NETWORK_RIGHTS, '--allow-fs-read=*', '--allow-fs-write=*']
  const network = start('x0xd-network', rights, ['--executor', socket, '--api-socket', join(dir, 'api.sock')])
  const bob = async (...argv: readonly string[]): Promise<CliResult> => startCli(['--data-dir', dir, ...argv]).finished
  const card = await until('the API answers', async () => {
    const { status, stdout } = await bob('card')
    return status === 0 && String(stdout).trim()
  })
  await alice.take(card, 'bob', 'known')
  assert.equal((await bob('contacts', 'import', (await alice.ok('card')).trim(), '--as', 'alice')).status, 0)
  assert.equal((await bob('contacts', 'trust', 'alice', 'trusted')).status, 0)
  const { status, stderr } = await alice.cli(['exec', 'bob', '--stdin-file', '-', '--', 'cat'], { stdin: Buffer.alloc(100_000) })
  assert.equal(status, 0, stderr)
  for (const argv of [['diagnostics', 'exec'], ['peers'], ['exec', 'alice', '--', 'true']]) await bob(...argv)
  // To strace itself: it passes that on.
  const executorPid = Number((await readFile(join(dir, 'x0xd.pid'), 'utf8')).split(' ')[0])
  process.kill(executorPid, 'SIGTERM')
  await Promise.all([executor.ended, network.ended])
  return {
    'x0xd-executor': await readFile(trace('x0xd-executor'), 'latin1'),
    'x0xd-network': await readFile(trace('x0xd-network'), 'latin1'),
  }
}

test(
  'whatever a half calls stands in the list beside its unit',
  { skip: needs === null ? false : `needs ${needs}`, timeout: 120_000 },
  async (t) => {
    const traces = await lifeOfBoth(t)
    for (const half of HALVES) {
      const calls = callsIn(traces[half])
      assert.ok(calls.has('epoll_ctl') && calls.has('exit_group'), half)
      const before = await listed(half).catch((): string[] => [])
      const missing = [...calls].filter((call) => !before.includes(call) && !OF_THE_MOMENT.includes(call))
      if (WRITES) {
        const head = `# What ${half} was seen to call, on x64, from its first instruction to its last; the filter of ${half}.service lets all of it through.\n# Held against both by e2e/syscall-filter.test.ts.\n`
        await writeFile(listFile(half), `${head}${[...before, ...missing].toSorted().join('\n')}\n`)
      } else assert.deepEqual(missing, [], `${half}: WRITE_SYSCALLS=1 npm test -- e2e/syscall-filter.test.ts`)
    }
  },
)
