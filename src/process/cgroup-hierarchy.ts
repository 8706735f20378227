import { rmdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { errorText } from '../base/errors.ts'
import { makeGroup, membersOf, readControl, writeControl } from './cgroup-files.ts'
import type { CgroupPlace } from './cgroup-places.ts'
import { descendantsOf } from './process-tree.ts'

/** A controller that limits. */
export type LimitController = 'memory' | 'pids'

/** Where a unit's own processes stand, so that the group above them can hand controllers down (DelegateSubgroup= of systemd). */
const DAEMON_GROUP = 'x0x-daemon'

/** One hierarchy, and in it the parent of the leaves of one data directory. */
export class Hierarchy {
  readonly version: 1 | 2
  /** The group that holds our leaves. */
  readonly parent: string
  /** Which limits a leaf of ours can have. */
  readonly limits = new Set<LimitController>()
  readonly #base: string
  #own: string
  #threaded: boolean

  /** `whole`: do not try to move our one thread alone. */
  constructor(place: CgroupPlace, init: { parentName: string; whole?: boolean }) {
    const { version, own, controllers } = place
    this.version = version
    this.#own = own
    this.#threaded = version === 2 && init.whole !== true
    // Only version 2 forbids processes where controllers are handed down.
    this.#base = version === 2 && basename(own) === DAEMON_GROUP ? dirname(own) : own
    this.parent = join(this.#base, init.parentName)
    for (const name of ['memory', 'pids'] as const) if (controllers.includes(name)) this.limits.add(name)
  }

  /** Where we come back to. */
  get own(): string {
    return this.#own
  }

  /**
   * The file that takes us in and out. A thread that moves alone waits for nobody; a process that moves waits for a
   * grace period of the kernel, 8 ms and more after a while of quiet.
   */
  get entryFile(): string {
    if (this.version === 1) return 'tasks'
    return this.#threaded ? 'cgroup.threads' : 'cgroup.procs'
  }

  /** Makes a leaf and answers its path. Throws the system's error. */
  makeLeaf(name: string): string {
    this.#makeParent()
    const directory = join(this.parent, name)
    if (!makeGroup(directory)) throw new Error(`${directory} is there already`)
    if (this.#threaded) writeControl(directory, 'cgroup.type', 'threaded')
    return directory
  }

  /** From now on leaves are for processes instead of threads; nobody may live in one yet. False where they are that already. */
  goWhole(): boolean {
    if (!this.#threaded) return false
    this.#threaded = false
    this.close()
    return true
  }

  /** Version 2: makes leaves that can have this limit. Says why not. */
  enable(controller: LimitController): string | null {
    if (this.limits.has(controller)) return null
    const there = readControl(this.#base, 'cgroup.controllers')
    if (!there.includes(controller)) return `${this.#base} was not given the ${controller} controller`
    const problem = this.#try(controller)
    // Memory belongs to processes, so that threads cannot have it apart.
    return problem !== null && this.goWhole() ? this.#try(controller) : problem
  }

  /** Removes the parent; nothing where leaves are left. */
  close(): void {
    try {
      rmdirSync(this.parent)
    } catch {
      // Never made, or not empty: the next start looks again.
    }
  }

  #makeParent(): void {
    if (!makeGroup(this.parent)) return
    // Throws where our own group hands down what only processes can have.
    if (this.#threaded) writeControl(this.parent, 'cgroup.type', 'threaded')
    this.#handDown(this.parent)
  }

  #try(controller: LimitController): string | null {
    try {
      this.#makeParent()
      this.#enableIn(this.#base, controller)
      this.limits.add(controller)
      this.#handDown(this.parent)
      return null
    } catch (error) {
      this.limits.delete(controller)
      return `the ${controller} controller cannot be handed down in ${this.#base}: ${errorText(error)}`
    }
  }

  #enableIn(directory: string, controller: LimitController): void {
    if (readControl(directory, 'cgroup.subtree_control').includes(controller)) return
    try {
      writeControl(directory, 'cgroup.subtree_control', `+${controller}`)
    } catch {
      // A group that hands controllers down has no processes of its own: ours step aside.
      this.#stepAside(directory)
      writeControl(directory, 'cgroup.subtree_control', `+${controller}`)
    }
  }

  /** Only what is ours moves; a group that holds others cannot be used. */
  #stepAside(directory: string): void {
    const aside = join(directory, DAEMON_GROUP)
    makeGroup(aside)
    const ours = new Set(descendantsOf(process.pid).map(({ pid }) => pid))
    const others = membersOf(directory).filter((pid) => !ours.has(pid))
    if (others.length > 0) throw new Error(`it also holds process ${others[0]}, which is not ours`)
    writeControl(aside, 'cgroup.procs', 0)
    this.#own = aside
    for (const pid of membersOf(directory)) writeControl(aside, 'cgroup.procs', pid)
  }

  #handDown(directory: string): void {
    if (this.version === 1) return
    for (const controller of this.limits) writeControl(directory, 'cgroup.subtree_control', `+${controller}`)
  }
}
