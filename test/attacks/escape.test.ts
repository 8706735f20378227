import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import type { Confinement } from '../../src/policy/mesh/confinement.ts'
import { SCRUBBED_PATH } from '../../src/policy/environment.ts'
import { findCgroupPlaces } from '../../src/process/cgroup-tree.ts'
import { birthOf, isLiving } from '../../src/base/process-info.ts'
import { send } from '../../src/process/signals.ts'
import { KILL_GRACE_MS } from '../../src/protocol/limits/wire.ts'
import { hasBwrap, isRoot, needs, openCells, openToAll, startConfined } from '../support/containment.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { MeshOfDaemons } from '../support/mesh-of-daemons.ts'
import { hasProc, isAlive, script, start, temporaryDirectory, until } from '../support/processes.ts'

// Attacks of an allowed program on the host, on the daemon, or on the end of its run. Attacks that other files try are listed in
// test/attacks.md.

const LIMIT = { timeout: 120_000 }
const linuxOnly = { ...LIMIT, ...(hasProc ? {} : { skip: 'needs /proc' }) }
const MODES = ['group', 'cgroup', 'pid_namespace'] as const
const needsOf: Record<(typeof MODES)[number], { skip?: string }> = { group: {}, cgroup: needs.cgroup, pid_namespace: needs.bwrap }
const HELD = ['cgroup', 'pid_namespace'] as const
/** An account that runs no other process on a host, so that a signal to all its processes reaches only those of the test. */
const GAMES = isRoot && /^games:/m.test(readFileSync('/etc/passwd', 'utf8')) ? 'games' : null
const needsGames = GAMES === null ? { skip: 'needs root and the user games' } : {}

/** Runs a subtest for each execution containment. */
const inEach =
  <M extends (typeof MODES)[number]>(modes: readonly M[], attempt: (t: TestContext, mode: M) => Promise<void>) =>
  async (t: TestContext): Promise<void> => {
    for (const mode of modes) await t.test(mode, needsOf[mode], async (one) => attempt(one, mode))
  }

const outputOf = async (
  t: TestContext,
  text: string,
  options: { choice: (typeof MODES)[number]; confinement?: Partial<Confinement>; stdin?: boolean },
): Promise<{ stdout: string; stderr: string; code: number | null; signal: number | null }> => {
  const program = await openToAll(t, await script(t, text))
  const { process: running, output } = await startConfined(t, [program], options)
  const { code, signal } = await running.ended
  const [stdout, stderr] = [output.stdout, output.stderr].map((chunks) => Buffer.concat(chunks).toString())
  return { stdout: stdout ?? '', stderr: stderr ?? '', code, signal }
}

/** Wrappers that exec the program. Each of them could leave a descriptor open or a setting changed. */
const WRAPPED: Partial<Confinement>[] = [
  { nice: 3, max_cpu_secs: 60 },
  ...(hasBwrap ? [{ read_only: true, no_network: true }] : []),
  ...(GAMES !== null ? [{ run_as: GAMES }] : []),
]

test(
  'a child inherits no descriptor of the daemon or of the process that started the daemon',
  linuxOnly,
  inEach(MODES, async (t, mode) => {
    for (const confinement of [{}, ...WRAPPED]) {
      const { stdout } = await outputOf(t, 'exec ls /proc/self/fd', { choice: mode, confinement })
      assert.equal(stdout, '0\n1\n2\n3\n', `${JSON.stringify(confinement)}: ls opens one`)
      const tty = await outputOf(t, '( : < /dev/tty ) 2>/dev/null && echo a terminal; exit 0', { choice: mode, confinement })
      assert.equal(tty.stdout, '')
    }
    const program = fileURLToPath(new URL('../support/fd-program.ts', import.meta.url))
    const careless = `exec 77</etc/passwd 9>&1; exec "${process.execPath}" "${program}" ${mode} ls /proc/self/fd`
    assert.equal(spawnSync('/bin/bash', ['--norc', '-c', careless], { encoding: 'utf8' }).stdout, '0\n1\n2\n3\n')
  }),
)

test(
  'signals that the daemon ignores are not ignored or blocked in its children',
  linuxOnly,
  inEach(MODES, async (_t, mode) => {
    const program = fileURLToPath(new URL('../support/fd-program.ts', import.meta.url))
    const deaf = `trap '' TERM INT HUP QUIT PIPE USR1; exec "${process.execPath}" "${program}" ${mode} cat /proc/self/status`
    const { stdout } = spawnSync('/bin/bash', ['--norc', '-c', deaf], { encoding: 'utf8' })
    const masks = [...stdout.matchAll(/^Sig(?:Ign|Blk):\s*([0-9a-f]+)$/gm)].map(([, mask]) => BigInt(`0x${mask}`))
    assert.equal(masks.length, 2, stdout)
    // SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGPIPE and SIGTERM have the bits n - 1.
    for (const number of [1, 2, 3, 10, 13, 15]) for (const mask of masks) assert.equal(mask & (1n << BigInt(number - 1)), 0n, `${number}`)
  }),
)

/** Variables that a shell of an administrator or a service manager could set. All of them point at `dir`. */
const hostile = async (dir: string): Promise<Readonly<Record<string, string>>> => {
  const bin = join(dir, 'bin')
  await mkdir(bin, { mode: 0o777 })
  for (const name of ['ls', 'env', 'sh', 'grep', 'bwrap', 'nice', 'prlimit', 'node', 'sleep'])
    await writeFile(join(bin, name), `#!/bin/sh\necho ${name} >> ${join(dir, 'shadowed')}\n`, { mode: 0o755 })
  await writeFile(join(dir, 'rc'), `echo sourced >> ${join(dir, 'sourced')}\n`)
  await writeFile(
    join(dir, 'preload.cjs'),
    `require('node:fs').appendFileSync(${JSON.stringify(join(dir, 'loaded'))}, process.argv[1] + '\\n')`,
  )
  return {
    PATH: `${bin}:${process.env['PATH'] ?? ''}`,
    LD_LIBRARY_PATH: dir,
    LD_AUDIT: join(dir, 'audit.so'),
    NODE_OPTIONS: `--require ${join(dir, 'preload.cjs')}`,
    NODE_PATH: dir,
    BASH_ENV: join(dir, 'rc'),
    ENV: join(dir, 'rc'),
    'BASH_FUNC_ls%%': `() { echo shadowed >> ${join(dir, 'shadowed')}; }`,
    SHELLOPTS: 'xtrace',
    PS4: `$(echo sourced >> ${join(dir, 'sourced')})`,
    IFS: '/',
    GIT_SSH_COMMAND: join(dir, 'rc'),
    GIT_CONFIG_COUNT: '1',
    GIT_DIR: dir,
    PYTHONSTARTUP: join(dir, 'rc'),
    PERL5OPT: '-Mevil',
    TMPDIR: dir,
    X0X_SECRET: 'of the daemon',
  }
}

/** Sets these variables for all processes that start later, until the test ends. */
const pollute = (t: TestContext, environment: Readonly<Record<string, string>>): void => {
  const before = { ...process.env }
  Object.assign(process.env, environment)
  t.after(() => {
    for (const key of Object.keys(environment)) if (before[key] === undefined) delete process.env[key]
    Object.assign(process.env, before)
  })
}

const LOOK = `env | sort; echo ---; ls / > /dev/null; /bin/bash -c 'ls / > /dev/null'; '${process.execPath}' -e 0; sleep 0; exec grep -c . /proc/self/environ`
const namesIn = (stdout: string): string[] =>
  stdout
    .slice(0, stdout.indexOf('---'))
    .trim()
    .split('\n')
    .map((line) => line.slice(0, line.indexOf('=')))
    // A shell sets these variables itself. The containment by process group sets the last one.
    .filter((name) => !['PWD', 'OLDPWD', 'SHLVL', '_', 'X0X_RUN'].includes(name))

test(
  'LD_*, NODE_OPTIONS, BASH_ENV, GIT_* and PATH of the daemon have no effect on a run',
  linuxOnly,
  inEach(MODES, async (t, mode) => {
    const dir = await temporaryDirectory(t)
    const program = await script(t, LOOK)
    const named = await openCells(t, mode)
    pollute(t, await hostile(dir))
    for (const confinement of [{}, ...WRAPPED.filter(({ run_as }) => run_as === undefined)]) {
      const trees = Object.keys(confinement).length === 0 ? named : await openCells(t, mode, confinement)
      const { process: running, output } = await start(t, [program], { trees, confinement })
      await running.ended
      const stdout = Buffer.concat(output.stdout).toString()
      assert.deepEqual(namesIn(stdout), ['HOME', 'LANG', 'LC_ALL', 'PATH'], JSON.stringify(confinement))
      assert.ok(stdout.includes(`PATH=${SCRUBBED_PATH}\n`))
      assert.equal(Buffer.concat(output.stderr).toString(), '')
    }
    const byName = await start(t, ['env'], { trees: named })
    await byName.process.ended
    assert.match(Buffer.concat(byName.output.stdout).toString(), /^LANG=C\.UTF-8$/m, 'a name is not looked for in that PATH')
    assert.deepEqual(
      ['shadowed', 'sourced', 'loaded'].filter((name) => existsSync(join(dir, name))),
      [],
    )
  }),
)

test('NODE_OPTIONS, BASH_ENV and PATH of x0xd do not reach its network process, cleanup process or runs', linuxOnly, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const dir = join(mesh.root, 'evil')
  await mkdir(dir)
  const environment = await hostile(dir)
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  const look = await mesh.program('look', LOOK)
  await alice.start()
  await bob.start()
  await bob.writeAcl([{ agent: alice, commands: [[look], ['env']] }])
  await Promise.all([alice.meet(bob, 'known'), bob.meet(alice, 'trusted')])
  await bob.stop()
  const { LD_LIBRARY_PATH: _library, TMPDIR: _tmp, ...daemons } = environment
  for (const [key, value] of Object.entries(daemons)) process.env[key] = value
  try {
    await bob.start()
  } finally {
    for (const key of Object.keys(daemons)) delete process.env[key]
    process.env['PATH'] = environment['PATH']!.slice(environment['PATH']!.indexOf(':') + 1)
  }
  assert.match(readFileSync(`/proc/${bob.pid}/environ`, 'latin1'), /NODE_OPTIONS/, 'the daemon itself has them')
  const { stdout, stderr, status } = await alice.exec(bob, [look])
  assert.deepEqual([status, stderr], [0, ''])
  assert.deepEqual(namesIn(stdout.toString()), ['HOME', 'LANG', 'LC_ALL', 'PATH'])
  assert.equal((await alice.exec(bob, ['env'])).status, 0)
  assert.deepEqual(
    ['shadowed', 'sourced'].filter((name) => existsSync(join(dir, name))),
    [],
  )
  // Only the starts of the daemon and of the CLI by this test have loaded it.
  const loaded = (await readFile(join(dir, 'loaded'), 'utf8')).trim().split('\n')
  assert.ok(loaded.some((path) => path.endsWith('/x0xd.mjs')))
  assert.deepEqual(
    loaded.filter((path) => !/\/(x0xd\.mjs|x0x\.cjs)$/.test(path)),
    [],
  )
  for (const pid of childPids(bob.pid)) assert.doesNotMatch(readFileSync(`/proc/${pid}/environ`, 'latin1'), /NODE_OPTIONS|BASH_ENV|evil/)
})

const childPids = (pid: number): string[] =>
  readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean),
  )

test('a process that reuses a process ID is not mistaken for the earlier process', linuxOnly, async (t) => {
  const { process: other } = await start(t, ['sleep', '1000'])
  const born = birthOf(other.pid)!
  assert.ok(isLiving({ pid: other.pid, born }))
  assert.equal(isLiving({ pid: other.pid, born: String(Number(born) - 1) }), false)
  for (const everybody of [0, 1, -1, Number.NaN, 1.5]) assert.throws(() => send(everybody, 'SIGKILL'), RangeError)
  other.kill()
  await other.ended
  assert.equal(isLiving({ pid: other.pid, born }), false)
  assert.equal(send(2 ** 22 + 12_345, 'SIGKILL'), false)
})

test('kill(-1) in a PID namespace does not reach processes outside it', { ...linuxOnly, ...needs.bwrap }, async (t) => {
  const { process: outside } = await start(t, ['sleep', '1000'])
  // The program signals only if it is certainly in a PID namespace.
  const text = `[ "$(cat /proc/1/comm)" = bwrap ] && [ ! -e /proc/${process.pid}/comm ] || exit 9; sleep 1000 & kill -KILL -1; echo alone`
  const { stdout, code } = await outputOf(t, text, { choice: 'pid_namespace' })
  assert.deepEqual([stdout, code], ['alone\n', 0])
  assert.ok(isAlive(outside.pid))
})

test(
  'kill(-1) by a program of another user reaches neither the daemon nor a process outside the run',
  { ...linuxOnly, ...needsGames },
  inEach(['group', 'cgroup'] as const, async (t, mode) => {
    const { process: outside } = await start(t, ['sleep', '1000'])
    const text = `[ "$(id -u)" != 0 ] || exit 9; kill -KILL -1; kill -KILL ${process.pid} ${outside.pid} 2>/dev/null && exit 8; echo alone`
    const { stdout, code } = await outputOf(t, text, { choice: mode, confinement: { run_as: GAMES } })
    assert.deepEqual([stdout, code], ['alone\n', 0])
    assert.ok(isAlive(outside.pid))
  }),
)

test(
  'kill(0) ends only the program and its own process group',
  linuxOnly,
  inEach(MODES, async (t, mode) => {
    const { process: outside } = await start(t, ['sleep', '1000'])
    const { code, signal } = await outputOf(t, 'sleep 1000 & kill -KILL 0', { choice: mode })
    assert.ok(signal === 9 || code === 137, `${code} ${signal}`)
    assert.ok(isAlive(outside.pid))
  }),
)

test(
  'a descendant that keeps the output open does not delay the end of its run',
  linuxOnly,
  inEach(HELD, async (t, mode) => {
    const program = await script(
      t,
      `( setsid sh -c "trap '' TERM HUP; echo held; while :; do sleep 0.1; done" & ) & wait; sleep 0.2; exit 4`,
    )
    const clock = new ManualClock()
    const started = await startConfined(t, [program], { choice: mode, clock })
    const end = await started.process.ended
    // The clock did not advance for the drain, so the process that held the pipe is dead.
    const warnings = mode === 'cgroup' ? ['descendants_ended'] : []
    const kinds = started.warnings.map(({ kind }) => kind)
    assert.deepEqual([end.code, kinds, clock.monotonic()], [4, warnings, new ManualClock().monotonic()])
  }),
)

test(
  'a program that closes its output and ignores SIGTERM is killed after the grace period',
  linuxOnly,
  inEach(MODES, async (t, mode) => {
    const clock = new ManualClock()
    const program = await script(t, "trap '' TERM; echo ready; exec >&- 2>&- <&-; while :; do sleep 0.05; done")
    const started = await startConfined(t, [program], { choice: mode, clock })
    await started.printed('ready')
    started.process.terminate()
    assert.ok(isAlive(started.process.pid))
    await clock.advance(KILL_GRACE_MS)
    assert.equal((await started.process.ended).signal, 9)
    assert.equal(isAlive(started.process.pid), false)
  }),
)

test(
  'a program without the privilege to leave its control group stays in it and is ended',
  { ...linuxOnly, ...needs.cgroup, ...needsGames },
  async (t) => {
    const [place] = findCgroupPlaces().filter(({ version }) => version === 2)
    assert.ok(place)
    const files = [place.mount, place.own].flatMap((group) => [`${group}/cgroup.procs`, `${group}/cgroup.threads`]).join(' ')
    const text = `before=$(cat /proc/self/cgroup); for file in ${files}; do echo $$ > $file; done 2>/dev/null
mkdir ${place.own}/mine 2>/dev/null && echo made; [ "$before" = "$(cat /proc/self/cgroup)" ] && echo stays; setsid sleep 1000 >/dev/null 2>&1 & echo $!`
    const { stdout } = await outputOf(t, text, { choice: 'cgroup', confinement: { run_as: GAMES } })
    const [says, pid] = stdout.trim().split('\n')
    assert.equal(says, 'stays')
    assert.equal(isAlive(Number(pid)), false)
  },
)

/** Attempts of a debugger, of a core dump and through /proc against the process `pid`. The script prints each one that succeeds. */
const spying = (pid: number): string => `
for file in mem environ maps fd/0 fd exe auxv io; do ( [ -d /proc/${pid}/$file ] && ls /proc/${pid}/$file >/dev/null || head -c 1 /proc/${pid}/$file >/dev/null ) 2>/dev/null && echo $file; done
( : > /proc/${pid}/mem ) 2>/dev/null && echo write
( : > /proc/${pid}/exe ) 2>/dev/null && echo swap
kill -ABRT ${pid} 2>/dev/null && echo core
true`

test(
  'a program of another user cannot read, write or dump the daemon through /proc or a signal',
  { ...linuxOnly, ...needsGames },
  async (t) => {
    for (const mode of MODES.filter((one) => needsOf[one].skip === undefined)) {
      const { stdout } = await outputOf(t, spying(process.pid), { choice: mode, confinement: { run_as: GAMES } })
      assert.equal(stdout, '', mode)
    }
  },
)

test('a program of the same user in a PID namespace cannot see the daemon', { ...linuxOnly, ...needs.bwrap }, async (t) => {
  const { stdout } = await outputOf(t, spying(process.pid), { choice: 'pid_namespace' })
  assert.equal(stdout, '')
})

test('a program cannot write to /proc/self/exe or to the executable of the daemon', linuxOnly, async (t) => {
  const { stdout } = await outputOf(
    t,
    `( : > /proc/${process.pid}/exe ) 2>/dev/null && echo swap; ( : >> /proc/self/exe ) 2>/dev/null && echo own; true`,
    { choice: 'group' },
  )
  assert.equal(stdout, '')
  assert.equal(spawnSync(process.execPath, ['--version'], { encoding: 'utf8' }).stdout, `${process.version}\n`)
})

test('a program that makes its own file writable for others is refused at its next run', linuxOnly, async (t) => {
  const path = await script(t, 'echo first; chmod 777 "$0"')
  const first = await start(t, [path])
  await first.process.ended
  assert.equal(Buffer.concat(first.output.stdout).toString(), 'first\n')
  await assert.rejects(start(t, [path]), 'others may write it now')
})

test('a run that is killed as it starts leaves no process behind', { ...linuxOnly, ...needs.cgroup }, async (t) => {
  const mark = join(await temporaryDirectory(t), 'mark')
  await appendFile(mark, '')
  for (let round = 0; round < 10; round++) {
    const program = await script(t, `setsid sh -c "echo $$ >> ${mark}; exec sleep 1000" >/dev/null 2>&1 & wait`)
    const started = await startConfined(t, [program], { choice: 'cgroup' })
    started.process.kill()
    await started.process.ended
  }
  const pids = (await readFile(mark, 'utf8')).split('\n').filter(Boolean).map(Number)
  await until(() => pids.every((pid) => !isAlive(pid)))
})
