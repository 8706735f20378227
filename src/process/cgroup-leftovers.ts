import { statSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { lifeOf, ownIdentity } from '../base/process-identity.ts'
import { randomBytes, sha256 } from '../identity/hash.ts'
import { toHex } from '../protocol/ids.ts'
import { endGroup, groupsBelow } from './cgroup-files.ts'
import { type CgroupPlace, findCgroupPlaces } from './cgroup-places.ts'

/**
 * How the parents of our groups are called, in every hierarchy: the name is the only record of whose they are. Each start
 * has one of its own, so that a guardian that is still at work for the start before cannot reach the runs of this one.
 */
export interface ParentNames {
  readonly prefix: string
  readonly name: string
}

/** After the data directory, which one daemon at a time has; null: after this process. */
export const parentNamesOf = async (dataDir: string | null): Promise<ParentNames> => {
  const prefix = dataDir === null ? nameOfProcess() : `x0x-${await digestOf(dataDir)}`
  return { prefix, name: `${prefix}-${toHex(randomBytes(8))}` }
}

const nameOfProcess = (): string => {
  const { pid, started, namespace } = ownIdentity()
  return `x0x-of-${pid}-${started}-${namespace}`
}

/** Of the directory itself and not of its path: in another mount namespace another may stand there, whose runs are not ours to end. */
const digestOf = async (directory: string): Promise<string> => {
  const { dev, ino } = await stat(directory, { bigint: true })
  return toHex(sha256(Buffer.from(`${dev}:${ino}`))).slice(0, 16)
}

const RANDOM = /-[0-9a-f]{16}$/
const OF_PROCESS = /^x0x-of-(\d+)-(\d+)-(\d+)$/

/** Of a start before with our data directory, or of a process of our user that is gone. */
const isLeftover = (path: string, prefix: string): boolean => {
  const name = basename(path)
  if (!RANDOM.test(name)) return false
  const whose = name.replace(RANDOM, '')
  if (whose === prefix) return true
  const [, pid, started = '', namespace = ''] = OF_PROCESS.exec(whose) ?? []
  if (pid === undefined || lifeOf({ ...ownIdentity(), pid: Number(pid), started, namespace }) !== 'gone') return false
  return statSync(path, { throwIfNoEntry: false })?.uid === process.geteuid?.()
}

/** Below a mount of control groups, and not around ourselves. */
const isApart = (path: string, places: readonly CgroupPlace[]): boolean =>
  places.some(({ mount }) => `${dirname(path)}/`.startsWith(`${mount}/`)) && places.every(({ own }) => !`${own}/`.startsWith(`${path}/`))

/**
 * Kills and removes what starts before this one have left: beside where our own parents will stand, and in the groups
 * beside that one, which are those of other sessions of the same user. Answers those that are still there.
 */
export const endLeftovers = async (
  parents: readonly string[],
  { prefix }: Pick<ParentNames, 'prefix'>,
  places: readonly CgroupPlace[] = findCgroupPlaces(),
): Promise<string[]> => {
  const bases = parents.map((path) => dirname(path)).flatMap((base) => [base, ...groupsBelow(dirname(base))])
  const found = [...new Set([...new Set(bases)].flatMap(groupsBelow))]
  const left = found.filter((path) => isLeftover(path, prefix) && isApart(path, places))
  const ended = await Promise.all(left.map(endGroup))
  return left.filter((_path, index) => !ended[index])
}
