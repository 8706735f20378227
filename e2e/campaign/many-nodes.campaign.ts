import assert from 'node:assert/strict'
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { VerifiedCard } from '../../src/identity/card.ts'
import { allowIn, cardIn, introduceIn } from '../../test/support/host-files.ts'
import { HostProcess } from '../../test/support/host-process.ts'
import { tempDir } from '../../test/support/temp-dir.ts'
import type { Done, Errand, Look, Question, Starting } from './nodes.ts'

const NODES = 60
const PROCESSES = 4
/** Persistent connections per node: two neighbours on each side of the ring. */
const STANDING = 4
/** One node of each process. */
const MOVED = [5, 22, 39, 56]

interface NodePlace {
  readonly number: number
  readonly dir: string
  readonly card: VerifiedCard
  /** The command that this node allows to the others. Each node allows a different one. */
  readonly argv: readonly string[]
}

/** Creates daemons that trust one another as contacts, with cards that contain no address. */
const places = async (t: TestContext): Promise<NodePlace[]> => {
  const root = await tempDir(t)
  const all = await Promise.all(
    Array.from({ length: NODES }, async (_none, number) => {
      const dir = join(root, String(number))
      return { number, dir, card: await cardIn(dir, `n${number}`, () => []), argv: ['/bin/echo', `n${number}`] }
    }),
  )
  await introduceIn(
    root,
    all.map(({ card, number }) => ({ card, name: `n${number}` })),
    'trusted',
  )
  const cards = all.map(({ card }) => card)
  for (const { dir, argv } of all) {
    await copyFile(join(root, 'contacts.json'), join(dir, 'contacts.json'))
    await allowIn(dir, cards, argv)
  }
  return all
}

/** Runs the nodes in several processes, because a single thread for all of them would be the bottleneck. */
const nodesOf = (t: TestContext, all: readonly NodePlace[]) => {
  const processes = Array.from({ length: PROCESSES }, () => new HostProcess(new URL('nodes.ts', import.meta.url), null))
  t.after(async () => Promise.all(processes.map(async (one) => one.stop())))
  const askEach = async <T>(questionOf: (isIts: (number: number) => boolean) => Question): Promise<T[]> =>
    (await Promise.all(processes.map(async (one, at) => one.ask<T[]>(questionOf((number) => number % PROCESSES === at))))).flat()
  const start = async (numbers: readonly number[], bootstrap: readonly string[]): Promise<Look[]> =>
    askEach((isIts) => {
      const nodes = numbers.filter(isIts).map((number) => ({ number, dir: all[number]!.dir }))
      return { start: { nodes, bootstrap, standing: STANDING } satisfies Starting }
    })
  const look = async (): Promise<Look[]> => askEach(() => 'look')
  /** Another node runs the identifying command of each of these nodes. */
  const allAnswer = async (numbers: readonly number[]): Promise<void> => {
    const errands = numbers.map((number) => ({ asker: (number * 7 + 13) % NODES, ...all[number]! }))
    const errandsOf = (isIts: (number: number) => boolean): Errand[] =>
      errands.filter(({ asker }) => isIts(asker)).map(({ asker, card, argv }) => ({ asker, agentId: card.agentId, argv }))
    const said = await askEach<Done>((isIts) => ({ run: errandsOf(isIts) }))
    const expected = errands.map(({ number, card }) => ({ machineId: card.machineId, stdout: `n${number}\n` }))
    const inOrder = (done: readonly Done[]): Done[] => done.toSorted((one, other) => one.stdout.localeCompare(other.stdout))
    assert.deepEqual(inOrder(said), inOrder(expected))
  }
  return { start, look, allAnswer }
}

test(
  'sixty daemons that know one peer find and run commands on one another with few connections, even after a move',
  { timeout: 240_000 },
  async (t) => {
    const all = await places(t)
    const { start, look, allAnswer } = nodesOf(t, all)
    const [hub] = await start([0], [])
    const others = all.slice(1).map(({ number }) => number)
    const standing = (await start(others, hub!.addresses)).map((one) => one.standing)
    assert.ok(Math.max(...standing) <= STANDING + 1, String(standing))
    // The hub is connected with all nodes. The other pairs are chosen by both ends.
    const connected = (await look()).filter(({ number }) => number !== 0).map((one) => one.connected)
    assert.equal(connected.length, NODES - 1)
    assert.ok(Math.max(...connected) <= STANDING + 1, String(connected))
    await allAnswer(all.map(({ number }) => number))
    await start(MOVED, hub!.addresses)
    await allAnswer(MOVED)
  },
)
