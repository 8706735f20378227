import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { loadOrCreateAgentKey } from '../../src/identity/agent-key.ts'
import { signCard, verifyCard, type VerifiedCard } from '../../src/identity/card.ts'
import { loadOrCreateMachineKey } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { CARD_DOMAIN, type SignedCard } from '../../src/protocol/wire/card.ts'
import { Contacts } from '../../src/trust/contacts.ts'

// Files for stopped daemons. There are too many daemons to configure each one with command lines.

const CARD_MS = 3_600_000

/** The card of the agent and machine whose keys are in this directory. Missing keys are created. */
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

/** The card, verified for an import. */
export const cardIn = async (...of: Parameters<typeof signedCardIn>): Promise<VerifiedCard> =>
  verifyCard(await signedCardIn(...of), CARD_DOMAIN, Date.now())

/** Adds contacts with a single write. Trusted contacts are pinned to their machines. */
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

/** Allows each of these agents to run one command in this directory. */
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
