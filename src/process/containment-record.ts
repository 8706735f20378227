import { readFile } from 'node:fs/promises'
import { basename, dirname, normalize } from 'node:path'

import { writeFileAtomic } from '../base/files.ts'
import { CONTAINMENTS, type Containment } from '../protocol/reasons.ts'
import { endGroup } from './cgroup-files.ts'
import { findCgroupPlaces } from './cgroup-places.ts'

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

/** A parent that we made: of our name, below a mount of control groups, and not around ourselves. */
const isOurs = (path: string, parentName: string): boolean => {
  const places = findCgroupPlaces()
  return (
    path === normalize(path) &&
    basename(path) === parentName &&
    places.some(({ mount }) => `${dirname(path)}/`.startsWith(`${mount}/`)) &&
    places.every(({ own }) => !`${own}/`.startsWith(`${path}/`))
  )
}

/** Kills and removes what a daemon that died has left in these groups. Answers those that are still there. */
export const endLeftovers = async (parents: readonly string[], parentName: string): Promise<string[]> => {
  const ours = [...new Set(parents)].filter((path) => isOurs(path, parentName))
  const ended = await Promise.all(ours.map(endGroup))
  return ours.filter((_path, index) => !ended[index])
}
