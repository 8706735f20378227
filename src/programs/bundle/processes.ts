import { access, readFile, readdir, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { attempt } from '../../base/errors.ts'
import { processState } from '../../base/process-info.ts'
import type { DataPaths } from '../../clients/paths.ts'
import { readPidFile } from '../../supervision/lock.ts'

/** Units that a package installs. */
const UNITS = [
  'x0xd.service',
  'x0xd-user.service',
  'x0xd-api.socket',
  'x0xd-executor.service',
  'x0xd-executor.socket',
  'x0xd-network.service',
  'rexd.service',
] as const

const PROCESSES = { daemon: 'pid', network: 'networkPid', rexd: 'rexdPid', desk: 'deskPid' } as const satisfies Record<
  string,
  keyof DataPaths
>

const kilobytes = (status: string, field: string): number | null => {
  const [, count] = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status) ?? []
  return count === undefined ? null : Number(count)
}

/** A process of this installation, as the system reports it. */
const processOf = async (path: string): Promise<object> => {
  const claim = await readPidFile(path)
  if (claim === null) return { life: 'none' }
  const life = processState(claim)
  if (life !== 'alive') return { life }
  const proc = `/proc/${claim.pid}`
  const status = await readFile(`${proc}/status`, 'utf8').catch(() => '')
  const uid = (await stat(proc).catch(() => null))?.uid ?? null
  const files = await readdir(`${proc}/fd`).catch(() => null)
  const group = await readFile(`${proc}/cgroup`, 'utf8').catch(() => '')
  return {
    life,
    user: uid === null ? null : uid === 0 ? 'root' : uid === process.geteuid?.() ? 'ours' : 'another',
    resident_kb: kilobytes(status, 'VmRSS'),
    threads: Number(/^Threads:\s+(\d+)$/m.exec(status)?.[1] ?? 0),
    open_files: files?.length ?? null,
    unit: UNITS.find((unit) => group.includes(`/${unit}`)) ?? null,
  }
}

const isThere = async (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  )

/** Directories of units, and of the links to enabled ones. */
const PLACES = [
  '/etc/systemd/system',
  '/usr/lib/systemd/system',
  '/lib/systemd/system',
  join(attempt(homedir) ?? '/', '.config/systemd/user'),
] as const
const WANTS = ['multi-user.target.wants', 'sockets.target.wants', 'default.target.wants'] as const

const unitOf = async (unit: string): Promise<object | null> => {
  const found = await Promise.all(PLACES.map(async (place) => isThere(join(place, unit))))
  if (!found.includes(true)) return null
  const links = PLACES.flatMap((place) => WANTS.map((wants) => join(place, wants, unit)))
  const enabled = (await Promise.all(links.map(isThere))).includes(true)
  const dropIns = (await Promise.all(PLACES.map(async (place) => readdir(join(place, `${unit}.d`)).catch(() => [])))).flat().length
  return { unit, enabled, drop_ins: dropIns }
}

/** Running processes and installed units. */
export const processesOf = async (paths: DataPaths): Promise<object> => ({
  systemd: await isThere('/run/systemd/system'),
  units: (await Promise.all(UNITS.map(unitOf))).filter((unit) => unit !== null),
  ...Object.fromEntries(await Promise.all(Object.entries(PROCESSES).map(async ([name, key]) => [name, await processOf(paths[key])]))),
})
