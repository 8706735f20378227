import { mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'

import { silentLogger } from '../src/base/log.ts'
import { decodeCardLink, encodeCardLink, verifyCard, type VerifiedCard } from '../src/identity/card.ts'
import { CleanupProcess } from '../src/process/cleanup-process.ts'
import { CARD_DOMAIN } from '../src/protocol/wire/card.ts'
import { allowIn, introduceIn, signedCardIn } from '../test/support/host-files.ts'
import { answerQuestions } from '../test/support/host-process.ts'
import { startPeer } from '../test/support/peer.ts'
import { TRUE } from './pair.ts'

/** What a process of hosts is told. */
export interface HostsInit {
  readonly count: number
  readonly root: string
  /** The card of who may run. */
  readonly card: string
}

/** Hosts that are made at the same time: most of it is to wait for disks. */
const AT_ONCE = 8

interface Common {
  readonly root: string
  readonly requester: VerifiedCard
  /** One for all: what it costs is a line for each run, and to start one for each would be most of a host. */
  readonly cleanup: CleanupProcess
  readonly after: (ending: unknown) => void
}

/** One host that lets the requester run `true`. A passive one: what presences cost is another measurement, and hosts of one machine would hear those of all. */
const startHost = async ({ root, requester, cleanup, after }: Common): Promise<string> => {
  const dataDir = await mkdtemp(join(root, 'host-'))
  await introduceIn(dataDir, [{ card: requester }], 'trusted')
  await allowIn(dataDir, [requester], TRUE)
  const { node } = await startPeer({ after }, { name: 'host', dataDir, cleanup, passive: true })
  return encodeCardLink(await signedCardIn(dataDir, 'host', () => node.addresses()))
}

// Several whole hosts without doors in one process, as real ones are too large to have hundreds. Asked whatever, it answers their cards.
await answerQuestions(async ({ count, root, card }: HostsInit) => {
  const endings: (() => unknown)[] = []
  const after = (ending: unknown): void => void endings.push(ending as () => unknown)
  const cleanup = new CleanupProcess({ log: silentLogger })
  cleanup.start()
  const common = { root, requester: verifyCard(decodeCardLink(card), CARD_DOMAIN, Date.now()), cleanup, after }
  const cards: string[] = []
  while (cards.length < count)
    cards.push(...(await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - cards.length) }, async () => startHost(common)))))
  const stop = async (): Promise<void> => {
    await Promise.all(endings.map(async (ending) => ending()))
    await cleanup.stop()
  }
  return { answer: async () => cards, stop }
})
