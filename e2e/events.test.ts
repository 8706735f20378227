import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { lifecycleProblem, type LifecycleEvent } from '../src/protocol/events/lifecycle.ts'
import { aliceBobCharlie, MeshOfDaemons, startCli, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

// Alice asks bob, whose ACL allows her a little, and reads what became of it later.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob } = await aliceBobCharlie(mesh, [
    ['echo', '<INT>'],
    ['sleep', '<INT>'],
  ]))
})

after(async () => mesh.stop())

interface Answer {
  readonly events: readonly (LifecycleEvent & { readonly text: string })[]
  readonly next: string
}

const eventsOf = async (daemon: TestDaemon, since = ''): Promise<Answer> => {
  const answer = await daemon.get<Answer>(`/exec/events${since === '' ? '' : `?since=${since}`}`)
  for (const { text: _text, ...event } of answer.events) assert.equal(lifecycleProblem(event), null)
  return answer
}

/** The sentences behind a place, without the ids of runs. */
const told = async (daemon: TestDaemon, since: string): Promise<string[]> =>
  (await eventsOf(daemon, since)).events.map(({ text, run_id }) => text.replace(run_id, 'ID'))

test('O14: what became of runs over the mesh is read later, by whoever asked and nobody else', async () => {
  const { next } = await eventsOf(alice)
  const [atBob] = [await eventsOf(bob)]
  assert.equal(await alice.run(bob, ['echo', '42']), 0)
  await alice.exec(bob, ['rm', '-rf', 'x'])
  const node = bob.agentId
  assert.deepEqual(await told(alice, next), [
    `Exec started (node=${node}, id=ID)`,
    `Exec finished (node=${node}, id=ID, code=0)`,
    `Exec denied (node=${node}, id=ID, argv_not_allowed)`,
  ])
  assert.equal((await eventsOf(alice, next)).events[1]?.tail, '42\n')
  assert.deepEqual(await told(bob, atBob.next), [], 'bob asked for nothing')
})

test('a run whose caller is gone is told when it has ended', async () => {
  const { next } = await eventsOf(alice)
  const caller = startCli([...alice.selector, 'exec', 'bob', '--', 'sleep', '600'])
  await until('it runs', async () => (await told(alice, next)).length === 1)
  caller.child.kill('SIGKILL')
  await caller.finished
  await until('it has ended', async () => (await told(alice, next)).length === 2)
  assert.match((await told(alice, next))[1] ?? '', /^Exec finished \(.*, code=null signal=15\)$/)
})

test('x0x events --follow prints events as they come, over a restart of the half that keeps them, and says so', async () => {
  const { next } = await eventsOf(alice)
  const following = startCli([...alice.selector, 'events', '--follow', '--since', next])
  assert.equal(await alice.run(bob, ['echo', '7']), 0)
  await following.printed('code=0)')
  await following.printed('\n  7\n')
  process.kill(Number.parseInt(await readFile(join(alice.dir, 'network.pid'), 'utf8')), 'SIGKILL')
  await until('it is there again', async () => alice.answers().catch(() => false))
  await until('it runs again', async () => (await alice.exec(bob, ['echo', '8'])).status === 0)
  await following.printed('events may be missing here')
  await following.printed('\n  8\n')
  following.child.kill('SIGINT')
  assert.equal((await following.finished).status, 0)
})
