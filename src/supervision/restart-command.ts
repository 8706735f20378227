import { readFile } from 'node:fs/promises'
import { shellWords } from '../base/format.ts'
import { processState } from '../base/process-info.ts'
import { type DataPaths, type InstanceChoice, instanceFlags } from '../clients/paths.ts'
import { readPidFile } from './lock.ts'

/** A unit of systemd in the path of a control group, and what stands before it. */
const UNIT = /^(.*)\/(x0xd[^/]*\.service)(?:\/|$)/m

/** The command that restarts a daemon whose control group is this: its unit where systemd runs it, else `x0xd --replace`. */
export const restartCommandIn = (controlGroup: string, instance: InstanceChoice): string => {
  const [, above = '', unit] = UNIT.exec(controlGroup) ?? []
  if (unit === undefined) return `${shellWords(['x0xd', ...instanceFlags(instance), '--replace'])} &`
  return above.includes('/user.slice/') ? `systemctl --user restart ${unit}` : `sudo systemctl restart ${unit}`
}

/** The command that restarts the daemon of this data directory. */
export const restartCommand = async (instance: InstanceChoice, paths: DataPaths): Promise<string> => {
  const claim = await readPidFile(paths.pid)
  const isAlive = claim !== null && processState(claim) === 'alive'
  return restartCommandIn(isAlive ? await readFile(`/proc/${claim.pid}/cgroup`, 'utf8').catch(() => '') : '', instance)
}
