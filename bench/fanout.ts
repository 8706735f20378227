import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { decodeCardLink, verifyCard } from '../src/identity/card.ts'
import { CARD_DOMAIN } from '../src/protocol/card.ts'
import { Contacts } from '../src/trust/contacts.ts'
import type { TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { RestClient } from '../test/support/rest-client.ts'
import type { HostsInit } from './hosts.ts'
import type { FanoutLedgerJson } from '../src/protocol/fanout.ts'
import { restClientOf, TRUE } from './pair.ts'
import { cpuOfAll } from './processes.ts'
import { sustained } from './rate.ts'
import type { Row, Section } from './report.ts'
import type { Plan, Stage } from './stage.ts'
import { interleaved, summarize, timed, type Summary } from './stats.ts'

const HOSTS = { full: 200, quick: 50 }
const FLEET = { full: 1_000, quick: 50 }
const PER_PROCESS = { full: 125, quick: 25 }
const SSH_WIDTH = 32
const ROUNDS = { full: 8, quick: 3 }
const PROGRAM = fileURLToPath(new URL('hosts.ts', import.meta.url))

interface Hosts {
  readonly cards: readonly string[]
  stop(): Promise<void>
}

const startHosts = async (init: HostsInit): Promise<Hosts> => {
  const child: ChildProcess = spawn(process.execPath, [PROGRAM, JSON.stringify(init)], { stdio: ['pipe', 'pipe', 'inherit'] })
  let text = ''
  for await (const part of child.stdout ?? []) {
    text += String(part)
    if (text.endsWith('\n\n')) break
  }
  const stop = async (): Promise<void> => {
    const exited = once(child, 'exit')
    child.stdin?.end()
    await exited
  }
  return { cards: text.trim().split('\n'), stop }
}

/** Into the file of a daemon that does not run. */
const introduce = async ({ dir }: TestDaemon, cards: readonly string[]): Promise<string[]> => {
  const contacts = new Contacts({ path: join(dir, 'contacts.json') })
  await contacts.load()
  const ids: string[] = []
  for (const card of cards) {
    const verified = verifyCard(decodeCardLink(card), CARD_DOMAIN, Date.now())
    await contacts.importCard(verified, { trust: 'known' })
    ids.push(verified.agentId)
  }
  return ids
}

/** One requester and many hosts that let it run `true`. */
interface Fleet {
  readonly alice: TestDaemon
  readonly client: RestClient
  readonly ids: readonly string[]
}

const startFleet = async ({ mesh, plan, after }: Pick<Stage, 'mesh' | 'plan' | 'after'>, count: number): Promise<Fleet> => {
  const alice = mesh.add('alice')
  await alice.start()
  const card = (await alice.ok('card')).trim()
  await alice.stop()
  const cards: string[] = []
  for (let left = count; left > 0; left -= PER_PROCESS[plan.mode]) {
    const some = await startHosts({ count: Math.min(left, PER_PROCESS[plan.mode]), root: mesh.root, card })
    cards.push(...some.cards)
    after(async () => some.stop())
  }
  const ids = await introduce(alice, cards)
  await alice.start()
  return { alice, client: await restClientOf(alice), ids }
}

/** One fan-out to its end; throws unless it came to this on every host. */
const fanOut = async ({ client, ids }: Fleet, argv: readonly string[], all: 'ran' | 'denied'): Promise<void> => {
  const text = await client.post('/exec/fanout', { hosts: ids, argv }, { accept: 'application/x-ndjson' })
  const lines = text.trimEnd().split('\n')
  const ledger = JSON.parse(lines.at(-1)!) as FanoutLedgerJson
  const others = lines.filter((line) => line.startsWith('{"type":"host"') && !line.includes(`"end":"${all}"`))
  if (ledger[all] !== ids.length || ledger.failed > 0) throw new Error([...others.slice(0, 3), lines.at(-1)].join('\n'))
}

/** What the requester's two processes take for each host. */
const cpuPerHost = async (
  fleet: Fleet,
  argv: readonly string[],
  all: 'ran' | 'denied',
  rounds: number,
): Promise<Record<'both' | 'executor', Summary>> => {
  const { alice, ids } = fleet
  const sides = { both: [alice.pid, await alice.networkPid()], executor: [alice.pid] }
  const samples = { both: [] as number[], executor: [] as number[] }
  for (let round = 0; round < rounds; round++) {
    const before = { both: await cpuOfAll(sides.both), executor: await cpuOfAll(sides.executor) }
    await fanOut(fleet, argv, all)
    for (const side of ['both', 'executor'] as const) samples[side].push(((await cpuOfAll(sides[side])) - before[side]) / ids.length)
  }
  return { both: summarize(samples.both), executor: summarize(samples.executor) }
}

/** A run on the first host while the fan-out goes on, again and again. */
const besides = async (fleet: Fleet): Promise<Summary> => {
  const samples: number[] = []
  const state = { over: false }
  const going = fanOut(fleet, TRUE, 'ran').finally(() => (state.over = true))
  while (!state.over) samples.push(await timed(async () => fleet.client.run(fleet.ids[0]!, TRUE)))
  await going
  return summarize(samples)
}

const measured = async (fleet: Fleet, plan: Plan): Promise<{ rows: Row[]; warm: Summary; first: Summary }> => {
  const count = fleet.ids.length
  const first = await timed(async () => fanOut(fleet, TRUE, 'ran'))
  // The runtime compiles what it finds to be hot: not part of what is warm.
  for (let round = 0; round < 3; round++) await fanOut(fleet, TRUE, 'ran')
  const { warm } = await interleaved(ROUNDS[plan.mode], { warm: async () => fanOut(fleet, TRUE, 'ran') })
  const { denied } = await interleaved(ROUNDS[plan.mode], { denied: async () => fanOut(fleet, ['/bin/false'], 'denied') })
  const cpu = await cpuPerHost(fleet, TRUE, 'ran', ROUNDS[plan.mode])
  const { alone } = await interleaved(ROUNDS[plan.mode], { alone: async () => fleet.client.run(fleet.ids[0]!, TRUE) })
  const rows: Row[] = [
    { what: `${count} warm hosts, one denial each: no command is started`, unit: 'ms', ours: denied },
    { what: `requester's processor time for each of ${count} warm hosts, both halves`, unit: 'ms CPU', ours: cpu.both, target: '≤ 2' },
    { what: 'of it the executor, which signs and journals', unit: 'ms CPU', ours: cpu.executor },
    {
      what: `one run by itself while a fan-out to ${count} goes on`,
      unit: 'ms',
      ours: await besides(fleet),
      theirs: alone,
      peer: 'without one',
    },
  ]
  return { rows, warm, first: summarize([first]) }
}

const INTRO = '`/bin/true` by one `POST /exec/fanout`, 64 hosts at a time, many hosts in a process and all on these cores'

/** One requester, many hosts. */
export const fanout = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { openSsh, plan } = stage
  const count = HOSTS[plan.mode]
  const sshd = await openSsh()
  const fleet = await startFleet(stage, count)
  const { rows, warm, first } = await measured(fleet, plan)
  const ssh = summarize([await timed(async () => sustained(count, SSH_WIDTH, async () => sshd.direct.cold(TRUE)))])
  const clush = await sshd.clush(count, SSH_WIDTH, TRUE)
  fleet.client.close()
  const beside = { theirs: ssh, peer: `ssh, cold, ${SSH_WIDTH} at a time`, unit: 'ms' } as const
  return {
    intro: `${INTRO}; ssh and clush call one server as often.`,
    rows: [
      { what: `${count} warm hosts, one run each`, ours: warm, ...beside, target: '≤ 0.02' },
      ...(clush === null
        ? []
        : [
            {
              what: `${count} warm hosts, one run each`,
              unit: 'ms',
              ours: warm,
              theirs: summarize([clush]),
              peer: `clush -f ${SSH_WIDTH}`,
            } as const,
          ]),
      { what: `${count} hosts never dialled, one run each`, ours: first, ...beside },
      ...rows,
    ],
  }
}

/** The same of a thousand, without a peer: one server would be asked a thousand times. */
export const fleet = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const count = FLEET[stage.plan.mode]
  const many = await startFleet(stage, count)
  const { rows, warm, first } = await measured(many, stage.plan)
  many.client.close()
  return {
    intro: `${INTRO}.`,
    rows: [
      { what: `${count} warm hosts, one run each`, unit: 'ms', ours: warm },
      { what: `${count} hosts never dialled, one run each`, unit: 'ms', ours: first },
      ...rows,
    ],
  }
}
