import { availableParallelism, loadavg } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'

import { decodeCardLink, verifyCard } from '../src/identity/card.ts'
import { CARD_DOMAIN } from '../src/protocol/wire/card.ts'
import { introduceIn } from '../test/support/host-files.ts'
import { HostProcess } from '../test/support/host-process.ts'
import type { TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { RestClient } from '../test/support/rest-client.ts'
import { startDeadHosts } from './dead-hosts.ts'
import type { HostsInit } from './hosts.ts'
import type { FanoutLedgerJson } from '../src/protocol/api/fanout.ts'
import { restClientOf, TRUE } from './pair.ts'
import { cpuOfAll, cpuOfPrograms } from './processes.ts'
import { sustained } from './rate.ts'
import type { Row, Section } from './report.ts'
import type { Plan, Stage } from './stage.ts'
import { interleaved, summarize, timed, type Summary } from './stats.ts'

const HOSTS = { full: 200, quick: 50 }
const FLEET = { full: 1_000, quick: 50 }
const PER_PROCESS = { full: 100, quick: 25 }
const SSH_WIDTH = 32
const MB = 1e6
const ROUNDS = { full: 8, quick: 3 }
/** Time limit of each measurement, after which it uses the completed rounds. A round of many hosts is slow on a busy machine. */
const MEASURE_MS = 10_000
/** Minimum number of rounds, regardless of the time. A single round shows no variation. */
const FEWEST_ROUNDS = 3
/** Runs after the first dials, until the runtime has compiled the hot code. */
const WARM_UP_RUNS = 800
/** How long the idle cost of the links is measured, before any link needs a ping. */
const IDLE_MS = 5_000
/** Number of separate runs that are measured during fan-outs. */
const BESIDE_RUNS = 400
/** Duration of a fan-out to unresponsive hosts. Trying all of them would take minutes. */
const DEAD_MS = 8_000
/** More hosts than can be tried in that time. */
const DEAD = 100
/** Passes that may dial hosts. After them, every host must be linked. */
const COLD_PASSES = 4
const PROGRAM = new URL('hosts.ts', import.meta.url)

/** Writes contacts into the file of a stopped daemon, and returns the agent IDs. */
const introduce = async ({ dir }: TestDaemon, links: readonly string[]): Promise<string[]> => {
  const cards = links.map((link) => verifyCard(decodeCardLink(link), CARD_DOMAIN, Date.now()))
  await introduceIn(
    dir,
    cards.map((card) => ({ card })),
    'known',
  )
  return cards.map(({ agentId }) => agentId)
}

/** One requester and many hosts that let it run `true`. */
interface Fleet {
  readonly alice: TestDaemon
  readonly client: RestClient
  readonly ids: readonly string[]
  /** Another host in a separate process that no fan-out includes. */
  readonly aside: string
  /** Hosts that never answer. */
  readonly dead: readonly string[]
}

export const startFleet = async ({ mesh, plan, after }: Pick<Stage, 'mesh' | 'plan' | 'after'>, count: number): Promise<Fleet> => {
  const alice = mesh.add('alice')
  await alice.start()
  const card = (await alice.ok('card')).trim()
  await alice.stop()
  const perProcess = PER_PROCESS[plan.mode]
  const startSome = async (some: number): Promise<readonly string[]> => {
    const hosts = new HostProcess(PROGRAM, { count: some, root: mesh.root, card } satisfies HostsInit)
    after(async () => hosts.stop())
    return hosts.ask<string[]>('cards')
  }
  const cards: string[] = []
  await sustained(Math.ceil(count / perProcess), availableParallelism(), async () => cards.push(...(await startSome(perProcess))))
  const aside = await introduce(alice, await startSome(1))
  const deadHosts = await startDeadHosts(DEAD)
  after(async () => deadHosts.stop())
  const ids = await introduce(alice, cards)
  const dead = await introduce(alice, deadHosts.cards)
  await alice.start()
  return { alice, client: await restClientOf(alice), ids, aside: aside[0]!, dead }
}

/** Runs one fan-out to its end and returns its ledger and host results. */
const asked = async ({ client }: Fleet, body: Record<string, unknown>): Promise<{ ledger: FanoutLedgerJson; hosts: string[] }> => {
  const lines = (await client.post('/exec/fanout', body, { accept: 'application/x-ndjson' })).trimEnd().split('\n')
  return { ledger: JSON.parse(lines.at(-1)!) as FanoutLedgerJson, hosts: lines.filter((line) => line.startsWith('{"type":"host"')) }
}

/** Runs one fan-out to its end. Throws unless every host has this result. */
const fanOut = async (fleet: Fleet, argv: readonly string[], all: 'ran' | 'denied'): Promise<void> => {
  const { ledger, hosts } = await asked(fleet, { hosts: fleet.ids, argv })
  const others = hosts.filter((line) => !line.includes(`"end":"${all}"`))
  if (ledger[all] !== fleet.ids.length || ledger.failed > 0) throw new Error([...others.slice(0, 3), JSON.stringify(ledger)].join('\n'))
}

/** Measures the first pass, and repeats it until every host is linked. On a busy machine, some dials of the first pass time out. */
const coldPass = async (fleet: Fleet): Promise<{ ms: number; ran: number }> => {
  const body = { hosts: fleet.ids, argv: TRUE }
  const started = performance.now()
  const { ledger } = await asked(fleet, body)
  const ms = performance.now() - started
  for (let pass = 1, { ran } = ledger; ran < fleet.ids.length; pass++) {
    const { ledger: again, hosts } = await asked(fleet, body)
    ran = again.ran
    const others = hosts.filter((line) => !line.includes('"end":"ran"'))
    if (pass === COLD_PASSES && ran < fleet.ids.length) throw new Error([...others.slice(0, 3), JSON.stringify(again)].join('\n'))
  }
  return { ms, ran: ledger.ran }
}

/** Repeats the call for this number of rounds, or until the time limit, but at least `FEWEST_ROUNDS` times. */
const repeated = async (rounds: number, call: () => Promise<unknown>): Promise<void> => {
  const end = performance.now() + MEASURE_MS
  for (let round = 0; round < rounds && (round < FEWEST_ROUNDS || performance.now() < end); round++) await call()
}

/** Measures the duration of a fan-out, and the processor time of the requester's two processes per host. */
const warmPasses = async (fleet: Fleet, rounds: number): Promise<Record<'wall' | 'both' | 'executor', Summary>> => {
  const { alice, ids } = fleet
  const sides = { both: [alice.pid, await alice.networkPid()], executor: [alice.pid] }
  const samples = { wall: [] as number[], both: [] as number[], executor: [] as number[] }
  await repeated(rounds, async () => {
    const before = { both: await cpuOfAll(sides.both), executor: await cpuOfAll(sides.executor) }
    samples.wall.push(await timed(async () => fanOut(fleet, TRUE, 'ran')))
    for (const side of ['both', 'executor'] as const) samples[side].push(((await cpuOfAll(sides[side])) - before[side]) / ids.length)
  })
  return { wall: summarize(samples.wall), both: summarize(samples.both), executor: summarize(samples.executor) }
}

/** Measures runs on several hosts in turn during other work. */
const besides = async (fleet: Fleet, hosts: readonly string[], goesOn: () => Promise<unknown>): Promise<Summary[]> => {
  const samples: number[][] = hosts.map(() => [])
  const state = { over: false }
  const going = goesOn().finally(() => (state.over = true))
  for (let turn = 0; !state.over || turn < hosts.length; turn++)
    samples[turn % hosts.length]!.push(await timed(async () => fleet.client.run(hosts[turn % hosts.length]!, TRUE)))
  await going
  return samples.map(summarize)
}

/** Processor time per second of the requester's processes without requests. */
const idle = async ({ alice }: Fleet): Promise<Summary> => {
  const pids = [alice.pid, await alice.networkPid()]
  const before = await cpuOfAll(pids)
  await sleep(IDLE_MS)
  return summarize([((await cpuOfAll(pids)) - before) / (IDLE_MS / 1_000)])
}

const denials = async (fleet: Fleet, rounds: number): Promise<Summary> => {
  const samples: number[] = []
  await repeated(rounds, async () => samples.push(await timed(async () => fanOut(fleet, ['/bin/false'], 'denied'))))
  return summarize(samples)
}

interface Measured {
  readonly rows: Row[]
  readonly warm: Summary
  /** Processor time of the requester, per host. */
  readonly cpu: Summary
  readonly first: Summary
  readonly note: string
}

const measured = async (fleet: Fleet, plan: Plan): Promise<Measured> => {
  const count = fleet.ids.length
  const cold = await coldPass(fleet)
  const rounds = ROUNDS[plan.mode]
  for (let runs = 0; runs < WARM_UP_RUNS; runs += count) await fanOut(fleet, TRUE, 'ran')
  const warm = await warmPasses(fleet, rounds)
  const atRest = await idle(fleet)
  const memory = summarize([(await fleet.alice.memory()) / MB])
  const denied = await denials(fleet, rounds)
  const { theirs } = await interleaved(5 * rounds, { theirs: async () => fleet.client.run(fleet.aside, TRUE) })
  const alone = { theirs, peer: 'the same without it', unit: 'ms' } as const
  const asksAll = async (): Promise<void> => repeated(Math.ceil(BESIDE_RUNS / count), async () => fanOut(fleet, TRUE, 'ran'))
  const [byItself, amongThem] = await besides(fleet, [fleet.aside, fleet.ids[0]!], asksAll)
  const asksDead = async (): Promise<unknown> => asked(fleet, { hosts: fleet.dead, argv: TRUE, deadline_ms: DEAD_MS })
  const [besideDead] = await besides(fleet, [fleet.aside], asksDead)
  const rows: Row[] = [
    { what: `${count} connected hosts, one denial each, without a program`, unit: 'ms', ours: denied },
    {
      what: `processor time of the requester for each of ${count} connected hosts, both processes`,
      unit: 'ms CPU',
      ours: warm.both,
      target: '≤ 1.5',
    },
    { what: 'of this, the executor process, which signs and logs', unit: 'ms CPU', ours: warm.executor },
    {
      what: `both processes, each second in the ${IDLE_MS / 1_000} seconds afterwards, with ${count} connected hosts`,
      unit: 'ms CPU',
      ours: atRest,
    },
    { what: `both processes of the requester with ${count} connected hosts, resident memory`, unit: 'MB', ours: memory },
    { what: `one run while a fan-out to ${count} is running, on a host outside of it`, ours: byItself!, ...alone },
    { what: `the same, on one of its hosts, with ${PER_PROCESS[plan.mode] - 1} others in its process`, ours: amongThem!, ...alone },
    { what: `one run while ${DEAD} unreachable hosts are dialled`, ours: besideDead!, ...alone },
  ]
  const missed = count - cold.ran
  const note = missed === 0 ? '' : ` In the first pass ${missed} of ${count} hosts did not answer in time.`
  const [busy = 0] = loadavg()
  return { rows, warm: warm.wall, cpu: warm.both, first: summarize([cold.ms]), note: `${note} Load of the machine: ${busy.toFixed(0)}.` }
}

const INTRO = '`/bin/true` by one `POST /exec/fanout`, 64 hosts at a time. Many hosts share a process, and all share these cores'

/** Measures one requester with many hosts. */
export const fanout = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { openSsh, plan } = stage
  const count = HOSTS[plan.mode]
  const sshd = await openSsh()
  const fleet = await startFleet(stage, count)
  const { rows, warm, cpu, first, note } = await measured(fleet, plan)
  const before = await cpuOfPrograms()
  const ssh = summarize([await timed(async () => sustained(count, SSH_WIDTH, async () => sshd.direct.cold(TRUE)))])
  const sshClient = summarize([((await cpuOfPrograms()) - before) / count])
  const clush = await sshd.clush(count, SSH_WIDTH, TRUE)
  fleet.client.close()
  const beside = { theirs: ssh, peer: `a new ssh connection, ${SSH_WIDTH} at a time`, unit: 'ms' } as const
  return {
    intro: `${INTRO}. ssh and clush call one server as often.${note}`,
    rows: [
      { what: `${count} connected hosts, one run each`, ours: warm, ...beside, target: '≤ 0.02' },
      ...(clush === null
        ? []
        : [
            {
              what: `${count} connected hosts, one run each`,
              unit: 'ms',
              ours: warm,
              theirs: summarize([clush]),
              peer: `clush -f ${SSH_WIDTH}`,
            } as const,
          ]),
      { what: `${count} new hosts, one run each`, ours: first, ...beside },
      {
        what: `processor time of the requester for each of ${count} connected hosts`,
        unit: 'ms CPU',
        ours: cpu,
        theirs: sshClient,
        peer: 'the ssh clients',
      },
      ...rows,
    ],
  }
}

/** Measures the same with a thousand hosts. It has no comparison, because ssh would send a thousand requests to one server. */
export const fleet = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const count = FLEET[stage.plan.mode]
  const many = await startFleet(stage, count)
  const { rows, warm, first, note } = await measured(many, stage.plan)
  many.client.close()
  return {
    intro: `${INTRO}.${note}`,
    rows: [
      { what: `${count} connected hosts, one run each`, unit: 'ms', ours: warm },
      { what: `${count} new hosts, one run each`, unit: 'ms', ours: first },
      ...rows,
    ],
  }
}
