import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { attempt } from '../base/errors.ts'

/** Where this process lives in one hierarchy of control groups. */
export interface CgroupPlace {
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
export const findCgroupPlaces = ({ mountinfo, cgroup }: CgroupFacts = readCgroupFacts()): CgroupPlace[] => {
  const groups = cgroup.split('\n').flatMap((line) => {
    const [, number, names = '', path] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? []
    return path === undefined ? [] : [{ number, controllers: names.split(',').filter(Boolean), path }]
  })
  return mountinfo.split('\n').flatMap((line): CgroupPlace[] => {
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
