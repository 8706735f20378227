import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { decodeCardLink, verifyCard } from '../src/identity/card.ts'
import { CARD_DOMAIN } from '../src/protocol/card.ts'
import { Contacts } from '../src/trust/contacts.ts'
import type { TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { HostsInit } from './hosts.ts'
import { restClientOf, TRUE } from './pair.ts'
import { sustained } from './rate.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize, timed } from './stats.ts'

const HOSTS = { full: 200, quick: 20 }
const PER_PROCESS = 25
const SSH_WIDTH = 32
const ROUNDS = { full: 15, quick: 3 }
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

/** One requester, many hosts, all at once. */
export const fanout = async ({ mesh, openSsh, plan, after }: Stage): Promise<Omit<Section, 'title'>> => {
  const count = HOSTS[plan.mode]
  const ssh = (await openSsh()).direct
  const alice = mesh.add('alice')
  await alice.start()
  const card = (await alice.ok('card')).trim()
  await alice.stop()
  const hosts: Hosts[] = []
  for (let left = count; left > 0; left -= PER_PROCESS) {
    const some = await startHosts({ count: Math.min(left, PER_PROCESS), root: mesh.root, card })
    hosts.push(some)
    after(async () => some.stop())
  }
  const ids = await introduce(
    alice,
    hosts.flatMap(({ cards }) => cards),
  )
  await alice.start()
  const client = await restClientOf(alice)
  const runOn = async (id: string): Promise<void> => client.run(id, TRUE)
  const all = async (): Promise<unknown> => Promise.all(ids.map(runOn))
  // Links, once each; what follows is warm.
  const first = await timed(all)
  await all()
  const each: number[] = []
  const results = await interleaved(ROUNDS[plan.mode], {
    ours: async () => Promise.all(ids.map(async (id) => each.push(await timed(async () => runOn(id))))),
  })
  const denied = await interleaved(ROUNDS[plan.mode], {
    ours: async () => Promise.all(ids.map(async (id) => client.post('/exec/run', { agent_id: id, argv: ['/bin/false'] }))),
  })
  const theirs = await timed(async () => sustained(count, SSH_WIDTH, async () => ssh.cold(TRUE)))
  client.close()
  const peer = `ssh, cold, ${SSH_WIDTH} at a time`
  const common = { unit: 'ms', theirs: summarize([theirs]), peer } as const
  const rows: Row[] = [
    { what: `${count} warm hosts, one run each`, ours: results.ours, ...common, target: '≤ 0.02' },
    { what: `${count} warm hosts, one denial each: no command is started`, ours: denied.ours, ...common },
    { what: `${count} hosts never dialled, one run each`, ours: summarize([first]), ...common },
    { what: `each of ${count} warm runs at once`, unit: 'ms', ours: summarize(each) },
  ]
  return {
    intro: `\`/bin/true\` through one daemon's REST door on ${count} hosts, ${PER_PROCESS} of them in a process, all on these cores; ssh calls one server as often.`,
    rows,
  }
}
