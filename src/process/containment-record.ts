import { statSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { basename, dirname, normalize } from 'node:path'

import { writeFileAtomic } from '../base/files.ts'
import { lifeOf, ownIdentity, type ProcessIdentity } from '../base/process-identity.ts'
import { randomBytes, sha256 } from '../identity/hash.ts'
import { CONTAINMENTS, type Containment } from '../protocol/reasons.ts'
import { endGroup, groupsBelow } from './cgroup-files.ts'
import { findCgroupPlaces, type CgroupPlace } from './cgroup-places.ts'

/** A containment that is not in force, and why. */
export interface NotInForce {
  readonly containment: Containment
  readonly why: string
}

/** What `containment.json` in the data directory says, for the next start and for whoever examines a running daemon. */
export interface ContainmentRecord {
  /** Null while it is being found out. */
  readonly in_force: Containment | null
  /** Those that would be stronger. */
  readonly stronger: readonly NotInForce[]
  /** Groups that may hold leaves of this daemon. */
  readonly parents: readonly string[]
}

const isTexts = (value: unknown): value is string[] => Array.isArray(value) && value.every((item) => typeof item === 'string')

const isStronger = (value: unknown): value is NotInForce[] =>
  Array.isArray(value) &&
  value.every((item: unknown) => typeof item === 'object' && item !== null && 'why' in item && typeof item.why === 'string')

/** Null where there is none, or it is not ours to understand. */
export const readContainmentRecord = async (path: string): Promise<ContainmentRecord | null> => {
  try {
    const value = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown> | null
    const { in_force = null, stronger, parents } = value ?? {}
    if (!isTexts(parents) || !isStronger(stronger)) return null
    return { in_force: CONTAINMENTS.find((known) => known === in_force) ?? null, stronger, parents }
  } catch {
    return null
  }
}

export const writeContainmentRecord = async (path: string, record: ContainmentRecord): Promise<void> =>
  writeFileAtomic(path, `${JSON.stringify(record)}\n`)

/**
 * The name of the parents of one data directory, in every hierarchy. Each start has one of its own, so
 * that a guardian that is still at work for the start before cannot reach the runs of this one.
 */
export interface ParentNames {
  readonly prefix: string
  readonly name: string
}

/** Null: for a process that has no directory. Then the name says whose the parent is, and no other record is needed. */
export const parentNamesOf = async (dataDir: string | null): Promise<ParentNames> => {
  const prefix = dataDir === null ? nameOfProcess(ownIdentity()) : `x0x-${await digestOf(dataDir)}`
  return { prefix, name: `${prefix}-${hex(randomBytes(8))}` }
}

const nameOfProcess = ({ pid, started, namespace }: ProcessIdentity): string => `x0x-of-${pid}-${started}-${namespace}`

/** Of the directory itself and not of its path: in another mount namespace another may stand there, whose runs are not ours to end. */
const digestOf = async (directory: string): Promise<string> => {
  const { dev, ino } = await stat(directory, { bigint: true })
  return hex(sha256(Buffer.from(`${dev}:${ino}`))).slice(0, 16)
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex')

/** Below a mount of control groups, and not around ourselves. */
const isApart = (path: string, places: readonly CgroupPlace[]): boolean =>
  places.some(({ mount }) => `${dirname(path)}/`.startsWith(`${mount}/`)) && places.every(({ own }) => !`${own}/`.startsWith(`${path}/`))

/** A parent that we made: of our name, below a mount of control groups, and not around ourselves. */
const isOurs = (path: string, prefix: string, places: readonly CgroupPlace[]): boolean =>
  path === normalize(path) && new RegExp(`^${prefix}-[0-9a-f]{16}$`).test(basename(path)) && isApart(path, places)

/**
 * Kills and removes what a daemon that died has left in the groups that it wrote down, and in those of
 * its name beside where ours will stand. Answers those that are still there.
 */
export const endLeftovers = async (
  written: readonly string[],
  beside: readonly string[],
  { prefix }: ParentNames,
  places: readonly CgroupPlace[] = findCgroupPlaces(),
): Promise<string[]> => {
  const found = [...written, ...beside.flatMap((path) => groupsBelow(dirname(path)))]
  const ours = [...new Set(found)].filter((path) => isOurs(path, prefix, places))
  return endAll(ours)
}

const endAll = async (paths: readonly string[]): Promise<string[]> => {
  const ended = await Promise.all(paths.map(endGroup))
  return paths.filter((_path, index) => !ended[index])
}

const OF_PROCESS = /^x0x-of-(\d+)-(\d+)-(\d+)-[0-9a-f]{16}$/

/** A parent that another process of our user made, which is gone. */
const isOrphan = (path: string): boolean => {
  const [, pid, started = '', namespace = ''] = OF_PROCESS.exec(basename(path)) ?? []
  if (pid === undefined || lifeOf({ ...ownIdentity(), pid: Number(pid), started, namespace }) !== 'gone') return false
  return statSync(path, { throwIfNoEntry: false })?.uid === process.geteuid?.()
}

/**
 * The same for processes that had no data directory: beside where ours will stand, and in the groups beside that one,
 * which are those of other sessions of the same user.
 */
export const endOrphans = async (beside: readonly string[], places: readonly CgroupPlace[] = findCgroupPlaces()): Promise<string[]> => {
  const bases = beside.map((path) => dirname(path)).flatMap((base) => [base, ...groupsBelow(dirname(base))])
  const found = [...new Set(bases)].flatMap(groupsBelow)
  return endAll(found.filter((path) => isApart(path, places) && isOrphan(path)))
}
