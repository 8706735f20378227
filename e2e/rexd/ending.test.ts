import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isRunning, until } from '../../test/support/mesh-of-daemons.ts'
import type { Peer, Session } from './peer.ts'
import { allGone } from './processes.ts'
import { overStdio } from './transports.ts'

// Programs that resist their end: in their own sessions, with dead parents, ignoring SIGTERM. None of them may be left after any end,
// except where only a process group contains them.

const DEAF = "trap '' TERM; while :; do sleep 0.05; done"
const LOUD = (name: string): string => `echo ${name} $$; exec sleep 1000`

/** A child, a child in its own session, a child whose parent is dead too, and a child that ignores SIGTERM. */
const TRIBE = [
  `sh -c '${LOUD('child')}' &`,
  `setsid sh -c '${LOUD('leader')}' &`,
  `(setsid sh -c '${LOUD('orphan')}' &)`,
  `sh -c 'echo deaf $$; ${DEAF.replaceAll("'", '"')}' &`,
  'echo self $$; wait',
].join('\n')
const NAMES = ['child', 'leader', 'orphan', 'deaf', 'self']

interface Tribe {
  readonly peer: Peer
  readonly session: Session
  readonly pids: Readonly<Record<string, number>>
  /** Containment of the process tree, according to the journal. */
  readonly containment: string
  /** Control groups of the processes. */
  readonly groups: readonly string[]
}

const groupsOf = (pid: number): string[] =>
  readFileSync(`/proc/${pid}/cgroup`, 'utf8')
    .split('\n')
    .map((line) => line.split(':')[2] ?? '')
    .filter((path) => path.includes('/run-'))
    .flatMap((path) => ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].map((root) => join(root, path)).filter((file) => existsSync(file)))

const tribe = async (t: TestContext): Promise<Tribe> => {
  const peer = await overStdio.open(t)
  const session = await peer.session()
  const log = await session.shell(TRIBE, { timeout_ms: 200_000 })
  const pidOf = (name: string): number | undefined => log.pids(name)[0]
  await until('all are there', () => NAMES.every((name) => pidOf(name) !== undefined))
  const pids = Object.fromEntries(NAMES.map((name) => [name, pidOf(name)!]))
  const groups = [...new Set(Object.values(pids).flatMap(groupsOf))]
  t.after(() => {
    for (const pid of Object.values(pids)) if (isRunning(pid)) process.kill(pid, 'SIGKILL')
  })
  await until('its start is in the journal', async () => (await peer.home.journal()).some(({ event }) => event === 'started'))
  const started = (await peer.home.journal()).find(({ event }) => event === 'started')
  return { peer, session, pids, containment: String(started?.['containment']), groups }
}

/** With containment by a process group only, a process that left the group may outlive its program. */
const assertEnded = async ({ pids, containment, groups }: Tribe): Promise<void> => {
  const held = NAMES.filter((name) => containment !== 'group' || (name !== 'orphan' && name !== 'leader'))
  await allGone(held.map((name) => pids[name]!))
  await until('their control groups are gone', () => !groups.some(existsSync))
}

test('session.close ends the whole process tree, including processes that ignore SIGTERM', async (t) => {
  const all = await tribe(t)
  assert.deepEqual(await all.session.close(), { ok: true, terminated: 1 })
  await assertEnded(all)
  await all.peer.close()
})

test('SIGKILL of the server ends the whole process tree and leaves no control group', async (t) => {
  const all = await tribe(t)
  t.after(() => {
    // If the test fails, this removes the control groups.
    for (const group of [...all.groups, ...all.groups.map(dirname)]) if (existsSync(group)) rmdirSync(group)
  })
  all.peer.process.child.kill('SIGKILL')
  assert.equal(await all.peer.process.exited, 128 + 9)
  await assertEnded(all)
})
