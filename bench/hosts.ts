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

/** Input of a process that simulates hosts. */
export interface HostsInit {
  readonly count: number
  readonly root: string
  /** The card of the requester that may run `true`. */
  readonly card: string
}

/** Number of hosts that are created concurrently. Most of the time is waiting for disks. */
const AT_ONCE = 8

interface Common {
  readonly root: string
  readonly requester: VerifiedCard
  /** One cleanup process for all hosts. It costs one line per run, and a separate one would be most of a host's cost. */
  readonly cleanup: CleanupProcess
  readonly after: (ending: unknown) => void
}

/** A passive host that lets the requester run `true`. An active one would also process the presences of all other hosts. */
const startHost = async ({ root, requester, cleanup, after }: Common): Promise<string> => {
  const dataDir = await mkdtemp(join(root, 'host-'))
  await introduceIn(dataDir, [{ card: requester }], 'trusted')
  await allowIn(dataDir, [requester], TRUE)
  const { node } = await startPeer({ after }, { name: 'host', dataDir, cleanup, passive: true })
  return encodeCardLink(await signedCardIn(dataDir, 'host', () => node.addresses()))
}

// Runs several hosts without interfaces in one process, because hundreds of real daemons would be too large. Every answer is their cards.
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
