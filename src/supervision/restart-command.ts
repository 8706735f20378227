import { readFile } from 'node:fs/promises'
import { shellWords } from '../base/format.ts'
import { processState } from '../base/process-info.ts'
import { type DataPaths, type InstanceChoice, instanceFlags } from '../clients/paths.ts'
import { readPidFile } from './lock.ts'

/** A systemd unit in the path of a control group, and the path before it. */
const UNIT = /^(.*)\/(x0xd[^/]*\.service)(?:\/|$)/m

/** Command that restarts a daemon in this control group: its unit under systemd, else `x0xd --replace`. */
export const restartCommandIn = (controlGroup: string, instance: InstanceChoice): string => {
  const [, above = '', unit] = UNIT.exec(controlGroup) ?? []
  if (unit === undefined) return `${shellWords(['x0xd', ...instanceFlags(instance), '--replace'])} &`
  return above.includes('/user.slice/') ? `systemctl --user restart ${unit}` : `sudo systemctl restart ${unit}`
}

/** Command that restarts the daemon of this data directory. */
export const restartCommand = async (instance: InstanceChoice, paths: DataPaths): Promise<string> => {
  const claim = await readPidFile(paths.pid)
  const isAlive = claim !== null && processState(claim) === 'alive'
  return restartCommandIn(isAlive ? await readFile(`/proc/${claim.pid}/cgroup`, 'utf8').catch(() => '') : '', instance)
}
