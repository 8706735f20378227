import { readFile } from 'node:fs/promises'
import { writeFileAtomic } from '../base/atomic-file.ts'
import { type ProcessIdentity, identityFrom, identityOf, identityText } from '../base/process-identity.ts'

/** Says which process is meant, for whoever looks and for the next start: its pid, and what tells it from any other. */
export const writePidFile = async (path: string, pid: number): Promise<void> => {
  await writeFileAtomic(path, `${identityText(identityOf(pid), ' ')}\n`, 0o600)
}

/** Null where there is none, or it is not ours to understand. */
export const readPidFile = async (path: string): Promise<ProcessIdentity | null> => {
  const text = await readFile(path, 'utf8').catch(() => '')
  return text.endsWith('\n') ? identityFrom(text.slice(0, -1)) : null
}
