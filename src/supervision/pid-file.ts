import { readFile } from 'node:fs/promises'

import { writeFileAtomic } from '../base/atomic-file.ts'
import { identityOf, type ProcessIdentity } from '../base/process-identity.ts'

/** Says which process is meant, for whoever looks and for the next start: its pid, and what tells it from any other. */
export const writePidFile = async (path: string, pid: number): Promise<void> => {
  const { started, namespace, boot, machine } = identityOf(pid)
  await writeFileAtomic(path, `${[pid, started, namespace, boot, machine].join(' ')}\n`, 0o600)
}

/** Null where there is none, or it is not ours to understand. */
export const readPidFile = async (path: string): Promise<ProcessIdentity | null> => {
  const text = await readFile(path, 'utf8').catch(() => '')
  const [, pid, started = '', namespace = '', boot = '', machine = ''] =
    /^([1-9]\d{0,9}) (\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+)\n$/.exec(text) ?? []
  return pid === undefined ? null : { pid: Number(pid), started, namespace, boot, machine }
}
