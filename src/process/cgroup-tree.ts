import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { attempt, errnoOf, errorText } from '../base/errors.ts'
import { birthOf, isLiving } from '../base/process-info.ts'
import { TREE_END_MS, TREE_POLL_MS, descendantsOf } from './descendant-tracker.ts'
import { processOf, send } from './signals.ts'

/** Writes a control file. The kernel takes or refuses the value as a whole. Throws its error. */
export const writeControl = (directory: string, file: string, value: string | number): void =>
  writeFileSync(join(directory, file), String(value))

export const hasControl = (directory: string, file: string): boolean => existsSync(join(directory, file))

/** Words of a control file, or empty if it cannot be read. */
export const readControl = (directory: string, file: string): string[] =>
  attempt(() => readFileSync(join(directory, file), 'utf8').split(/\s+/).filter(Boolean)) ?? []

/** Processes of this group, without this process. A process that our PID namespace does not show is listed as 0. */
export const membersOf = (directory: string): number[] => [...walkMembers(directory)].filter((pid) => pid !== null)

/** The same one by one, or null for each further thread of a process. */
export function* walkMembers(directory: string): Generator<number | null> {
  const threaded = isThreaded(directory)
  const seen = new Set([0, 1, process.pid])
  for (const text of readControl(directory, threaded ? 'cgroup.threads' : 'cgroup.procs')) {
    const pid = threaded ? processOf(Number(text)) : Number(text)
    yield seen.has(pid) ? null : pid
    seen.add(pid)
  }
}

/** A version 2 group whose members are threads, so that the kernel does not list or kill its processes. */
const isThreaded = (directory: string): boolean => readControl(directory, 'cgroup.type')[0] === 'threaded'

/** Child groups. Without `join`, which the runtime would recompile for the hundreds of paths at each start, at a cost of 5 MB. */
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
 * Sends SIGKILL to everything in the group and below it. Call it again for what it misses. Groups of threads, version 1 and kernels before
 * 5.14 have no `cgroup.kill`, so each member is killed.
 */
export const killGroup = (directory: string): void => {
  try {
    if (hasControl(directory, 'cgroup.kill') && !isThreaded(directory)) return writeControl(directory, 'cgroup.kill', 1)
    for (const below of groupsBelow(directory)) killGroup(below)
    // A process born in a frozen group does not run, and SIGKILL also ends a frozen process.
    if (hasControl(directory, 'cgroup.freeze')) writeControl(directory, 'cgroup.freeze', 1)
    for (const pid of membersOf(directory)) send(pid, 'SIGKILL')
  } catch {
    // The group was removed meanwhile.
  }
}

/** Removes the group, or true if it is gone. The kernel refuses while a process lives in it or below. */
export const removeNow = (directory: string): boolean => {
  try {
    rmdirSync(directory)
    return true
  } catch (error) {
    return errnoOf(error) === 'ENOENT'
  }
}

/** Kills everything in the group and removes it. True if all are dead. False after TREE_END_MS, for a process that the kernel holds. */
export const endGroup = async (directory: string): Promise<boolean> => {
  // Most runs leave no processes.
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

/** Counts living processes in the group and below it. Removes an empty group, so that most runs need no search. */
export const livingIn = (directory: string): number => {
  if (removeNow(directory)) return 0
  const here = membersOf(directory).filter((pid) => isLiving({ pid, born: birthOf(pid) ?? '' }))
  return groupsBelow(directory).reduce((count, below) => count + livingIn(below), here.length)
}

/** Creates a group, or false if it exists. Throws other errors. */
export const makeGroup = (directory: string): boolean => {
  try {
    mkdirSync(directory)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

/** The group of this process in one hierarchy. */
export interface CgroupLocation {
  readonly version: 1 | 2
  /** Controllers of a version 1 hierarchy, or empty for version 2, which lists them in files. */
  readonly controllers: readonly string[]
  /** Mount point of the hierarchy. */
  readonly mount: string
  readonly own: string
}

/** Contents of two files of /proc, which tests replace. */
export interface CgroupFacts {
  /** /proc/self/mountinfo, proc_pid_mountinfo(5). */
  readonly mountinfo: string
  /** /proc/self/cgroup, cgroups(7). */
  readonly cgroup: string
}

/** Empty on a system without /proc. */
export const readCgroupFacts = (): CgroupFacts => {
  const read = (path: string): string => attempt(() => readFileSync(path, 'utf8')) ?? ''
  return { mountinfo: read('/proc/self/mountinfo'), cgroup: read('/proc/self/cgroup') }
}

/** Paths that fit in an input line of the cleanup process, which has no quoting. */
const PLAIN_PATH = /^\/[A-Za-z0-9/._@:,+~\\-]*$/

/** mountinfo escapes blanks and backslashes in octal. */
const unescape = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_all, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))

/** Directory of the group, or null if the mount does not show it. */
const directoryOf = (mount: string, root: string, path: string): string | null => {
  if (path.split('/').includes('..')) return null
  if (root === '/') return join(mount, path)
  if (path !== root && !path.startsWith(`${root}/`)) return null
  return join(mount, path.slice(root.length))
}

/**
 * Finds every visible hierarchy that contains this process. On a hybrid system version 2 is mounted below the others and its group is the
 * line `0::`. A version 1 mount names its controllers in its options.
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

export type LimitController = 'memory' | 'pids'

/** Group of a unit's own processes, so that their parent group can delegate controllers (DelegateSubgroup= of systemd). */
const DAEMON_GROUP = 'x0x-daemon'

/** One hierarchy, and in it the parent of all leaves of one data directory. */
export class Hierarchy {
  readonly version: 1 | 2
  readonly parent: string
  /** Limits that our leaves can have. */
  readonly limits = new Set<LimitController>()
  readonly #base: string
  #own: string
  #threaded: boolean

  /** With `whole`, always moves the whole process instead of one thread. */
  constructor(place: CgroupLocation, init: { parentName: string; whole?: boolean }) {
    const { version, own, controllers } = place
    this.version = version
    this.#own = own
    this.#threaded = version === 2 && init.whole !== true
    // Only version 2 forbids processes in groups that delegate controllers.
    this.#base = version === 2 && basename(own) === DAEMON_GROUP ? dirname(own) : own
    this.parent = join(this.#base, init.parentName)
    for (const name of ['memory', 'pids'] as const) if (controllers.includes(name)) this.limits.add(name)
  }

  /** The group to return to. */
  get own(): string {
    return this.#own
  }

  /**
   * File that moves us in and out. A thread moves at once. A process waits for a grace period of the kernel, 8 ms or more after idle time.
   */
  get entryFile(): string {
    if (this.version === 1) return 'tasks'
    return this.#threaded ? 'cgroup.threads' : 'cgroup.procs'
  }

  /** Creates a leaf and returns its path. Throws errors of the system. */
  makeLeaf(name: string): string {
    const directory = join(this.parent, name)
    if (!this.#makeInParent(directory)) throw new Error(`${directory} exists already`)
    if (this.#threaded) writeControl(directory, 'cgroup.type', 'threaded')
    return directory
  }

  /** Creates leaves for processes instead of threads from now on. No leaf may be in use. False if that is already so. */
  goWhole(): boolean {
    if (!this.#threaded) return false
    this.#threaded = false
    this.close()
    return true
  }

  /** Enables a limit for our leaves in version 2. Returns the reason for a failure. */
  enable(controller: LimitController): string | null {
    if (this.limits.has(controller)) return null
    const there = readControl(this.#base, 'cgroup.controllers')
    if (!there.includes(controller)) return `${this.#base} was not given the ${controller} controller`
    const problem = this.#try(controller)
    // Memory is accounted per process, so groups of threads cannot limit it.
    return problem !== null && this.goWhole() ? this.#try(controller) : problem
  }

  /** Removes the parent if it has no leaves. */
  close(): void {
    try {
      rmdirSync(this.parent)
    } catch {
      // The group is missing or not empty, and the next start tries again.
    }
  }

  /** Makes the parent for the first leaf only. */
  #makeInParent(directory: string): boolean {
    try {
      return makeGroup(directory)
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error
      this.#makeParent()
      return makeGroup(directory)
    }
  }

  #makeParent(): void {
    if (!makeGroup(this.parent)) return
    // Throws if our own group delegates controllers that only processes can have.
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
      // A group that delegates controllers may not contain processes, so ours move to a child group.
      this.#stepAside(directory)
      writeControl(directory, 'cgroup.subtree_control', `+${controller}`)
    }
  }

  /** Moves only our processes. A group with others cannot be used. */
  #stepAside(directory: string): void {
    const aside = join(directory, DAEMON_GROUP)
    makeGroup(aside)
    const ours = new Set(descendantsOf(process.pid).map(({ pid }) => pid))
    const others = membersOf(directory).filter((pid) => !ours.has(pid))
    if (others.length > 0) throw new Error(`it also has process ${others[0]}, which is not part of x0x`)
    writeControl(aside, 'cgroup.procs', 0)
    this.#own = aside
    for (const pid of membersOf(directory)) writeControl(aside, 'cgroup.procs', pid)
  }

  #handDown(directory: string): void {
    if (this.version === 1) return
    for (const controller of this.limits) writeControl(directory, 'cgroup.subtree_control', `+${controller}`)
  }
}
