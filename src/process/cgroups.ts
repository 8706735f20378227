import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmdirSync, statSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { errnoOf, errorText } from '../base/errors.ts'
import { processState, ownIdentity, statOf } from '../base/process-info.ts'
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
  readControl,
  walkMembers,
  writeControl,
} from './cgroup-tree.ts'
import { PROBE_MS } from './pid-namespace.ts'
import type { Member } from './signals.ts'

/** What the members of a leaf may use together; null: as much as there is. */
export interface LeafLimits {
  /** Bytes. */
  readonly memory: number | null
  /** Processes and threads. */
  readonly processes: number | null
}

/** One of the hierarchies that a leaf stands in. */
export interface LeafLocation {
  readonly hierarchy: Hierarchy
  readonly directory: string
}

const setMemory = (directory: string, bytes: number): void => {
  if (hasControl(directory, 'memory.max')) {
    writeControl(directory, 'memory.max', bytes)
    // One that is not ended whole would be left without its parts.
    if (hasControl(directory, 'memory.oom.group')) writeControl(directory, 'memory.oom.group', 1)
    if (hasControl(directory, 'memory.swap.max')) writeControl(directory, 'memory.swap.max', 0)
    return
  }
  writeControl(directory, 'memory.limit_in_bytes', bytes)
  // Memory and swap together; not there where swap is not accounted.
  if (hasControl(directory, 'memory.memsw.limit_in_bytes')) writeControl(directory, 'memory.memsw.limit_in_bytes', bytes)
}

/**
 * A control group of one run, in one or more hierarchies. We go in, spawn, and come out again, all in
 * one turn: the child is born inside, and nothing else is.
 */
export class CgroupLeaf {
  readonly #places: readonly LeafLocation[]
  readonly #limits: LeafLimits
  #stuck = false

  /** Makes the groups, or none. Throws the system's error. */
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
    this.#limits = init.limits
  }

  /** We could not come out again: it must not be killed, for it holds ourselves. */
  get isStuck(): boolean {
    return this.#stuck
  }

  /** Runs `spawn` inside. It must do its work in this very call. */
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

  /** As long as we are inside, our own threads count as well; the program may start others before we are out again. */
  #boundEarly({ hierarchy, directory }: LeafLocation): void {
    const { processes } = this.#limits
    if (processes === null || !hierarchy.limits.has('pids')) return
    writeControl(directory, 'pids.max', processes + Number(readControl(directory, 'pids.current')[0] ?? 0))
  }

  /** Only now that we are out again: our own threads and memory would have counted. Throws the system's error. */
  confine(): void {
    const { memory, processes } = this.#limits
    for (const { hierarchy, directory } of this.#places) {
      if (memory !== null && hierarchy.limits.has('memory')) this.#limitMemory(directory, memory)
      if (processes !== null && hierarchy.limits.has('pids')) writeControl(directory, 'pids.max', processes)
    }
  }

  /** Version 1 refuses a limit below what is in use: then it was passed already, and ends as it would have a moment later. */
  #limitMemory(directory: string, bytes: number): void {
    try {
      setMemory(directory, bytes)
    } catch (error) {
      if (errnoOf(error) !== 'EBUSY') throw error
      this.kill()
    }
  }

  /** Every member outside of this process group, which gets its own signal; null now and then, for who counts the time. */
  *outside(group: number): Generator<Member | null> {
    for (const { directory } of this.#places)
      for (const pid of walkMembers(directory)) {
        const stat = pid === null ? [] : statOf(pid)
        const born = stat[19]
        yield pid === null || born === undefined || Number(stat[2]) === group ? null : { pid, born }
      }
  }

  /** SIGKILL to every member. */
  kill(): void {
    if (!this.#stuck) for (const { directory } of this.#places) killGroup(directory)
  }

  /** Counts the processes that live in it. They are the same ones in each hierarchy. */
  living(): number {
    return this.#stuck ? 0 : Math.max(0, ...this.#places.map(({ directory }) => livingIn(directory)))
  }

  /** Kills and removes; true when all members are dead. */
  async end(): Promise<boolean> {
    if (this.#stuck) return false
    const ended = await Promise.all(this.#places.map(({ directory }) => endGroup(directory)))
    return ended.every(Boolean)
  }
}

/** How the memory of a probe is limited: enough for any `true`. */
const PROBE_MEMORY_BYTES = 64 * 1024 * 1024

const UNLIMITED: LeafLimits = { memory: null, processes: null }
/** More than a program that waits has, which the probe is. */
const PROBE_PROCESSES = 16

/** What a leaf is made for. */
export interface LeafNeed {
  /** To hold the run together: version 2. */
  readonly hold: boolean
  readonly limits: LeafLimits
}

/** The control groups that this host lets us have, as tried. */
export class Cgroups {
  readonly #holding: Hierarchy | null
  readonly #places: readonly Hierarchy[]
  readonly #limiting: Partial<Record<LimitController, Hierarchy>> = {}
  #next = 1

  /** `parentName`: what the parent of all leaves is called, in every hierarchy. `whole`: leaves that the kernel kills, whoever their members are. */
  constructor(init: { parentName: string; places: readonly CgroupLocation[]; whole?: boolean }) {
    this.#places = init.places.map((place) => new Hierarchy(place, init))
    this.#holding = this.#places.find(({ version }) => version === 2) ?? null
  }

  /** The parents of leaves, made or not. */
  get parents(): string[] {
    return this.#places.filter((hierarchy) => hierarchy === this.#holding || hierarchy.limits.size > 0).map(({ parent }) => parent)
  }

  /** Makes a leaf, goes in, starts a program, comes out, kills and removes. Says why that does not work. */
  async holdingProblem(): Promise<string | null> {
    if (this.#holding === null) return 'no cgroup version 2 is mounted'
    const problem = await this.#try([this.#holding], UNLIMITED)
    return problem !== null && this.#holding.goWhole() ? this.#try([this.#holding], UNLIMITED) : problem
  }

  /** The same for a leaf with one limit; the hierarchy that has it is kept in mind. */
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

  /** Throws what kept it from being made. */
  makeLeaf({ hold, limits }: LeafNeed): CgroupLeaf {
    const hierarchies = new Set<Hierarchy>()
    const add = (hierarchy: Hierarchy | null | undefined): void => {
      if (!hierarchy) throw new Error('there is no control group for it')
      hierarchies.add(hierarchy)
    }
    if (hold) add(this.#holding)
    if (limits.memory !== null) add(this.#limiting.memory)
    if (limits.processes !== null) add(this.#limiting.pids)
    return this.#leafIn([...hierarchies], limits)
  }

  /** Removes what is empty. */
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

/** `program` waits for its stdin, so that it lives until it is killed. */
const tryLeaf = async (leaf: CgroupLeaf, program: string): Promise<string | null> => {
  const child = leaf.enter(() => spawn(program, [], { env: {}, stdio: ['pipe', 'ignore', 'ignore'], detached: true }))
  child.stdin.on('error', () => {})
  const exit = once(child, 'exit', { signal: AbortSignal.timeout(PROBE_MS) })
  // Where it is not waited for, the leaf's end says enough.
  exit.catch(() => {})
  if (leaf.isStuck) {
    child.kill('SIGKILL')
    await exit
    return 'we cannot come out of a leaf again'
  }
  try {
    leaf.confine()
  } finally {
    leaf.kill()
  }
  const [, signal] = (await exit) as [number | null, string | null]
  return signal === 'SIGKILL' ? null : 'what was started in a leaf did not end with it'
}

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
  if (pid === undefined || processState({ ...ownIdentity(), pid: Number(pid), started, namespace }) !== 'gone') return false
  return statSync(path, { throwIfNoEntry: false })?.uid === process.geteuid?.()
}

/** Below a mount of control groups, and not around ourselves. */
const isApart = (path: string, places: readonly CgroupLocation[]): boolean =>
  places.some(({ mount }) => `${dirname(path)}/`.startsWith(`${mount}/`)) && places.every(({ own }) => !`${own}/`.startsWith(`${path}/`))

/**
 * Kills and removes what starts before this one have left: beside where our own parents will stand, and in the groups
 * beside that one, which are those of other sessions of the same user. Answers those that are still there.
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
