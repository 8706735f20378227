import { setTimeout as sleep } from 'node:timers/promises'
import { AppError, errnoOf } from '../base/errors.ts'
import { lifeOf } from '../base/process-identity.ts'
import type { DaemonConfig } from '../config/config.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'
import { holderText, lookAtLock } from './lock.ts'

/** A daemon that is asked to stop has so long. */
const HOLDER_STOP_MS = 15_000
const POLL_MS = 50

/** Asks the daemon that has the data directory to stop, and waits for it; nothing where none has. Throws `bad_acl`, before anything is ended, and `conflict`. */
export const endHolder = async ({
  exec_acl,
  exec_acl_explicit,
  paths,
}: Pick<DaemonConfig, 'exec_acl' | 'exec_acl_explicit' | 'paths'>): Promise<void> => {
  const { missing, problems } = await inspectAcl(exec_acl)
  if (problems.length > 0 && (exec_acl_explicit || !missing))
    throw new AppError('bad_acl', problems.join('\n'), { data: { file: exec_acl } })
  const before = await lookAtLock(paths)
  if (before.kind !== 'held') return
  const { holder } = before
  const cannotEnd = (): string => `${paths.dir} is in use by ${holderText(holder)}, which cannot be ended from here`
  // Where the system does not tell when a process began, it may be any.
  if (holder === null || holder.started === '0' || lifeOf(holder) !== 'alive') throw new AppError('conflict', cannotEnd())
  try {
    process.kill(holder.pid, 'SIGTERM')
  } catch (error) {
    // It may have ended a moment ago.
    if (errnoOf(error) !== 'ESRCH') throw new AppError('conflict', cannotEnd(), { cause: error })
  }
  for (let waited = 0; waited < HOLDER_STOP_MS; waited += POLL_MS) {
    if ((await lookAtLock(paths)).kind === 'free') return
    await sleep(POLL_MS)
  }
  throw new AppError('conflict', `${holderText(holder)} does not end; nothing was started`)
}
