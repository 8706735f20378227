import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { UNCONFINED } from '../../src/policy/mesh/confinement.ts'
import { ProcessTrees } from '../../src/process/process-trees.ts'
import { spawnPermitted } from '../../src/process/spawn.ts'
import { KILL_GRACE_MS } from '../../src/protocol/limits/wire.ts'
import { hasBwrap, needs, openCells, startConfined } from '../support/containment.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { killMarked, marked } from '../support/marked.ts'
import { joiningLate, needsPerl, orphanedGroups } from '../support/perl-programs.ts'
import { permitFor } from '../support/permit.ts'
import { isAlive, script, silent, startGuardian, temporaryDirectory, type StartedProcess } from '../support/processes.ts'

const SIGTERM = 15
const SIGKILL = 9
const STRONG = ['cgroup', 'pid_namespace'] as const
const needsOf = { cgroup: needs.cgroup, pid_namespace: needs.bwrap, group: {} }

/**
 * A program whose grandchild has lost its parents, leads its own session, and ignores SIGTERM.
 * It sets a mark in its environment, so that the test finds it in /proc in any PID namespace.
 */
const escaping = async (t: TestContext, then: string): Promise<{ path: string; mark: string }> => {
  const mark = `x0x-escape-${process.pid}-${Math.random().toString(16).slice(2)}`
  const inner = "trap '' TERM INT HUP; echo out; exec >/dev/null 2>&1 </dev/null; while :; do sleep 0.05; done"
  const path = await script(t, `( MARK=${mark} setsid sh -c "${inner}" & ) & wait; ${then}`)
  return { path, mark }
}

const kinds = ({ warnings }: StartedProcess): string[] => warnings.map(({ kind }) => kind)

/** Survivors without a warning. A busy machine may find only some processes within the allowed second. */
const silentSurvivors = (mark: string, started: StartedProcess): number[] =>
  kinds(started).includes('descendants_may_survive') ? [] : marked(mark)

type Strong = (typeof STRONG)[number]

const diesWithTerminated = (choice: Strong) => async (t: TestContext) => {
  const { path, mark } = await escaping(t, 'exec sleep 1000')
  killMarked(t, mark)
  const started = await startConfined(t, [path], { choice })
  await started.printed('out')
  assert.notDeepEqual(marked(mark), [])
  started.process.terminate()
  const end = await started.process.ended
  assert.deepEqual(marked(mark), [])
  assert.deepEqual([started.process.containment, end.signal, kinds(started)], [choice, SIGTERM, []])
}

const diesWithEnded = (choice: Strong) => async (t: TestContext) => {
  const { path, mark } = await escaping(t, 'sleep 0.2; exit 3')
  killMarked(t, mark)
  const started = await startConfined(t, [path], { choice })
  const end = await started.process.ended
  assert.deepEqual(marked(mark), [])
  const told = choice === 'pid_namespace' ? [] : ['descendants_ended']
  assert.deepEqual([end.code, end.signal, kinds(started)], [3, null, told])
}

test('with cgroup, a terminated run takes a daemonized grandchild that ignores SIGTERM with it', needs.cgroup, diesWithTerminated('cgroup'))
test(
  'with pid_namespace, a terminated run takes a daemonized grandchild that ignores SIGTERM with it',
  needs.bwrap,
  diesWithTerminated('pid_namespace'),
)
test('with cgroup, a program that ends by itself takes such a grandchild with it', needs.cgroup, diesWithEnded('cgroup'))
test('with pid_namespace, a program that ends by itself takes such a grandchild with it', needs.bwrap, diesWithEnded('pid_namespace'))

for (const choice of STRONG) {
  test(`with ${choice}, SIGTERM reaches a descendant in another session, which may end in its own way`, needsOf[choice], async (t) => {
    const inner = "trap 'echo bye; exit 0' TERM; echo out; while :; do sleep 0.05; done"
    const path = await script(t, `trap 'wait; exit 5' TERM; setsid sh -c "${inner}" & wait`)
    const started = await startConfined(t, [path], { choice })
    await started.printed('out')
    started.process.terminate()
    const end = await started.process.ended
    assert.match(Buffer.concat(started.output.stdout).toString(), /bye/)
    assert.deepEqual([end.code, end.signal], [5, null])
  })

  test(`with ${choice}, a program that ignores SIGTERM gets SIGKILL exactly after the grace period`, needsOf[choice], async (t) => {
    const clock = new ManualClock()
    const path = await script(t, "trap '' TERM; echo out; while :; do sleep 0.01; done")
    const started = await startConfined(t, [path], { choice, clock })
    await started.printed('out')
    started.process.terminate()
    await clock.advance(KILL_GRACE_MS - 1)
    assert.ok(isAlive(started.process.pid))
    await clock.advance(1)
    assert.deepEqual([(await started.process.ended).signal, kinds(started)], [SIGKILL, []])
  })

  test(`with ${choice}, exit codes, output, arguments and standard input pass unchanged`, needsOf[choice], async (t) => {
    const path = await script(t, 'for a in "$@"; do printf "<%s>" "$a"; done; cat; echo err >&2; exit 7')
    const started = await startConfined(t, [path, 'a b', '', '--', "it's"], { choice, stdin: true })
    await started.process.stdin!.write(Buffer.from('in'))
    started.process.stdin!.end()
    const end = await started.process.ended
    assert.equal(Buffer.concat(started.output.stdout).toString(), "<a b><><--><it's>in")
    assert.equal(Buffer.concat(started.output.stderr).toString(), 'err\n')
    assert.deepEqual([end.code, end.signal], [7, null])
  })

  test(
    `with ${choice}, a program has standard descriptors, the scrubbed environment, its directory and no terminal`,
    needsOf[choice],
    async (t) => {
      const cwd = await temporaryDirectory(t)
      const path = await script(t, 'ls /proc/self/fd | tr "\\n" " "; pwd; env | cut -d= -f1 | sort | tr "\\n" " "; tty')
      const started = await startConfined(t, [path], { choice, cwd })
      await started.process.ended
      const text = Buffer.concat(started.output.stdout).toString()
      assert.equal(text, `0 1 2 3 ${cwd}\nHOME LANG LC_ALL PATH PWD not a tty\n`)
    },
  )

  test(`with ${choice}, a program that cannot be executed is a failure to start, never an exit`, needsOf[choice], async (t) => {
    const trees = await openCells(t, choice)
    const directory = await temporaryDirectory(t)
    for (const [name, text] of [
      ['no-interpreter', '#!/nowhere/interpreter\n'],
      ['no-format', 'echo this is no program\n'],
    ] as const) {
      const path = join(directory, name)
      await writeFile(path, text)
      await chmod(path, 0o755)
      const result = await spawnPermitted(permitFor([path]), { trees, cleanup: startGuardian(t) }, { stdin: false })
      assert.equal(result.kind, 'spawn_failed', name)
    }
  })
}

for (const [title, terminates] of [
  ['with group, a terminated run takes a daemonized grandchild that ignores SIGTERM with it', true],
  ['with group, a program that ends by itself takes such a grandchild with it', false],
] as const)
  test(title, async (t) => {
    const { path, mark } = await escaping(t, terminates ? 'exec sleep 1000' : 'sleep 0.3')
    killMarked(t, mark)
    const started = await startConfined(t, [path], { choice: 'group' })
    await started.printed('out')
    assert.notDeepEqual(marked(mark), [])
    if (terminates) started.process.terminate()
    const end = await started.process.ended
    assert.deepEqual(marked(mark), [])
    assert.deepEqual(
      [started.process.containment, end.signal, kinds(started)],
      ['group', terminates ? SIGTERM : null, terminates ? [] : ['descendants_ended']],
    )
  })

test('with group, a process that keeps forking into new sessions is caught when the program ends', async (t) => {
  const mark = `x0x-forks-${process.pid}`
  const path = await script(
    t,
    `MARK=${mark} setsid sh -c 'trap "" TERM; echo out; exec >/dev/null 2>&1; again() { setsid sh -c "sleep 1000" & sleep 0.01; again; }; again' & sleep 1`,
  )
  killMarked(t, mark)
  const started = await startConfined(t, [path], { choice: 'group' })
  await started.printed('out')
  await started.process.ended
  assert.deepEqual([marked(mark), kinds(started)], [[], ['descendants_ended']])
})

test('with group, a process that keeps forking and already received SIGTERM is caught', async (t) => {
  const mark = `x0x-told-${process.pid}`
  const forking = `trap "" TERM; echo out; exec >/dev/null 2>&1; while :; do sleep 1000 & done`
  killMarked(t, mark)
  const started = await startConfined(t, [await script(t, `MARK=${mark} setsid sh -c '${forking}' & exec sleep 1000`)], { choice: 'group' })
  await started.printed('out')
  started.process.terminate()
  const end = await started.process.ended
  assert.deepEqual([end.signal, silentSurvivors(mark, started)], [SIGTERM, []])
})

test('with group, orphaned groups that the kernel resumes when others die are caught', needsPerl, async (t) => {
  const mark = `x0x-orphaned-${process.pid}`
  killMarked(t, mark)
  const started = await startConfined(t, [await script(t, `MARK=${mark} ${await orphanedGroups(t, 500)} & sleep 1`)], { choice: 'group' })
  const end = await started.process.ended
  assert.deepEqual([end.code, silentSurvivors(mark, started)], [0, []])
})

test('with group, a process that joins the group after its members were killed is ended', needsPerl, async (t) => {
  const mark = `x0x-joining-${process.pid}`
  killMarked(t, mark)
  const started = await startConfined(t, [await script(t, `export MARK=${mark}; exec ${await joiningLate(t)}`)], { choice: 'group' })
  const end = await started.process.ended
  assert.deepEqual([end.code, marked(mark), kinds(started)], [0, [], ['descendants_ended']])
})

test('with group, an unrelated process with a mark inside a longer variable survives the run', async (t) => {
  const started = await startConfined(t, [await script(t, 'echo "X0X_RUN=$X0X_RUN"; exec sleep 1000')], { choice: 'group' })
  await started.printed('\n')
  const text = Buffer.concat(started.output.stdout).toString().trim()
  assert.match(text, /^X0X_RUN=./)
  const unrelated = spawn('sleep', ['1000'], { env: { QUERY_STRING: text, LC_ALL: `C\n${text}` }, stdio: 'ignore', detached: true })
  t.after(() => unrelated.kill('SIGKILL'))
  const ended = once(unrelated, 'exit')
  started.process.terminate()
  await started.process.ended
  unrelated.kill('SIGUSR1')
  assert.deepEqual(await ended, [null, 'SIGUSR1'])
})

test('with group, a process that cleared its environment survives, and a warning reports it', async (t) => {
  const path = await script(t, "setsid env -i sh -c 'echo $$; exec sleep 1000' & sleep 0.3")
  const started = await startConfined(t, [path], { choice: 'group' })
  await started.printed('\n')
  const pid = Number(Buffer.concat(started.output.stdout).toString())
  t.after(() => process.kill(pid, 'SIGKILL'))
  await started.process.ended
  assert.deepEqual([isAlive(pid), kinds(started)], [true, ['descendant_held_output', 'descendants_may_survive']])
})

test('with group, a run that leaves no process behind has no warning', async (t) => {
  // Another program of this user may start meanwhile and hide its environment, which gives a warning.
  for (let round = 0; round < 10; round++) {
    const started = await startConfined(t, ['true'], { choice: 'group' })
    await started.process.ended
    if (kinds(started).length === 0) return
  }
  assert.fail('each of ten runs had one')
})

test('with pid_namespace, a program that ends very early loses no output', needs.bwrap, async (t) => {
  const trees = await openCells(t, 'pid_namespace')
  for (let round = 0; round < 20; round++) {
    const { process: running, output, warnings } = await startConfined(t, ['echo', 'all of it'], { choice: 'pid_namespace', trees })
    await running.ended
    assert.deepEqual([Buffer.concat(output.stdout).toString(), warnings], ['all of it\n', []], `round ${round}`)
  }
})

test(
  'with pid_namespace, a status that looks like a signal stays an exit code unless the daemon sent that signal',
  needs.bwrap,
  async (t) => {
    const trees = await openCells(t, 'pid_namespace')
    const endOf = async (text: string) => {
      const started = await startConfined(t, [await script(t, text)], { choice: 'pid_namespace', trees })
      const { code, signal } = await started.process.ended
      return [code, signal]
    }
    assert.deepEqual(await endOf('exit 143'), [143, null])
    assert.deepEqual(await endOf('kill -SEGV $$'), [139, null])
    assert.deepEqual(await endOf('kill -KILL $$'), [137, null])
  },
)

test('with cgroup, thousands of signals to many threads cost little processor time and reach other sessions', needs.cgroup, async (t) => {
  const threads =
    "for (let i = 0; i < 30; i++) new (require('node:worker_threads').Worker)('setInterval(() => {}, 1000)', { eval: true }); setTimeout(() => console.log('up'), 500)"
  const inner = "trap 'echo heard; exit 3' USR2; echo in; while :; do sleep 0.02; done"
  const path = await script(t, `setsid sh -c "${inner}" & exec ${process.execPath} -e "${threads}"`)
  const started = await startConfined(t, [path], { choice: 'cgroup' })
  await Promise.all([started.printed('up'), started.printed('in\n')])
  const before = process.cpuUsage()
  for (let count = 0; count < 2_000; count++) started.process.signal('SIGCONT')
  const { user, system } = process.cpuUsage(before)
  assert.ok(user + system < 1_000_000, `${(user + system) / 1_000} ms of processor time in one turn`)
  started.process.signal('SIGUSR2')
  await started.printed('heard')
  started.process.kill()
  await started.process.ended
})

test('with pid_namespace, a signal of the daemon that ends a program is reported', needs.bwrap, async (t) => {
  const trees = await openCells(t, 'pid_namespace')
  for (const [name, number] of [
    ['SIGHUP', 1],
    ['SIGINT', 2],
    ['SIGUSR1', 10],
  ] as const) {
    const path = await script(t, 'echo up; exec sleep 1000')
    const { process: running, printed } = await startConfined(t, [path], { choice: 'pid_namespace', trees })
    await printed('up')
    if (name === 'SIGHUP') running.hangUp()
    else running.signal(name)
    const { code, signal } = await running.ended
    assert.deepEqual([code, signal], [null, number])
  }
})

test('with pid_namespace, a program sees only its own processes', needs.bwrap, async (t) => {
  const started = await startConfined(t, [await script(t, 'echo $$; ls /proc | grep -c "^[0-9]*$"')], { choice: 'pid_namespace' })
  await started.process.ended
  assert.match(Buffer.concat(started.output.stdout).toString(), /^2\n[345]\n$/)
})

test('a program without a wrapper keeps its own name as argv[0] in a control group', needs.cgroup, async (t) => {
  const started = await startConfined(t, ['cat', '/proc/self/cmdline'], { choice: 'cgroup' })
  await started.process.ended
  assert.equal(Buffer.concat(started.output.stdout).toString(), 'cat\0/proc/self/cmdline\0')
})

test('the daemon leaves a leaf again after it started a child inside', needs.cgroup, async (t) => {
  const before = readFileSync('/proc/self/cgroup', 'utf8')
  const started = await startConfined(t, ['cat', '/proc/self/cgroup'], { choice: 'cgroup', confinement: {} })
  await started.process.ended
  assert.equal(readFileSync('/proc/self/cgroup', 'utf8'), before)
  assert.match(Buffer.concat(started.output.stdout).toString(), /^0::.*\/x0x-of-[0-9-]+-[0-9a-f]+\/run-\d+$/m)
})

test('a required containment that does not work is refused, with the reason and the remedy', async (t) => {
  const components = { cleanup: null, log: silent }
  await assert.rejects(ProcessTrees.open(components, { choice: 'cgroup', dataDir: null, places: [] }), {
    code: 'bad_config',
    message: /containment = "cgroup" does not work on this machine: no cgroup version 2 is mounted; .*Delegate=yes/,
  })
  const mount = await temporaryDirectory(t)
  const place = { version: 2, controllers: [], mount, own: join(mount, 'nothing') } as const
  await assert.rejects(ProcessTrees.open(components, { choice: 'cgroup', dataDir: null, places: [place] }), {
    code: 'bad_config',
    message: /ENOENT/,
  })
  if (hasBwrap) return
  await assert.rejects(ProcessTrees.open(components, { choice: 'pid_namespace', dataDir: null }), {
    code: 'bad_config',
    message: /bwrap is not installed \(package bubblewrap\)/,
  })
})

test('without control groups, auto uses the process group and gives the reason', async (t) => {
  const trees = await ProcessTrees.open({ cleanup: null, log: silent }, { choice: 'auto', dataDir: null, places: [] })
  assert.deepEqual([trees.inForce, trees.stronger[0]], ['group', { containment: 'cgroup', why: 'no cgroup version 2 is mounted' }])
  const found = await trees.judge({ ...UNCONFINED, contain: 'required' })
  assert.match(found[0]!.why, /^cgroup: no cgroup version 2 is mounted; pid_namespace: /)
  const permit = permitFor(['true'], { confinement: { contain: 'required' } })
  const result = await spawnPermitted(permit, { trees, cleanup: startGuardian(t) }, { stdin: false })
  assert.deepEqual(result, { kind: 'spawn_failed', detail: 'no strong containment is in force', ran: null })
})

test('auto uses the strongest containment that works, and says why stronger ones do not', async (t) => {
  const trees = await openCells(t, 'auto')
  if (needs.cgroup.skip === undefined) assert.deepEqual([trees.inForce, trees.stronger], ['cgroup', []])
  else {
    assert.equal(trees.inForce, 'group')
    assert.deepEqual(
      trees.stronger.map(({ containment }) => containment),
      ['cgroup', 'pid_namespace'],
    )
  }
})
