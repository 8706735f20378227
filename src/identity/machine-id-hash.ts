import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readBounded, writeFileAtomic } from '../base/files.ts'
import { type MachineId, fromHex, toHex } from '../protocol/ids.ts'
import { hmac } from './hash.ts'

/** ID of this installation of the operating system (machine-id(5)). */
const MACHINE_ID_FILE = '/etc/machine-id'
const MAX_BYTES = 4_096
const HEADER = 'x0x-machine-id-hash-v1'

/** File next to `machine.key` that says on which installation the key was first used. */
const pathIn = (dataDir: string): string => join(dataDir, 'machine-id.hash')

/**
 * Hash of `/etc/machine-id` for one machine key. Null in a container, and if the ID is missing or invalid. machine-id(5) asks programs to
 * store a keyed hash only. The ID is the key of the HMAC.
 */
const hashFor = async (machine: MachineId): Promise<string | null> => {
  // Container managers set it, and may make another ID at each start.
  if (process.env['container']) return null
  const text = await readFile(MACHINE_ID_FILE, 'latin1').catch(() => '')
  const id = text.trim()
  if (!/^[0-9a-f]{32}$/.test(id) || /^0+$/.test(id)) return null
  return toHex(hmac(fromHex(id), Buffer.from(`${HEADER}\n`), fromHex(machine)))
}

interface Stored {
  readonly machine: MachineId
  readonly hash: string
}

/** Null if the file is missing or has another form. */
const readStored = async (dataDir: string): Promise<Stored | null> => {
  const bytes = await readBounded(pathIn(dataDir), { max: MAX_BYTES }).catch(() => null)
  const [, machine, hash] = /^x0x-machine-id-hash-v1\n([0-9a-f]{64}) ([0-9a-f]{64})\n$/.exec(bytes?.toString('latin1') ?? '') ?? []
  return machine === undefined || hash === undefined ? null : { machine, hash }
}

/** Stores the hash for a key without one. The hash only serves a warning, so a failed write is ignored. */
export const rememberMachineId = async (dataDir: string, machine: MachineId): Promise<void> => {
  const stored = await readStored(dataDir)
  const hash = stored?.machine === machine ? null : await hashFor(machine)
  if (hash !== null) await writeFileAtomic(pathIn(dataDir), `${HEADER}\n${machine} ${hash}\n`).catch(() => undefined)
}

/** The path of the stored hash if it is for this key and was made on another installation, or null. */
export const foreignMachineIdHash = async (dataDir: string, machine: MachineId | null): Promise<string | null> => {
  const stored = await readStored(dataDir)
  if (stored === null || (machine !== null && stored.machine !== machine)) return null
  const hash = await hashFor(stored.machine)
  return hash === null || hash === stored.hash ? null : pathIn(dataDir)
}
