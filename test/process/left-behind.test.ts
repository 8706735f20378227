import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isRoot, needs, openCells, startConfined } from '../support/containment.ts'
import { patient } from '../support/wait-limits.ts'
import { hasProc, isAlive, script, start, startGuardian, temporaryDirectory, until, type StartedProcess } from '../support/processes.ts'

/** Containments in which the daemon can count the processes that a program left behind. */
const COUNTING = ['cgroup', 'group'] as const
type Counting = (typeof COUNTING)[number]
const needsOf: Readonly<Record<Counting, { skip?: string }>> = { cgroup: needs.cgroup, group: hasProc ? {} : { skip: 'needs /proc' } }
/** Standard streams of a process that holds no output of its run. */
const SILENT = '</dev/null >/dev/null 2>&1'

/** Warnings of the run itself. Another program of an ordinary user may start meanwhile and hide its environment, as ssh-agent(1) does. */
const ownWarnings = ({ warnings }: StartedProcess): StartedProcess['warnings'] =>
  warnings.filter(({ kind }) => isRoot || kind !== 'descendants_may_survive')

const leftBehind = ({ warnings }: StartedProcess): (number | null)[] =>
  warnings.flatMap(({ kind, bytes }) => (kind === 'descendants_ended' ? [bytes] : []))

/** Runs a script to its end. The script prints PIDs, one per line. */
const runScript = async (t: TestContext, text: string, choice: Counting) => {
  const started = await startConfined(t, [await script(t, text)], { choice })
  const end = await started.process.ended
  const pids = Buffer.concat(started.output.stdout).toString().split('\n').filter(Boolean).map(Number)
  return { started, end, pids }
}

for (const choice of COUNTING) {
  const options = needsOf[choice]

  test(`with ${choice}, processes that a command leaves behind are killed, and a warning has their number`, options, async (t) => {
    const text = `sleep 1000 ${SILENT} & echo $!\nsetsid sleep 1000 ${SILENT} & echo $!\nexit 3`
    const { started, end, pids } = await runScript(t, text, choice)
    assert.deepEqual([end.code, pids.length, pids.filter(isAlive)], [3, 2, []])
    assert.deepEqual(ownWarnings(started), [{ kind: 'descendants_ended', bytes: 2 }])
  })

  test(`with ${choice}, a daemon that left its parents, session and group is killed and counted`, options, async (t) => {
    const directory = await temporaryDirectory(t)
    const file = join(directory, 'pid')
    const text = `( setsid sh -c 'echo $$ > ${file}; exec sleep 1000' ${SILENT} & ) ; while [ ! -s ${file} ]; do sleep 0.01; done`
    const { started } = await runScript(t, text, choice)
    assert.deepEqual([isAlive(Number(await readFile(file, 'utf8'))), leftBehind(started)], [false, [1]])
  })

  test(`with ${choice}, a process of the group is counted without the mark in its environment`, options, async (t) => {
    const { started, pids } = await runScript(t, `env -i sleep 1000 ${SILENT} & echo $!`, choice)
    assert.deepEqual([pids.filter(isAlive), leftBehind(started)], [[], [1]])
  })

  test(`with ${choice}, child processes that end within a moment of the command give no warning`, options, async (t) => {
    const file = join(await temporaryDirectory(t), 'done')
    const { started } = await runScript(t, `( sleep 0.05; echo done > ${file} ) ${SILENT} &`, choice)
    assert.deepEqual([leftBehind(started), await readFile(file, 'utf8')], [[], 'done\n'])
  })

  test(`with ${choice}, a run that a client ends gives no warning about other ended processes`, options, async (t) => {
    const text = `trap 'exit 0' TERM; (trap '' TERM; exec sleep 1000) ${SILENT} & echo out; while :; do sleep 0.01; done`
    const started = await startConfined(t, [await script(t, text)], { choice })
    await started.printed('out')
    started.process.terminate()
    await started.process.ended
    assert.deepEqual(leftBehind(started), [])
  })

  test(`with ${choice}, a run that is killed while its leftover processes are counted ends at once`, options, async (t) => {
    const started = await startConfined(t, [await script(t, `setsid sleep 1000 ${SILENT} & echo $!`)], { choice })
    await started.printed('\n')
    await until(() => !isAlive(started.process.pid))
    started.process.kill()
    await started.process.ended
    // The process got SIGKILL and dies when the kernel schedules it next.
    const pid = Number(Buffer.concat(started.output.stdout).toString())
    await until(() => !isAlive(pid))
  })

  test(`with ${choice}, 60 pipelines give no warning`, { ...options, timeout: patient(60_000) }, async (t) => {
    const [trees, cleanup] = [await openCells(t, choice), startGuardian(t)]
    const texts = ['seq 1000 | tail -1', 'yes | head -3', '( ( true & ) & ) ; echo a | cat | cat', 'a=$(ls / | wc -l); echo $a & wait']
    const paths = await Promise.all(texts.map(async (text) => script(t, text)))
    const warned: unknown[] = []
    for (let i = 0; i < 60; i += 10) {
      const batch = Array.from({ length: 10 }, async (_, j) => {
        const started = await start(t, [paths[(i + j) % paths.length]!], { trees, cleanup })
        await started.process.ended
        warned.push(...ownWarnings(started))
      })
      await Promise.all(batch)
    }
    assert.deepEqual(warned, [])
  })
}

test('with pid_namespace, the kernel ends leftover processes, which are not counted', needs.bwrap, async (t) => {
  const started = await startConfined(t, [await script(t, `setsid sleep 1000 ${SILENT} &`)], { choice: 'pid_namespace' })
  const { code } = await started.process.ended
  assert.deepEqual([code, started.warnings], [0, []])
})
