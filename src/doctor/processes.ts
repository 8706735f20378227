import { stat } from 'node:fs/promises'

import { lifeOf } from '../base/process-identity.ts'
import type { DaemonConfig } from '../config/config.ts'
import { fail, ok, warn, type Finding } from './findings.ts'
import { REXD_TOPIC } from './rexd-check.ts'
import { userCommand, userNameOf } from '../supervision/network-user.ts'
import type { DataPaths } from '../local-api/paths.ts'
import { readPidFile } from '../supervision/pid-file.ts'

/** Linux: whom a process runs as; null where the system does not tell. */
const uidOf = async (pid: number): Promise<number | null> => (await stat(`/proc/${pid}`).catch(() => null))?.uid ?? null

const withUser = (pid: number, uid: number | null): string => `pid ${pid}${uid === null ? '' : ` as ${userNameOf(uid)}`}`

/** A process and its user. */
const described = async (pid: number): Promise<string> => withUser(pid, await uidOf(pid))

/** Both processes of a running daemon, and whether the one that sees the network is another user's than root's. */
export const checkHalves = async (paths: DataPaths, executorPid: number): Promise<Finding> => {
  const executor = `executor ${await described(executorPid)}`
  const claim = await readPidFile(paths.networkPid)
  if (claim === null) return ok('halves', `${executor}; the network's half is started by others`)
  if (lifeOf(claim) === 'gone')
    return fail('halves', `${executor}; the network's half has ended and is being started again`, 'look at its log')
  const networkUid = await uidOf(claim.pid)
  const text = `${executor}; network ${withUser(claim.pid, networkUid)}`
  if (networkUid !== 0) return ok('halves', text)
  return warn('halves', `${text}: what parses the network's bytes is root`, `${userCommand('x0x')}, and leave network_user out`)
}

/** The process that the running daemon has for it. */
export const checkRunningRexd = async ({ rexd_config: file, paths }: DaemonConfig): Promise<Finding[]> => {
  const claim = await readPidFile(paths.rexdPid)
  if (claim === null && file === null) return []
  if (claim === null) return [warn(REXD_TOPIC, 'the running daemon does not serve it', 'restart it, so that it reads rexd_config')]
  if (lifeOf(claim) !== 'gone') return [ok(REXD_TOPIC, await described(claim.pid))]
  const remedy = file === null ? 'look at its log' : `look at its log; rexd --check --config ${file}`
  return [fail(REXD_TOPIC, 'it has ended and is being started again', remedy)]
}
