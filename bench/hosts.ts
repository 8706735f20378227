import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { decodeCardLink, encodeCardLink, signCard, verifyCard, type VerifiedCard } from '../src/identity/card.ts'
import { CARD_DOMAIN } from '../src/protocol/card.ts'
import { Contacts } from '../src/trust/contacts.ts'
import { startPeer, type Peer } from '../test/support/peer.ts'
import { TRUE } from './pair.ts'

/** What a process of hosts is told, as its only argument. */
export interface HostsInit {
  readonly count: number
  readonly root: string
  /** The card of who may run. */
  readonly card: string
}

const CARD_MS = 3_600_000

const cardOf = async ({ signer, machineId, node }: Peer): Promise<string> => {
  const now = Date.now()
  const body = {
    version: 1 as const,
    agent_public_key: signer.publicKey,
    machine_id: machineId,
    name: 'host',
    addresses: node.addresses(),
    issued_at_ms: now,
    expires_at_ms: now + CARD_MS,
  }
  return encodeCardLink(await signCard(signer, body, CARD_DOMAIN))
}

/** Hosts that are made at the same time: most of it is to wait for disks and processes. */
const AT_ONCE = 8

/** One host that lets the requester run `true`. A passive one: what announcements cost is another measurement, and hosts of one machine would hear those of all. */
const startHost = async (
  { root, requester }: { root: string; requester: VerifiedCard },
  after: (ending: unknown) => void,
): Promise<string> => {
  const dataDir = await mkdtemp(join(root, 'host-'))
  await mkdir(join(dataDir, 'runs'), { mode: 0o700 })
  const contacts = new Contacts({ path: join(dataDir, 'contacts.json') })
  await contacts.load()
  await contacts.importCard(requester, { trust: 'trusted' })
  await contacts.pin(requester.agentId, requester.machineId)
  const entry = `[[exec.allow]]\nagent_id = "${requester.agentId}"\nmachine_id = "${requester.machineId}"\n[[exec.allow.commands]]\nargv = ["${TRUE.join('", "')}"]\n`
  const head = `[exec]\nenabled = true\naudit_log_path = "${join(dataDir, 'exec.log')}"\ndefault_cwd = "/"\n`
  await writeFile(join(dataDir, 'exec-acl.toml'), `${head}\n${entry}`, { mode: 0o600 })
  return cardOf(await startPeer({ after }, { name: 'host', dataDir, passive: true }))
}

/** Several whole hosts without doors in one process, as real ones are too large to have hundreds: says their cards, then waits for the end of its input. */
const main = async ({ count, root, card }: HostsInit): Promise<void> => {
  const endings: (() => unknown)[] = []
  const after = (ending: unknown): void => void endings.push(ending as () => unknown)
  const requester = verifyCard(decodeCardLink(card), CARD_DOMAIN, Date.now())
  const cards: string[] = []
  while (cards.length < count) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - cards.length) }, async () => startHost({ root, requester }, after))
    cards.push(...(await Promise.all(some)))
  }
  process.stdout.write(`${cards.join('\n')}\n\n`)
  process.stdin.resume()
  await new Promise((resolve) => process.stdin.once('end', resolve))
  await Promise.all(endings.map(async (ending) => ending()))
}

await main(JSON.parse(process.argv[2] ?? '') as HostsInit)
