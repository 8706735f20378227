import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { LINK_HANDSHAKE_MS } from '../../src/protocol/limits/wire.ts'
import { aliceBobCharlie, MeshOfDaemons, type CliResult, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { ATTACKS, type Attack } from './attacks.ts'

/** Longer than the longest wait that an attack can cause: a handshake that the attacker does not finish (limits.ts). */
const ATTACK_MS = LINK_HANDSHAKE_MS + 1_000
/** Ten lines a second, for longer than the attack. */
const TICKS = 90
const MIB = 1024 * 1024
/**
 * Maximum growth of the network process and the executor process together. It covers what the rate limits let in at once, and a young heap
 * before garbage collection.
 */
const MAX_GROWTH = 256 * MIB

/** Processor time of a process in milliseconds. The clock of /proc ticks 100 times per second. */
const processorMs = (pid: number): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[11]) + Number(fields[12])) * 10
}

interface Cost {
  readonly network: number
  readonly executor: number
}

const costOf = async (daemon: TestDaemon): Promise<Cost> => ({
  network: processorMs(await daemon.networkPid()),
  executor: processorMs(daemon.pid),
})

/** Peak memory of the network process and the executor process, measured ten times per second. */
const watchMemory = (daemon: TestDaemon, signal: AbortSignal): Promise<number> =>
  (async () => {
    let most = 0
    while (!signal.aborted) {
      most = Math.max(most, await daemon.memory())
      await sleep(100)
    }
    return most
  })()

/** A first connection from the address of the attacker can exceed the limit of connections without a handshake. The next one succeeds. */
const TRIES_OF_A_NEWCOMER = 3

const firstCommand = async (charlie: TestDaemon, bob: TestDaemon): Promise<CliResult> => {
  for (let attempt = 1; ; attempt++) {
    const result = await charlie.exec(bob, ['echo', '8'])
    if (result.status === 0 || attempt === TRIES_OF_A_NEWCOMER) return result
  }
}

/** Starts new commands during the attack, also from a peer that connects in the middle. Returns the time of the slowest in milliseconds. */
const servedMeanwhile = async (name: string, alice: TestDaemon, charlie: TestDaemon, bob: TestDaemon, began: number): Promise<number> => {
  const starting = charlie.start().then(async () => firstCommand(charlie, bob))
  let slowest = 0
  while (performance.now() - began < ATTACK_MS) {
    const { status, stderr, ms } = await alice.exec(bob, ['echo', '7'])
    assert.equal(status, 0, `a command beside ${name}: ${stderr}`)
    slowest = Math.max(slowest, ms)
    await sleep(200)
  }
  const late = await starting
  assert.equal(late.status, 0, `the first command of a peer that came in the middle: ${late.stderr}`)
  return slowest
}

/** Runs a command of alice through the whole attack. Meanwhile new commands start, also from a peer that connects only then. */
const besideAttack = async (t: TestContext, name: string, attack: Attack): Promise<void> => {
  const mesh = await MeshOfDaemons.create('x0x-campaign-')
  t.after(() => mesh.stop())
  const ticks = await mesh.program('ticks', `i=0; while [ $i -lt ${TICKS} ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 7`)
  const { alice, bob, charlie } = await aliceBobCharlie(mesh, [[ticks], ['echo', '<INT>']])
  await charlie.stop()
  await bob.writeAcl([alice, charlie].map((agent) => ({ agent, commands: [[ticks], ['echo', '<INT>']] })))
  await bob.restart()
  const [address = ''] = (await bob.json<{ addresses: string[] }>('id')).addresses
  const card = (await bob.ok('card')).trim()
  const running = alice.startCli(['exec', 'bob', '--', ticks])
  await running.printed('1\n')

  const [before, memory] = [await costOf(bob), await bob.memory()]
  const began = performance.now()
  const over = new AbortController()
  const most = watchMemory(bob, over.signal)
  const attacking = attack(t, { address, card, signal: over.signal })
  const served = await servedMeanwhile(name, alice, charlie, bob, began).finally(() => over.abort())
  const [after, secs] = [await costOf(bob), (performance.now() - began) / 1000]
  await attacking

  const share = (half: keyof Cost): string => `${Math.round((after[half] - before[half]) / secs / 10)} %`
  const growth = (await most) - memory
  const { penalties, refused } = await bob.json<{ penalties: { offence: string }[]; refused: Record<string, number> }>(
    'diagnostics',
    'mesh',
  )
  const why = [
    ...new Set(penalties.map(({ offence }) => offence)),
    ...Object.entries(refused).flatMap(([reason, count]) => (count > 0 ? [reason] : [])),
  ]
  t.diagnostic(
    `| ${name} | ${share('network')} | ${share('executor')} | ${Math.round(growth / MIB)} MiB | ${Math.round(served)} ms | ${why.join(', ')} |`,
  )
  const { status, stdout, stderr } = await running.finished
  assert.equal(status, 7, `the command that ran through ${name}: ${stderr}`)
  assert.equal(stdout.toString(), Array.from({ length: TICKS }, (_, i) => `${i}\n`).join(''))
  assert.ok(growth < MAX_GROWTH, `grew by ${Math.round(growth / MIB)} MiB`)
}

test('the attack campaign lists its attacks', (t) =>
  t.diagnostic('| attack | network half | executor | memory | slowest command | held against it |'))
for (const [name, attack] of Object.entries(ATTACKS))
  test(`the target serves a trusted peer while an unlisted peer attacks at full speed with ${name}`, { timeout: 120_000 }, async (t) =>
    besideAttack(t, name, attack),
  )
