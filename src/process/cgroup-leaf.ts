import { rmdirSync } from 'node:fs'
import { errnoOf } from '../base/errors.ts'
import { statOf } from '../base/proc-stat.ts'
import { endGroup, hasControl, killGroup, livingIn, readControl, walkMembers, writeControl } from './cgroup-files.ts'
import type { Hierarchy } from './cgroup-hierarchy.ts'
import type { Member } from './signals.ts'

/** What the members of a leaf may use together; null: as much as there is. */
export interface LeafLimits {
  /** Bytes. */
  readonly memory: number | null
  /** Processes and threads. */
  readonly processes: number | null
}

/** One of the hierarchies that a leaf stands in. */
export interface LeafPlace {
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
  readonly #places: readonly LeafPlace[]
  readonly #limits: LeafLimits
  #stuck = false

  /** Makes the groups, or none. Throws the system's error. */
  constructor(hierarchies: readonly Hierarchy[], init: { name: string; limits: LeafLimits }) {
    const made: LeafPlace[] = []
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
    const inside: LeafPlace[] = []
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
  #boundEarly({ hierarchy, directory }: LeafPlace): void {
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
