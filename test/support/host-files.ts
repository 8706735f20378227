import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { loadOrCreateAgentKey } from '../../src/identity/agent-key.ts'
import { signCard, verifyCard, type VerifiedCard } from '../../src/identity/card.ts'
import { loadOrCreateMachineKey } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { CARD_DOMAIN, type SignedCard } from '../../src/protocol/wire/card.ts'
import { Contacts } from '../../src/trust/contacts.ts'

// The files of a daemon that does not run, of which there are too many to tell each what it needs to know by its command line.

const CARD_MS = 3_600_000

/** The card of the agent and machine that have their keys there; made where they are not there yet. */
export const signedCardIn = async (dir: string, name: string, addresses: (peerId: string) => readonly string[]): Promise<SignedCard> => {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  const [signer, machine] = [await loadOrCreateAgentKey(dir), await loadOrCreateMachineKey(dir)]
  const now = Date.now()
  const body = {
    version: 1 as const,
    agent_public_key: signer.publicKey,
    machine_id: machine.machineId,
    name,
    addresses: [...addresses(peerIdOf(machine.machineId))],
    issued_at_ms: now,
    expires_at_ms: now + CARD_MS,
  }
  return signCard(signer, body, CARD_DOMAIN)
}

/** As it may be imported. */
export const cardIn = async (...of: Parameters<typeof signedCardIn>): Promise<VerifiedCard> =>
  verifyCard(await signedCardIn(...of), CARD_DOMAIN, Date.now())

/** Puts these into its contacts with one write; pinned to their machines where they are trusted. */
export const introduceIn = async (
  dir: string,
  others: readonly { readonly card: VerifiedCard; readonly name?: string }[],
  trust: 'known' | 'trusted',
): Promise<void> => {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  const contacts = new Contacts({ path: join(dir, 'contacts.json') })
  await contacts.load()
  const changes = others.flatMap(({ card, name }) => [
    contacts.importCard(card, { trust, ...(name !== undefined && { name }) }),
    ...(trust === 'trusted' ? [contacts.pin(card.agentId, card.machineId)] : []),
  ])
  await Promise.all(changes)
}

/** Lets each of these run this one command there, in this directory. */
export const allowIn = async (
  dir: string,
  whom: readonly Pick<VerifiedCard, 'agentId' | 'machineId'>[],
  argv: readonly string[],
  cwd = '/',
): Promise<void> => {
  await mkdir(join(dir, 'runs'), { recursive: true, mode: 0o700 })
  const head = `[exec]\nenabled = true\naudit_log_path = ${JSON.stringify(join(dir, 'exec.log'))}\ndefault_cwd = ${JSON.stringify(cwd)}\n`
  const entries = whom.map(
    ({ agentId, machineId }) =>
      `[[exec.allow]]\nagent_id = "${agentId}"\nmachine_id = "${machineId}"\n[[exec.allow.commands]]\nargv = ${JSON.stringify(argv)}\n`,
  )
  await writeFile(join(dir, 'exec-acl.toml'), [head, ...entries].join('\n'), { mode: 0o600 })
}
