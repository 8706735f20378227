import { join } from 'node:path'
import { errorText } from '../base/errors.ts'
import { silentLogger } from '../base/log.ts'
import type { DaemonConfig } from '../config/config.ts'
import type { EnforcementProbe } from '../policy/mesh/confinement.ts'
import { CONTAINMENT_FILE, ProcessTrees, type ContainmentRecord, readContainmentRecord } from '../process/process-trees.ts'
import { missingTools } from '../process/cleanup-process.ts'
import { type Finding, fail, ok, warn } from './findings.ts'

const REMEDY = 'see "Containment" in docs/config.md'

const findingOf = ({ in_force, stronger }: Pick<ContainmentRecord, 'in_force' | 'stronger'>, who: string): Finding => {
  const missing = missingTools()
  if (missing.length > 0)
    return warn(
      'containment',
      `what left its process group outlives a daemon that is killed: ${missing.join(', ')} cannot be found in /usr/bin or /bin`,
      'install coreutils and grep',
    )
  const reasons = stronger.map(({ containment, why }) => `; not ${containment}: ${why}`).join('')
  if (in_force !== 'group') return ok('containment', `${who} ${in_force}${reasons}`)
  return warn('containment', `${who} the process group alone, so that a descendant may survive its run${reasons}`, REMEDY)
}

/** Tries the containment that a start of this user would have, and checks entries that ask for more. */
export const tryContainment = async <T>(
  { containment }: Pick<DaemonConfig, 'containment'>,
  work: (finding: Finding, judge: EnforcementProbe | null) => Promise<T>,
): Promise<T> => {
  let trees: ProcessTrees
  try {
    trees = await ProcessTrees.open({ cleanup: null, log: silentLogger }, { choice: containment, dataDir: null })
  } catch (error) {
    return work(fail('containment', errorText(error), null), null)
  }
  try {
    return await work(findingOf({ in_force: trees.inForce, stronger: trees.stronger }, 'runs would be held together by'), trees.judge)
  } finally {
    await trees.stop()
  }
}

/** The containment that the running daemon has recorded. */
export const runningContainment = async (dataDir: string): Promise<Finding> => {
  const record = await readContainmentRecord(join(dataDir, CONTAINMENT_FILE))
  if (record === null) return warn('containment', 'the running daemon has left no record of it', 'restart it')
  return findingOf(record, 'the running daemon holds runs together by')
}
