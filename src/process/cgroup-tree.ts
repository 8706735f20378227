import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { attempt, errnoOf, errorText } from '../base/errors.ts'
import { birthOf, isLiving } from '../base/process-info.ts'
import { TREE_END_MS, TREE_POLL_MS, descendantsOf } from './descendant-tracker.ts'
import { processOf, send } from './signals.ts'

/** A control file; the kernel takes or refuses a write as a whole. Throws its error. */
export const writeControl = (directory: string, file: string, value: string | number): void =>
  writeFileSync(join(directory, file), String(value))

export const hasControl = (directory: string, file: string): boolean => existsSync(join(directory, file))

/** The words of a control file; none where it cannot be read. */
export const readControl = (directory: string, file: string): string[] =>
  attempt(() => readFileSync(join(directory, file), 'utf8').split(/\s+/).filter(Boolean)) ?? []

/** The processes of this very group, never ourselves. 0 stands for one that our PID namespace does not show. */
export const membersOf = (directory: string): number[] => [...walkMembers(directory)].filter((pid) => pid !== null)

/** The same, one after the other; null for each thread of one that was named already. */
export function* walkMembers(directory: string): Generator<number | null> {
  const threaded = isThreaded(directory)
  const seen = new Set([0, 1, process.pid])
  for (const text of readControl(directory, threaded ? 'cgroup.threads' : 'cgroup.procs')) {
    const pid = threaded ? processOf(Number(text)) : Number(text)
    yield seen.has(pid) ? null : pid
    seen.add(pid)
  }
}

/** A group of version 2 whose members are threads: the kernel does not list or kill its processes. */
const isThreaded = (directory: string): boolean => readControl(directory, 'cgroup.type')[0] === 'threaded'

/** The groups directly below. A host has hundreds, for whose paths `join` would be called so often at each start that the runtime compiles it once more, which is 5 MB. */
export const groupsBelow = (directory: string): string[] => {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => `${directory}/${entry.name}`)
  } catch {
    return []
  }
}

/**
 * SIGKILL to everything in the group and below it; whom this misses is left to the next call. Groups of threads and of
 * version 1 have no `cgroup.kill`, nor have kernels before 5.14: their members are killed one by one.
 */
export const killGroup = (directory: string): void => {
  try {
    if (hasControl(directory, 'cgroup.kill') && !isThreaded(directory)) return writeControl(directory, 'cgroup.kill', 1)
    for (const below of groupsBelow(directory)) killGroup(below)
    // Who is born in a frozen group does not run, and a frozen process dies of SIGKILL all the same.
    if (hasControl(directory, 'cgroup.freeze')) writeControl(directory, 'cgroup.freeze', 1)
    for (const pid of membersOf(directory)) send(pid, 'SIGKILL')
  } catch {
    // It was removed while we looked.
  }
}

/** True when the group is no longer there. The kernel refuses while anybody lives in it or below. */
const removeNow = (directory: string): boolean => {
  try {
    rmdirSync(directory)
    return true
  } catch {
    return !existsSync(directory)
  }
}

/**
 * Kills what is in the group and removes it. A group can be removed when nobody lives in it: true means
 * that all are dead. False after CELL_END_MS, for a process that the kernel itself holds.
 */
export const endGroup = async (directory: string): Promise<boolean> => {
  // Most runs leave nobody behind, and then there is nothing to look for.
  if (removeNow(directory)) return true
  const deadline = performance.now() + TREE_END_MS
  for (;;) {
    killGroup(directory)
    for (const below of groupsBelow(directory)) removeNow(below)
    if (removeNow(directory)) return true
    if (performance.now() > deadline) return false
    await sleep(TREE_POLL_MS)
  }
}

/** Counts the processes that live in the group and below it. Removes it where there are none, so that most runs need no look. */
export const livingIn = (directory: string): number => {
  if (removeNow(directory)) return 0
  const here = membersOf(directory).filter((pid) => isLiving({ pid, born: birthOf(pid) ?? '' }))
  return groupsBelow(directory).reduce((count, below) => count + livingIn(below), here.length)
}

/** Makes a group; `false` when there is one of that name. Throws what else is wrong. */
export const makeGroup = (directory: string): boolean => {
  try {
    mkdirSync(directory)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

/** Where this process lives in one hierarchy of control groups. */
export interface CgroupLocation {
  readonly version: 1 | 2
  /** Controllers of a version 1 hierarchy; empty for version 2, where files say it. */
  readonly controllers: readonly string[]
  /** Where the hierarchy is mounted. */
  readonly mount: string
  /** The directory of our own group. */
  readonly own: string
}

/** What the two files of /proc say, so that a test can say something else. */
export interface CgroupFacts {
  /** /proc/self/mountinfo, proc_pid_mountinfo(5). */
  readonly mountinfo: string
  /** /proc/self/cgroup, cgroups(7). */
  readonly cgroup: string
}

/** Our own facts; empty on a system without /proc. */
export const readCgroupFacts = (): CgroupFacts => {
  const read = (path: string): string => attempt(() => readFileSync(path, 'utf8')) ?? ''
  return { mountinfo: read('/proc/self/mountinfo'), cgroup: read('/proc/self/cgroup') }
}

/** A path that can stand in a line for the guardian: no blank, nothing that a file name here does not need. */
const PLAIN_PATH = /^\/[A-Za-z0-9/._@:,+~\\-]*$/

/** mountinfo writes blanks and backslashes in octal. */
const unescape = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_all, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))

/** The group's directory, or null where the mount does not show it. */
const directoryOf = (mount: string, root: string, path: string): string | null => {
  if (path.split('/').includes('..')) return null
  if (root === '/') return join(mount, path)
  if (path !== root && !path.startsWith(`${root}/`)) return null
  return join(mount, path.slice(root.length))
}

/**
 * Every hierarchy that we live in and can see. On a hybrid system version 2 is mounted below the
 * others and its group is the line `0::`; a version 1 mount names its controllers in its options.
 */
export const findCgroupPlaces = ({ mountinfo, cgroup }: CgroupFacts = readCgroupFacts()): CgroupLocation[] => {
  const groups = cgroup.split('\n').flatMap((line) => {
    const [, number, names = '', path] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? []
    return path === undefined ? [] : [{ number, controllers: names.split(',').filter(Boolean), path }]
  })
  return mountinfo.split('\n').flatMap((line): CgroupLocation[] => {
    const [before = '', after = ''] = line.split(' - ')
    const [, , , root = '', point = ''] = before.split(' ').map(unescape)
    const [type, , options = ''] = after.split(' ')
    if (type !== 'cgroup' && type !== 'cgroup2') return []
    const shared = options.split(',')
    const group = groups.find(({ number, controllers }) =>
      type === 'cgroup2' ? number === '0' : controllers.length > 0 && controllers.every((name) => shared.includes(name)),
    )
    const own = group === undefined ? null : directoryOf(point, root, group.path)
    if (group === undefined || own === null || !PLAIN_PATH.test(own)) return []
    return [{ version: type === 'cgroup2' ? 2 : 1, controllers: type === 'cgroup2' ? [] : group.controllers, mount: point, own }]
  })
}

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
  constructor(place: CgroupLocation, init: { parentName: string; whole?: boolean }) {
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
