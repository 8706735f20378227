import { systemClock } from '../../base/clock.ts'
import type { Environment } from '../../base/environment.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { ensurePrivateDir } from '../../base/file-rights.ts'
import { createLogger } from '../../base/log.ts'
import { standardErrorLog } from '../../base/log-output.ts'
import { loadRexdConfig, readRexdConfig, type RexdConfig } from '../../config/rexd-config.ts'
import { KeeperDoor } from '../../doors/mcp/keeper-door.ts'
import { MAX_KEEPER_LOG } from '../../protocol/tool-limits.ts'
import { startLocalExecutor } from '../../supervision/local-executor.ts'
import { DataDirLock, lookAtLock } from '../../supervision/lock.ts'
import { logStopFailures, stopConditions } from '../../supervision/program-exit.ts'
import type { McpFlags } from './flags.ts'
import { keeperPlace, keepersDirectory } from './keeper-place.ts'
import { FOR_TOOLS } from './offer.ts'
import { writableRules } from './own-files.ts'

/** Standard error, which is a file where a server has started us. */
const boundedLog = (): { write(line: string): void } => {
  let left = MAX_KEEPER_LOG
  return { write: (line) => void ((left -= Buffer.byteLength(line)) >= 0 && standardErrorLog().write(line)) }
}

/** Why what was read once does not count any more; null: it does. */
const outdated = async ({ path, sha256 }: RexdConfig, env: Environment): Promise<string | null> => {
  const { config, problems } = await readRexdConfig(path, env)
  if (config === null || problems.length > 0) return `${path} is not valid any more (${problems.join('; ')})`
  return config.sha256 === sha256 ? null : `${path} was changed since the keeper of what stays has read it`
}

/** Takes the lock; false: another keeper has it, or had it. Throws where it cannot be locked. */
const isFirst = async (lock: DataDirLock, paths: Parameters<typeof lookAtLock>[0]): Promise<boolean> => {
  try {
    await lock.start()
    return true
  } catch (error) {
    if (isAppError(error, 'conflict') && (await lookAtLock(paths)).kind !== 'unknown') return false
    throw error
  }
}

/** Holds commands that stay until nothing needs it any more; answers the exit status. */
export const keep = async ({ whoami, config: file }: Extract<McpFlags, { mode: 'keep' }>, env: Environment): Promise<number> => {
  const { config, warnings } = await loadRexdConfig(file, env)
  const { path, log_level: level, policy } = config
  if (!policy.granted.has('exec.detach'))
    throw new AppError('bad_config', `${path}: security.allow_detach is false: no command may outlive its session`)
  const [problem] = writableRules(config, null)
  if (problem !== undefined) throw new AppError('bad_config', problem)
  const log = createLogger({ name: 'x0x-mcp-keeper', level, destination: boundedLog() })
  for (const warning of warnings) log.warn(warning)
  const stop = stopConditions(log, { untilEof: false })
  await ensurePrivateDir(keepersDirectory())
  const { socket, lock: lockFile, pid } = keeperPlace({ config: path, whoami })
  const lock = new DataDirLock({ lock: lockFile, pid, apiSocket: socket })
  if (!(await isFirst(lock, { lock: lockFile, pid }))) return 0
  const local = await startLocalExecutor({ ...config, name: 'x0x mcp --keep' }, env, log)
  const caller = { door: 'mcp' as const, client_name: whoami, available: [...FOR_TOOLS, 'exec.detach' as const] }
  const door = new KeeperDoor(
    { executor: local.executor, clock: systemClock, log },
    { caller, outdated: async () => outdated(config, env) },
  )
  try {
    await door.start(socket)
    await door.ended(stop.signal)
  } finally {
    await door.close()
    logStopFailures(log, await local.stop())
    await lock.stop()
  }
  return stop.status() ?? 0
}
