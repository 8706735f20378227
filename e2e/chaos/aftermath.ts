import assert from 'node:assert/strict'
import { existsSync, readFileSync, readlinkSync } from 'node:fs'
import { readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { endsRun } from '../../src/journal/running-marks.ts'
import { groupsBelow } from '../../src/process/cgroup-tree.ts'
import { readContainmentRecord } from '../../src/process/process-trees.ts'
import { descendantsOf } from '../../src/process/descendant-tracker.ts'
import { birthOf } from '../../src/base/process-info.ts'
import { isRunning, residentOf, until, type JournalLineJson, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { tagOf, untruth, type Answer, type Asked, type Requests } from './requests.ts'
import { TOTAL, UNIT, type World } from './world.ts'

const MIB = 1024 * 1024
/** File descriptors that a process may hold beyond the number before, such as connections that are not closed yet. */
const FD_GROWTH = 12
/** Memory that a process may hold beyond the amount before: the windows of its runs, and copies in the heap. */
const RSS_GROWTH = 64 * MIB
/** The time of a garbage collection is unknown. More runs make one likely. */
const SETTLE_MS = 60_000

/** File descriptors and memory of each executor process and network process. */
export type Holdings = ReadonlyMap<string, { readonly fds: number; readonly rss: number }>

export const holdingsOf = async (world: World): Promise<Holdings> => {
  const halves = await Promise.all(
    world.daemons.map(async (daemon) => [
      [`${daemon.name}, executor`, daemon.pid] as const,
      [`${daemon.name}, network half`, await until('there is a network half', async () => world.networkOf(daemon))] as const,
    ]),
  )
  const entries = halves
    .flat()
    .map(async ([name, pid]) => [name, { fds: (await readdir(`/proc/${pid}/fd`)).length, rss: await residentOf(pid) }] as const)
  return new Map(await Promise.all(entries))
}

/** Runs commands of each kind, so that the measurements before and after have the same warm-up. */
export const warmUp = async (world: World, requests: Requests): Promise<void> => {
  const { data } = world
  for (const requester of world.requesters) {
    for (let count = 0; count < 10; count++) await requests.ask(requester, requests.plan('true', []), false)
    const large = requests.plan('out', [data.length / UNIT, 1], { stdout: data })
    const answer = await requests.ask(requester, large, false)
    assert.equal(answer.how, 'ended', JSON.stringify(answer))
  }
}

/** Waits until every path works and no command runs. */
export const settle = async (world: World, requests: Requests): Promise<void> => {
  for (const requester of world.requesters) {
    const works = async (): Promise<boolean> => (await requests.ask(requester, requests.plan('true', []), false)).how === 'ended'
    await until(`${requester.daemon.name} reaches bob`, works, SETTLE_MS)
  }
  await until('nothing runs on bob', async () => (await world.bob.diagnostics()).active_sessions === 0)
  for (const { daemon } of world.requesters)
    await until(
      `${daemon.name} waits for nothing`,
      async () => (await daemon.get<{ sessions: unknown[] }>('/exec/sessions')).sessions.length === 0,
    )
}

export const assertTruthful = (requests: Requests): void => {
  const lies = requests.asked.flatMap((asked) => {
    const lie = untruth(asked, requests.felled)
    return lie === null ? [] : [`run ${asked.plan.tag} (${asked.plan.name}, ${asked.answer.how}): ${lie}`]
  })
  assert.deepEqual(lies, [])
}

/** Checks that the maximum number of runs fits at once, that one more is denied, and that all end well. */
export const assertSlotsFree = async (world: World, requests: Requests): Promise<void> => {
  const go = join(world.mesh.root, 'work', 'go')
  const hold = () => requests.plan('hold', [], { stdout: Buffer.from('up\n') })
  const held = world.requesters.flatMap((requester) =>
    Array.from({ length: TOTAL / world.requesters.length }, async () => requests.ask(requester, hold(), false)),
  )
  try {
    await until('every slot is taken', async () => (await world.bob.diagnostics()).active_sessions === TOTAL)
    const beyond = await requests.ask(world.requesters[0]!, hold(), false)
    assert.deepEqual(beyond, { how: 'denied', why: 'concurrency_limit_reached' })
  } finally {
    await writeFile(go, '')
  }
  const answers = await Promise.all(held)
  await rm(go)
  assert.deepEqual(
    answers.map(({ how }) => how),
    answers.map(() => 'ended'),
  )
}

/** Checks that the audit log has one end for every start and no run twice, and agrees with the answers that the clients got. */
export const assertJournalled = async (world: World, asked: readonly Asked[]): Promise<void> => {
  const runs = new Map<number, JournalLineJson[]>()
  const byId = Map.groupBy(await world.bob.journal(), ({ request_id }) => request_id)
  for (const [id, lines] of byId) {
    const requests = lines.filter(({ event }) => event === 'request')
    if (requests.length === 0) continue
    const [started, ends] = [count(lines, 'started'), lines.filter((line) => endsRun(line as never)).length]
    assert.equal(requests.length, 1, `request ${id} was allowed ${requests.length} times`)
    assert.ok(started <= 1 && ends === 1, `run ${id}: ${lines.map(({ event }) => event).join(', ')}`)
    const tag = tagOf(requests[0]!['argv'])
    assert.equal(runs.has(tag), false, `run ${tag} ran twice`)
    runs.set(tag, lines)
  }
  for (const { plan, answer } of asked) {
    const lines = runs.get(plan.tag) ?? []
    const exit = lines.find(({ event }) => event === 'exit')
    if (answer.how === 'ended') assert.equal(exit?.['code'], plan.code, `run ${plan.tag}: the journal has another end`)
    if (answer.how === 'killed') assert.equal(exit?.['signal'], answer.signal, `run ${plan.tag}: the journal has another end`)
    if (neverSent(answer)) assert.deepEqual(lines, [], `run ${plan.tag} was not to run (${answer.why}), and did`)
  }
}

/** Answers that mean that nothing ran: a denial, or a client that could not reach the target. */
const neverSent = (answer: Answer): answer is Extract<Answer, { why: string }> =>
  (answer.how === 'denied' && answer.why !== 'spawn_failed') ||
  (answer.how === 'refused' && /^(peer_unreachable|peer_rejected|conflict): /.test(answer.why))

const count = (lines: readonly JournalLineJson[], name: string): number => lines.filter(({ event }) => event === name).length

export const assertJournalsWhole = async ({ bob, requesters }: World): Promise<void> => {
  const all = [[bob, []], ...requesters.map(({ daemon }) => [daemon, ['--outgoing']] as const)] as const
  for (const [daemon, flags] of all) {
    const { status, stdout, stderr } = await daemon.cli(['audit', 'verify', ...flags])
    assert.equal(status, 0, `${daemon.name}: ${stdout.toString()}${stderr}`)
  }
}

/**
 * Checks that only the executor process, the network process and the cleanup process of each daemon run, and that no child of a killed
 * daemon is left.
 */
export const assertNobodyLeft = async (world: World): Promise<void> => {
  const halves = new Set<number>()
  for (const daemon of world.daemons) {
    halves.add(daemon.pid)
    halves.add(await until('there is a network half', async () => world.networkOf(daemon)))
  }
  await until('nothing of the mesh runs but its daemons', async () =>
    (await processesIn(world.mesh.root)).every((pid) => halves.has(pid)),
  ).catch(async (error: unknown) =>
    assert.fail(`${String(error)}: ${describe((await processesIn(world.mesh.root)).filter((pid) => !halves.has(pid)))}`),
  )
  const doomed = () =>
    world.doomed.filter(({ member: { pid, born } }) => birthOf(pid) === born && isRunning(pid)).map(({ member }) => member.pid)
  await until('what was killed is gone', () => doomed().length === 0).catch(() => assert.fail(`left: ${describe(doomed())}`))
  for (const { name, pid } of world.daemons) {
    const others = descendantsOf(pid).filter((member) => !halves.has(member.pid))
    const odd = others.filter((member) => !nameOf(member.pid).endsWith('x0x-cleanup '))
    assert.ok(odd.length === 0 && others.length <= 1, `${name} has ${describe(others.map((member) => member.pid))}`)
  }
}

/** Command line of a process. Empty for a zombie. */
const nameOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}

const describe = (pids: readonly number[]): string => pids.map((pid) => `${pid} (${nameOf(pid) || 'a zombie'})`).join(', ')

/**
 * Finds processes of the mesh by their command lines and working directories. Each program starts with a `cd` into a directory of the test.
 */
const processesIn = async (root: string): Promise<number[]> => {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  return pids.filter((pid) => pid !== process.pid && (nameOf(pid).includes(root) || directoryOf(pid).startsWith(root)))
}

const directoryOf = (pid: number): string => {
  try {
    return readlinkSync(`/proc/${pid}/cwd`)
  } catch {
    return ''
  }
}

/** Checks that open files and memory of every process are near their values before. */
export const assertHoldings = async (world: World, requests: Requests, before: Holdings): Promise<string> => {
  let now = await holdingsOf(world)
  const over = (): string[] =>
    [...now].flatMap(([name, { fds, rss }]) => {
      const then = before.get(name)!
      return fds > then.fds + FD_GROWTH || rss > then.rss + RSS_GROWTH
        ? [`${name}: ${then.fds} → ${fds} files, ${mib(then.rss)} → ${mib(rss)} MiB`]
        : []
    })
  const settled = async (): Promise<boolean> => {
    if (over().length === 0) return true
    await warmUp(world, requests)
    now = await holdingsOf(world)
    return over().length === 0
  }
  await until('files and memory are back', settled, SETTLE_MS).catch(() => assert.fail(over().join('; ')))
  return [...now]
    .map(([name, { fds, rss }]) => `${name} ${fds - before.get(name)!.fds} files, ${mib(rss - before.get(name)!.rss)} MiB`)
    .join('; ')
}

const mib = (bytes: number): number => Math.round(bytes / MIB)

/** Names of all files in a data directory. */
const filesIn = async (daemon: TestDaemon): Promise<string[]> => (await readdir(daemon.dir, { recursive: true })).toSorted()

export type Files = ReadonlyMap<string, readonly string[]>

export const filesOf = async ({ daemons }: World): Promise<Files> =>
  new Map(await Promise.all(daemons.map(async (daemon) => [daemon.name, await filesIn(daemon)] as const)))

/** Checks that no mark of a run, no control group of a run and no new file is left. */
export const assertNothingLeft = async (world: World, before: Files): Promise<void> => {
  for (const daemon of world.daemons) {
    assert.deepEqual(await filesIn(daemon), before.get(daemon.name), `files of ${daemon.name}`)
    assert.deepEqual(await leavesOf(daemon), [], `control groups of ${daemon.name}`)
  }
  assert.deepEqual(await readdir(join(world.mesh.root, 'tmp')), [], 'temporary files')
}

const parentsOf = async ({ dir }: TestDaemon): Promise<readonly string[]> =>
  (await readContainmentRecord(join(dir, 'containment.json')))?.parents ?? []
const leavesOf = async (daemon: TestDaemon): Promise<string[]> => (await parentsOf(daemon)).flatMap(groupsBelow)

/** Files that exist only while the daemon runs. */
const OF_THE_LIVING = ['api.port', 'api.sock', 'containment.json', 'network.pid', 'x0xd.pid']

/** Stops every daemon and checks that it exits with 0 and removes its temporary files. */
export const assertStopped = async (world: World): Promise<void> => {
  const parents = (await Promise.all(world.daemons.map(parentsOf))).flat()
  for (const daemon of world.daemons) assert.equal(await daemon.stop(), 0, `${daemon.name} ends with 0`)
  const gone = async (): Promise<boolean> => (await processesIn(world.mesh.root)).length === 0
  await until('every process is gone', gone)
  await until('the control groups are gone', () => !parents.some(existsSync))
  for (const daemon of world.daemons)
    assert.deepEqual(
      (await filesIn(daemon)).filter((name) => OF_THE_LIVING.includes(name)),
      [],
      `files of ${daemon.name}`,
    )
}
