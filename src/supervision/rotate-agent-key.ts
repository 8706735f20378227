import { systemClock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { startAll, stopAll } from '../base/startable.ts'
import type { DataPaths } from '../clients/paths.ts'
import { agentKeyFile, agentSignerOf } from '../identity/agent-key.ts'
import { randomBytes } from '../identity/hash.ts'
import { loadSeed, renewSeed } from '../identity/key-file.ts'
import { machineIdOfKeyFile } from '../identity/machine-key.ts'
import { Journal } from '../journal/journal.ts'
import type { AgentId } from '../protocol/ids.ts'
import { MAX_SUCCESSIONS, SEED_BYTES } from '../protocol/limits/wire.ts'
import { decodeSuccession, loadSuccessions, saveSuccessions, signSuccession, previousKeys } from '../trust/successions.ts'
import { DataDirLock } from './lock.ts'

export interface RotatedKey {
  readonly agent_id: AgentId
  readonly formerly: AgentId
}

/**
 * Replaces the key of a data directory's agent and stores the old key's statement about it. The old key is lost. Throws `conflict` while a
 * daemon holds the directory. The statement is written first; if the process stops there, it names an unknown key and is ignored.
 */
export const rotateAgentKey = async ({ log }: { readonly log: Logger }, paths: DataPaths): Promise<RotatedKey> => {
  const lock = [{ name: 'data directory', startable: new DataDirLock({ ...paths, apiSocket: null }) }]
  await startAll(lock)
  try {
    const file = agentKeyFile(paths.dir)
    const [old, seed] = [agentSignerOf(await loadSeed(file)), randomBytes(SEED_BYTES)]
    const next = agentSignerOf(seed)
    const machine = await machineIdOfKeyFile(paths.dir)
    const statement = decodeSuccession(await signSuccession(old, next, machine, systemClock.now()))
    const before = previousKeys(await loadSuccessions(paths.successions), old.agentId)
    const journal = new Journal({ clock: systemClock, log, signer: old }, { path: paths.outgoing, marks: null })
    await journal.start()
    try {
      const change = { operation: 'identity_rotate', agent: next.agentId, machine, level: null, code: null } as const
      await journal.append({ event: 'authority', ...change, detail: `formerly ${old.agentId}` })
      await saveSuccessions(paths.successions, [statement, ...before].slice(0, MAX_SUCCESSIONS))
      await renewSeed(file, seed)
    } finally {
      await journal.stop()
    }
    return { agent_id: next.agentId, formerly: old.agentId }
  } finally {
    await stopAll(lock)
  }
}
