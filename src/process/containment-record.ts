import { readFile } from 'node:fs/promises'
import { writeFileAtomic } from '../base/atomic-file.ts'
import { CONTAINMENTS, type Containment } from '../protocol/reasons.ts'

/** A containment that is not in force, and why. */
export interface NotInForce {
  readonly containment: Containment
  readonly why: string
}

/** What `containment.json` in the data directory says, for whoever examines a running daemon; no start believes it. */
export interface ContainmentRecord {
  readonly in_force: Containment
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
    const { in_force: name, stronger, parents } = value ?? {}
    const in_force = CONTAINMENTS.find((known) => known === name)
    return in_force === undefined || !isTexts(parents) || !isStronger(stronger) ? null : { in_force, stronger, parents }
  } catch {
    return null
  }
}

export const writeContainmentRecord = async (path: string, record: ContainmentRecord): Promise<void> =>
  writeFileAtomic(path, `${JSON.stringify(record)}\n`)
