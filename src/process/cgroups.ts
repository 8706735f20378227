import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmdirSync, statSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { errnoOf, errorText } from '../base/errors.ts'
import { processState, ownIdentity } from '../base/process-info.ts'
import { statOf } from '../base/process-stat.ts'
import { randomBytes, sha256 } from '../identity/hash.ts'
import { findExecutable } from '../policy/executable.ts'
import { toHex } from '../protocol/ids.ts'
import {
  type CgroupLocation,
  Hierarchy,
  type LimitController,
  endGroup,
  findCgroupPlaces,
  groupsBelow,
  hasControl,
  killGroup,
  livingIn,
  removeNow,
  readControl,
  walkMembers,
  writeControl,
} from './cgroup-tree.ts'
import { PROBE_MS } from './pid-namespace.ts'
import type { Member } from './signals.ts'

/** Limits for all members of a leaf together. Null means unlimited. */
export interface LeafLimits {
  /** Bytes. */
  readonly memory: number | null
  readonly processes: number | null
}

export interface LeafLocation {
  readonly hierarchy: Hierarchy
  readonly directory: string
}

const setMemory = (directory: string, bytes: number): void => {
  if (hasControl(directory, 'memory.max')) {
    writeControl(directory, 'memory.max', bytes)
    // Otherwise the kernel would kill only a part of the run.
    if (hasControl(directory, 'memory.oom.group')) writeControl(directory, 'memory.oom.group', 1)
    if (hasControl(directory, 'memory.swap.max')) writeControl(directory, 'memory.swap.max', 0)
    return
  }
  writeControl(directory, 'memory.limit_in_bytes', bytes)
  // Memory and swap together, or absent if swap is not accounted.
  if (hasControl(directory, 'memory.memsw.limit_in_bytes')) writeControl(directory, 'memory.memsw.limit_in_bytes', bytes)
}

/**
 * A control group of one run, in one or more hierarchies. The daemon enters it, spawns and leaves within one turn, so only the child is
 * born inside.
 */
export class CgroupLeaf {
  readonly #places: readonly LeafLocation[]
  readonly #limits: LeafLimits
  /** Places that were not removed yet. */
  #remaining: readonly LeafLocation[]
  #stuck = false

  /** Creates all groups, or throws errors of the system and leaves no group. */
  constructor(hierarchies: readonly Hierarchy[], init: { name: string; limits: LeafLimits }) {
    const made: LeafLocation[] = []
    try {
      for (const hierarchy of hierarchies) {
        made.push({ hierarchy, directory: hierarchy.makeLeaf(init.name) })
      }
    } catch (error) {
      for (const { directory } of made) rmdirSync(directory)
      throw error
    }
    this.#places = made
    this.#remaining = made
    this.#limits = init.limits
  }

  /** The daemon could not leave the group, so the group must not be killed. */
  get isStuck(): boolean {
    return this.#stuck
  }

  /** Runs `spawn` inside. It must be synchronous. */
  enter<T>(spawn: () => T): T {
    const inside: LeafLocation[] = []
    try {
      for (const place of this.#places) {
        writeControl(place.directory, place.hierarchy.entryFile, 0)
        inside.push(place)
        this.#boundEarly(place)
      }
      return spawn()
    } finally {
      for (const { hierarchy } of inside)
        try {
          writeControl(hierarchy.own, hierarchy.entryFile, 0)
        } catch {
          this.#stuck = true
        }
    }
  }

  /** Our own threads count while we are inside, and the program may already start others. */
  #boundEarly({ hierarchy, directory }: LeafLocation): void {
    const { processes } = this.#limits
    if (processes === null || !hierarchy.limits.has('pids')) return
    writeControl(directory, 'pids.max', processes + Number(readControl(directory, 'pids.current')[0] ?? 0))
  }

  /** Sets the limits after we have left, because our own threads and memory would count. Throws errors of the system. */
  confine(): void {
    const { memory, processes } = this.#limits
    for (const { hierarchy, directory } of this.#places) {
      if (memory !== null && hierarchy.limits.has('memory')) this.#limitMemory(directory, memory)
      if (processes !== null && hierarchy.limits.has('pids')) writeControl(directory, 'pids.max', processes)
    }
  }

  /** Version 1 refuses a limit below current use. The run has exceeded it, so it is killed as it would be a moment later. */
  #limitMemory(directory: string, bytes: number): void {
    try {
      setMemory(directory, bytes)
    } catch (error) {
      if (errnoOf(error) !== 'EBUSY') throw error
      this.kill()
    }
  }

  /** Members outside of this process group, which is signalled as a whole. Yields null at times, so that the caller can check the time. */
  *outside(group: number): Generator<Member | null> {
    for (const { directory } of this.#places)
      for (const pid of walkMembers(directory)) {
        const stat = pid === null ? [] : statOf(pid)
        const born = stat[19]
        yield pid === null || born === undefined || Number(stat[2]) === group ? null : { pid, born }
      }
  }

  kill(): void {
    if (!this.#stuck) for (const { directory } of this.#places) killGroup(directory)
  }

  /** Counts living members, which are the same in each hierarchy. Removes an empty group, so that most runs need no search. */
  living(): number {
    if (this.#stuck) return 0
    this.#remaining = this.#remaining.filter(({ directory }) => !removeNow(directory))
    return Math.max(0, ...this.#remaining.map(({ directory }) => livingIn(directory)))
  }

  /** Kills and removes. Returns true when all members are dead. */
  async end(): Promise<boolean> {
    if (this.#stuck) return false
    const ended = await Promise.all(this.#remaining.map(({ directory }) => endGroup(directory)))
    return ended.every(Boolean)
  }
}

/** Memory limit of a probe, enough for any `true`. */
const PROBE_MEMORY_BYTES = 64 * 1024 * 1024

const UNLIMITED: LeafLimits = { memory: null, processes: null }
/** More processes than the waiting probe has. */
const PROBE_PROCESSES = 16

export interface LeafNeed {
  /** The leaf holds the run together (version 2). */
  readonly hold: boolean
  readonly limits: LeafLimits
}

/** The control groups that this machine grants, as tried. */
export class Cgroups {
  readonly #holding: Hierarchy | null
  readonly #places: readonly Hierarchy[]
  readonly #limiting: Partial<Record<LimitController, Hierarchy>> = {}
  #next = 1

  /** `parentName` names the parent of all leaves in every hierarchy. With `whole`, the kernel can kill a leaf with members of any user. */
  constructor(init: { parentName: string; places: readonly CgroupLocation[]; whole?: boolean }) {
    this.#places = init.places.map((place) => new Hierarchy(place, init))
    this.#holding = this.#places.find(({ version }) => version === 2) ?? null
  }

  /** Parents of leaves, created or not. */
  get parents(): string[] {
    return this.#places.filter((hierarchy) => hierarchy === this.#holding || hierarchy.limits.size > 0).map(({ parent }) => parent)
  }

  /** Tries the whole life of a leaf, from its creation over a start and a kill to its removal. Returns the reason for a failure. */
  async holdingProblem(): Promise<string | null> {
    if (this.#holding === null) return 'no cgroup version 2 is mounted'
    const problem = await this.#try([this.#holding], UNLIMITED)
    return problem !== null && this.#holding.goWhole() ? this.#try([this.#holding], UNLIMITED) : problem
  }

  /** The same with one limit. The hierarchy that supports it is used from then on. */
  async limitProblem(controller: LimitController): Promise<string | null> {
    if (this.#limiting[controller] !== undefined) return null
    const old = this.#places.find(({ version, limits }) => version === 1 && limits.has(controller))
    const hierarchy = old ?? this.#holding
    if (hierarchy === null) return `no ${controller} controller is mounted`
    const problem =
      hierarchy.enable(controller) ??
      (await this.#try(
        [hierarchy],
        controller === 'memory' ? { ...UNLIMITED, memory: PROBE_MEMORY_BYTES } : { ...UNLIMITED, processes: PROBE_PROCESSES },
      ))
    if (problem === null) this.#limiting[controller] = hierarchy
    return problem
  }

  /** Throws why the leaf could not be created. */
  makeLeaf({ hold, limits }: LeafNeed): CgroupLeaf {
    const hierarchies = new Set<Hierarchy>()
    const add = (hierarchy: Hierarchy | null | undefined): void => {
      if (!hierarchy) throw new Error('no control group is available')
      hierarchies.add(hierarchy)
    }
    if (hold) add(this.#holding)
    if (limits.memory !== null) add(this.#limiting.memory)
    if (limits.processes !== null) add(this.#limiting.pids)
    return this.#leafIn([...hierarchies], limits)
  }

  /** Removes empty groups. */
  close(): void {
    for (const hierarchy of this.#places) hierarchy.close()
  }

  #leafIn(hierarchies: readonly Hierarchy[], limits: LeafLimits): CgroupLeaf {
    return new CgroupLeaf(hierarchies, { name: `run-${this.#next++}`, limits })
  }

  async #try(hierarchies: readonly Hierarchy[], limits: LeafLimits): Promise<string | null> {
    const lookup = findExecutable('cat')
    if (lookup.kind !== 'found') return lookup.detail
    let leaf: CgroupLeaf
    try {
      leaf = this.#leafIn(hierarchies, limits)
    } catch (error) {
      return errorText(error)
    }
    const problem = await tryLeaf(leaf, lookup.executable.path).catch(errorText)
    return (await leaf.end()) ? problem : `${problem ?? 'a leaf'} could not be removed`
  }
}

/** `program` waits for its stdin, so it lives until it is killed. */
const tryLeaf = async (leaf: CgroupLeaf, program: string): Promise<string | null> => {
  const child = leaf.enter(() => spawn(program, [], { env: {}, stdio: ['pipe', 'ignore', 'ignore'], detached: true }))
  child.stdin.on('error', () => {})
  const exit = once(child, 'exit', { signal: AbortSignal.timeout(PROBE_MS) })
  // Without a waiting caller, `leaf.end` reports the failure.
  exit.catch(() => {})
  if (leaf.isStuck) {
    child.kill('SIGKILL')
    await exit
    return 'this process cannot leave a leaf again'
  }
  try {
    leaf.confine()
  } finally {
    leaf.kill()
  }
  const [, signal] = (await exit) as [number | null, string | null]
  return signal === 'SIGKILL' ? null : 'a process of a control group did not end with it'
}

/**
 * Names of the parents of our groups in every hierarchy. The name alone identifies the owner of a group. Each start has another name, so
 * that the cleanup process of an earlier start cannot reach runs of this one.
 */
export interface ParentNames {
  readonly prefix: string
  readonly name: string
}

/** Named after the data directory, which only one daemon uses. Null means after this process. */
export const parentNamesOf = async (dataDir: string | null): Promise<ParentNames> => {
  const prefix = dataDir === null ? nameOfProcess() : `x0x-${await digestOf(dataDir)}`
  return { prefix, name: `${prefix}-${toHex(randomBytes(8))}` }
}

const nameOfProcess = (): string => {
  const { pid, started, namespace } = ownIdentity()
  return `x0x-of-${pid}-${started}-${namespace}`
}

/** Identifies the directory by device and inode, because in another mount namespace the same path may be another directory. */
const digestOf = async (directory: string): Promise<string> => {
  const { dev, ino } = await stat(directory, { bigint: true })
  return toHex(sha256(Buffer.from(`${dev}:${ino}`))).slice(0, 16)
}

const RANDOM = /-[0-9a-f]{16}$/
const OF_PROCESS = /^x0x-of-(\d+)-(\d+)-(\d+)$/

/** True for a group of an earlier start with our data directory, or of a dead process of our user. */
const isLeftover = (path: string, prefix: string): boolean => {
  const name = basename(path)
  if (!RANDOM.test(name)) return false
  const whose = name.replace(RANDOM, '')
  if (whose === prefix) return true
  const [, pid, started = '', namespace = ''] = OF_PROCESS.exec(whose) ?? []
  if (pid === undefined || processState({ ...ownIdentity(), pid: Number(pid), started, namespace }) !== 'gone') return false
  return statSync(path, { throwIfNoEntry: false })?.uid === process.geteuid?.()
}

/** True for a group below a mount of control groups that does not contain this process. */
const isApart = (path: string, places: readonly CgroupLocation[]): boolean =>
  places.some(({ mount }) => `${dirname(path)}/`.startsWith(`${mount}/`)) && places.every(({ own }) => !`${own}/`.startsWith(`${path}/`))

/**
 * Kills and removes groups of earlier starts, next to our parents and in sibling groups, which belong to other sessions of the same user.
 * Returns those that remain.
 */
export const endLeftovers = async (
  parents: readonly string[],
  { prefix }: Pick<ParentNames, 'prefix'>,
  places: readonly CgroupLocation[] = findCgroupPlaces(),
): Promise<string[]> => {
  const bases = parents.map((path) => dirname(path)).flatMap((base) => [base, ...groupsBelow(dirname(base))])
  const found = [...new Set([...new Set(bases)].flatMap(groupsBelow))]
  const left = found.filter((path) => isLeftover(path, prefix) && isApart(path, places))
  const ended = await Promise.all(left.map(endGroup))
  return left.filter((_path, index) => !ended[index])
}
