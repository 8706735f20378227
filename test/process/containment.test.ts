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
 * A program whose grandchild has lost its parents, leads a session of its own, and ignores SIGTERM. It
 * writes its name into its environment, so that it is found in /proc whatever its number is inside.
 */
const escaping = async (t: TestContext, then: string): Promise<{ path: string; mark: string }> => {
  const mark = `x0x-escape-${process.pid}-${Math.random().toString(16).slice(2)}`
  const inner = "trap '' TERM INT HUP; echo out; exec >/dev/null 2>&1 </dev/null; while :; do sleep 0.05; done"
  const path = await script(t, `( MARK=${mark} setsid sh -c "${inner}" & ) & wait; ${then}`)
  return { path, mark }
}

const kinds = ({ warnings }: StartedProcess): string[] => warnings.map(({ kind }) => kind)

/** Who lives though nothing was said of it: on a machine that is busy, not all may be found in the second that there is. */
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

test(
  'cgroup: a double-forked grandchild in a session of its own, deaf to SIGTERM, is dead when a terminated run ends',
  needs.cgroup,
  diesWithTerminated('cgroup'),
)
test(
  'pid_namespace: a double-forked grandchild in a session of its own, deaf to SIGTERM, is dead when a terminated run ends',
  needs.bwrap,
  diesWithTerminated('pid_namespace'),
)
test('cgroup: … and when the program ends by itself', needs.cgroup, diesWithEnded('cgroup'))
test('pid_namespace: … and when the program ends by itself', needs.bwrap, diesWithEnded('pid_namespace'))

for (const choice of STRONG) {
  test(`${choice}: SIGTERM reaches a descendant in another session, which may end in its own way`, needsOf[choice], async (t) => {
    const inner = "trap 'echo bye; exit 0' TERM; echo out; while :; do sleep 0.05; done"
    const path = await script(t, `trap 'wait; exit 5' TERM; setsid sh -c "${inner}" & wait`)
    const started = await startConfined(t, [path], { choice })
    await started.printed('out')
    started.process.terminate()
    const end = await started.process.ended
    assert.match(Buffer.concat(started.output.stdout).toString(), /bye/)
    assert.deepEqual([end.code, end.signal], [5, null])
  })

  test(
    `${choice}: a program that ignores SIGTERM gets SIGKILL after the grace, not before, and that is told`,
    needsOf[choice],
    async (t) => {
      const clock = new ManualClock()
      const path = await script(t, "trap '' TERM; echo out; while :; do sleep 0.01; done")
      const started = await startConfined(t, [path], { choice, clock })
      await started.printed('out')
      started.process.terminate()
      await clock.advance(KILL_GRACE_MS - 1)
      assert.ok(isAlive(started.process.pid))
      await clock.advance(1)
      assert.deepEqual([(await started.process.ended).signal, kinds(started)], [SIGKILL, []])
    },
  )

  test(`${choice}: codes, output, arguments and standard input pass unchanged`, needsOf[choice], async (t) => {
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
    `${choice}: a program has the standard descriptors, the scrubbed environment, its directory, and no terminal`,
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

  test(`${choice}: a program that cannot be executed is a failure to start, never an exit`, needsOf[choice], async (t) => {
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
  ['group: a double-forked grandchild in a session of its own, deaf to SIGTERM, is found and dead when a terminated run ends', true],
  ['group: … and when the program ends by itself', false],
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

test('group: one that forks on and on, each in a session of its own, is caught', async (t) => {
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

test('group: … and was told of the end before', async (t) => {
  const mark = `x0x-told-${process.pid}`
  const forking = `trap "" TERM; echo out; exec >/dev/null 2>&1; while :; do sleep 1000 & done`
  killMarked(t, mark)
  const started = await startConfined(t, [await script(t, `MARK=${mark} setsid sh -c '${forking}' & exec sleep 1000`)], { choice: 'group' })
  await started.printed('out')
  started.process.terminate()
  const end = await started.process.ended
  assert.deepEqual([end.signal, silentSurvivors(mark, started)], [SIGTERM, []])
})

test('group: … and those that the kernel makes go on when others die', needsPerl, async (t) => {
  const mark = `x0x-orphaned-${process.pid}`
  killMarked(t, mark)
  const started = await startConfined(t, [await script(t, `MARK=${mark} ${await orphanedGroups(t, 500)} & sleep 1`)], { choice: 'group' })
  const end = await started.process.ended
  assert.deepEqual([end.code, silentSurvivors(mark, started)], [0, []])
})

test('group: who joins the group when all in it were killed is not taken for one of them', needsPerl, async (t) => {
  const mark = `x0x-joining-${process.pid}`
  killMarked(t, mark)
  const started = await startConfined(t, [await script(t, `export MARK=${mark}; exec ${await joiningLate(t)}`)], { choice: 'group' })
  const end = await started.process.ended
  assert.deepEqual([end.code, marked(mark), kinds(started)], [0, [], ['descendants_ended']])
})

test('group: a stranger whose variables only contain the text of a mark is not ended with the run', async (t) => {
  const started = await startConfined(t, [await script(t, 'echo "X0X_RUN=$X0X_RUN"; exec sleep 1000')], { choice: 'group' })
  await started.printed('\n')
  const text = Buffer.concat(started.output.stdout).toString().trim()
  assert.match(text, /^X0X_RUN=./)
  const stranger = spawn('sleep', ['1000'], { env: { QUERY_STRING: text, LC_ALL: `C\n${text}` }, stdio: 'ignore', detached: true })
  t.after(() => stranger.kill('SIGKILL'))
  const ended = once(stranger, 'exit')
  started.process.terminate()
  await started.process.ended
  stranger.kill('SIGUSR1')
  assert.deepEqual(await ended, [null, 'SIGUSR1'])
})

test('group: one that has changed its environment is not found, and who holds the output is told of', async (t) => {
  const path = await script(t, "setsid env -i sh -c 'echo $$; exec sleep 1000' & sleep 0.3")
  const started = await startConfined(t, [path], { choice: 'group' })
  await started.printed('\n')
  const pid = Number(Buffer.concat(started.output.stdout).toString())
  t.after(() => process.kill(pid, 'SIGKILL'))
  await started.process.ended
  assert.deepEqual([isAlive(pid), kinds(started)], [true, ['descendant_held_output', 'descendants_may_survive']])
})

test('group: a run that ends by itself and leaves nobody behind has no such warning', async (t) => {
  // Other programs of this user may begin meanwhile and hide their environment, which is told of.
  for (let round = 0; round < 10; round++) {
    const started = await startConfined(t, ['true'], { choice: 'group' })
    await started.process.ended
    if (kinds(started).length === 0) return
  }
  assert.fail('each of ten runs had one')
})

test('pid_namespace: a program that ends before we have heard that it began loses nothing of its output', needs.bwrap, async (t) => {
  const trees = await openCells(t, 'pid_namespace')
  for (let round = 0; round < 20; round++) {
    const { process: running, output, warnings } = await startConfined(t, ['echo', 'all of it'], { choice: 'pid_namespace', trees })
    await running.ended
    assert.deepEqual([Buffer.concat(output.stdout).toString(), warnings], ['all of it\n', []], `round ${round}`)
  }
})

test('pid_namespace: a status that looks like a signal is one only where we sent that signal', needs.bwrap, async (t) => {
  const trees = await openCells(t, 'pid_namespace')
  const endOf = async (text: string) => {
    const started = await startConfined(t, [await script(t, text)], { choice: 'pid_namespace', trees })
    const { code, signal } = await started.process.ended
    return [code, signal]
  }
  assert.deepEqual(await endOf('exit 143'), [143, null])
  assert.deepEqual(await endOf('kill -SEGV $$'), [139, null])
  assert.deepEqual(await endOf('kill -KILL $$'), [137, null])
})

test('cgroup: signals without end to a run of many threads hold nobody up, and reach who left the group', needs.cgroup, async (t) => {
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

test('pid_namespace: whatever signal of ours ends a program, its end is that signal', needs.bwrap, async (t) => {
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

test('pid_namespace: a program sees no process but its own', needs.bwrap, async (t) => {
  const started = await startConfined(t, [await script(t, 'echo $$; ls /proc | grep -c "^[0-9]*$"')], { choice: 'pid_namespace' })
  await started.process.ended
  assert.match(Buffer.concat(started.output.stdout).toString(), /^2\n[345]\n$/)
})

test('a program that needs no wrapper keeps its own name as argv[0] in a control group', needs.cgroup, async (t) => {
  const started = await startConfined(t, ['cat', '/proc/self/cmdline'], { choice: 'cgroup' })
  await started.process.ended
  assert.equal(Buffer.concat(started.output.stdout).toString(), 'cat\0/proc/self/cmdline\0')
})

test('we come out of every leaf again, and a child is born inside', needs.cgroup, async (t) => {
  const before = readFileSync('/proc/self/cgroup', 'utf8')
  const started = await startConfined(t, ['cat', '/proc/self/cgroup'], { choice: 'cgroup', confinement: {} })
  await started.process.ended
  assert.equal(readFileSync('/proc/self/cgroup', 'utf8'), before)
  assert.match(Buffer.concat(started.output.stdout).toString(), /^0::.*\/x0x-of-[0-9-]+-[0-9a-f]+\/run-\d+$/m)
})

test('what was asked for and is impossible is refused, with the reason and the remedy', async (t) => {
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

test('where no control group can be had, auto is the process group and says why', async (t) => {
  const trees = await ProcessTrees.open({ cleanup: null, log: silent }, { choice: 'auto', dataDir: null, places: [] })
  assert.deepEqual([trees.inForce, trees.stronger[0]], ['group', { containment: 'cgroup', why: 'no cgroup version 2 is mounted' }])
  const found = await trees.judge({ ...UNCONFINED, contain: 'required' })
  assert.match(found[0]!.why, /^cgroup: no cgroup version 2 is mounted; pid_namespace: /)
  const permit = permitFor(['true'], { confinement: { contain: 'required' } })
  const result = await spawnPermitted(permit, { trees, cleanup: startGuardian(t) }, { stdin: false })
  assert.deepEqual(result, { kind: 'spawn_failed', detail: 'no strong containment is in force', ran: null })
})

test('auto is the strongest that works here, and says why not a stronger one', async (t) => {
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
