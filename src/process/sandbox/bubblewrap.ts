import { randomBytes } from 'node:crypto'
import { accessSync, constants, existsSync, lstatSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { attempt } from '../../base/errors.ts'
import type { Permit, SandboxGrant } from '../../policy/permit.ts'
import { SANDBOX_TMP_BYTES } from '../../protocol/limits/daemon.ts'
import { callFilter } from './seccomp-filter.ts'

/** Where the system's programs and libraries stand; some are links to others. */
const SYSTEM = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/nix/store']
/** What programs look up, and no secret is among it. Few, because bwrap reads all of its mounts for each that it adds. */
const SETTINGS = [
  'alternatives',
  'fonts',
  'group',
  'java-11-openjdk',
  'java-17-openjdk',
  'java-21-openjdk',
  'ld.so.cache',
  'localtime',
  'mime.types',
  'nsswitch.conf',
  'os-release',
  'passwd',
  'perl',
  'pki/ca-trust',
  'pki/tls/certs',
  'ssl/certs',
  'ssl/openssl.cnf',
  'terminfo',
]
/** Of no use without a network. */
const NETWORK_SETTINGS = ['gai.conf', 'host.conf', 'hosts', 'protocols', 'resolv.conf', 'services']
/** Of /proc, what root without capabilities could still write, by its number alone, and bwrap does not cover by itself. */
const READ_ONLY_OF_PROC = ['sys', 'fs', 'mtrr']
/** Of /proc, what tells of the whole host. */
const HIDDEN_OF_PROC = [
  'acpi',
  'asound',
  'kcore',
  'key-users',
  'keys',
  'kmsg',
  'kpagecgroup',
  'kpagecount',
  'kpageflags',
  'latency_stats',
  'sched_debug',
  'scsi',
  'slabinfo',
  'timer_list',
  'timer_stats',
  'vmallocinfo',
]
/** Homes of accounts that are none of a person's. */
const NO_HOME = /^\/$|^\/(usr|bin|sbin|lib|etc|proc|dev)(\/|$)/

/** What the sandbox is called inside of it. */
const HOST_NAME = 'sandbox'

const inMemory = (path: string): string[] => ['--size', String(SANDBOX_TMP_BYTES), '--tmpfs', path]

/** A directory becomes an empty one, a file has nothing in it; what does not exist stays so. */
const covered = (path: string): string[] => {
  const info = attempt(() => statSync(path))
  if (info === null) return []
  return info.isDirectory() ? ['--size', '4096', '--perms', '0555', '--tmpfs', path] : ['--ro-bind', '/dev/null', path]
}

const systemPlace = (path: string): string[] => {
  const info = attempt(() => lstatSync(path))
  if (info === null) return []
  return info.isSymbolicLink() ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path]
}

/** What every sandbox has of its own. */
const OWN = ['/dev', '/proc', '/run', '/sys', '/tmp', '/var/tmp']

/**
 * An image's files, to read. A directory in which something else is mounted is made anew, since nothing can be made in the image's own.
 * No link of an image is on the way to it: bwrap would follow that out of the new root, and make directories on the host.
 */
const imageFiles = (root: string, mounted: readonly string[], at = '/'): string[] =>
  readdirSync(join(root, at), { withFileTypes: true }).flatMap((entry) => {
    const path = join(at, entry.name)
    if (mounted.includes(path)) return []
    if (mounted.some((one) => one.startsWith(`${path}/`)))
      return entry.isDirectory() ? ['--dir', path, ...imageFiles(root, mounted, path)] : []
    if (entry.isSymbolicLink()) return ['--symlink', readlinkSync(join(root, path)), path]
    return entry.isDirectory() || entry.isFile() ? ['--ro-bind', join(root, path), path] : []
  })

const readOnly = (path: string): string[] => ['--ro-bind', path, path]

/** Namespaces of its own. A user namespace is not had by everybody; without it only root can have the others. */
const namespaces = (network: boolean, user: boolean): string[] => [
  ...(user ? ['--unshare-user', '--disable-userns'] : []),
  '--unshare-pid',
  '--unshare-ipc',
  '--unshare-uts',
  '--unshare-cgroup-try',
  ...(network ? [] : ['--unshare-net']),
  '--hostname',
  HOST_NAME,
  '--die-with-parent',
  // What would be typed on a terminal goes to that of its own session.
  '--new-session',
  '--cap-drop',
  'ALL',
]

const proc = (): string[] => [
  '--proc',
  '/proc',
  ...READ_ONLY_OF_PROC.map((name) => `/proc/${name}`)
    .filter((path) => existsSync(path))
    .flatMap(readOnly),
  // What this user cannot read out here he cannot in there.
  ...HIDDEN_OF_PROC.map((name) => `/proc/${name}`)
    .filter((path) => attempt(() => accessSync(path, constants.R_OK)) !== null)
    .flatMap(covered),
]

export interface BubblewrapInit {
  readonly grant: Pick<SandboxGrant, 'network' | 'readable' | 'home' | 'image'>
  /** Null: none, which is for a trial. */
  readonly writable: string | null
  readonly env: Readonly<Record<string, string>>
  /** Files and directories that are shown besides. */
  readonly shown: readonly string[]
  /** A directory that stands in the root of the sandbox and nowhere else: whoever sees it sees the sandbox. */
  readonly marker: string
  readonly userNamespace: boolean
}

/**
 * What bwrap is to make, without its descriptors and its program. An empty root, and in it: what the system has, to read; places in
 * memory; what the grant names. The later covers the earlier.
 */
export const bubblewrapArguments = ({ grant, writable, env, shown, marker, userNamespace }: BubblewrapInit): string[] => {
  const { network, readable, home, image } = grant
  const settings = [...(image === null ? SETTINGS : []), ...(network ? NETWORK_SETTINGS : [])]
  const mounted = [...settings.map((name) => `/etc/${name}`), ...(NO_HOME.test(home) ? [] : [home]), ...readable, ...shown]
  mounted.push(...OWN, ...(writable === null ? [] : [writable]))
  return [
    ...namespaces(network, userNamespace),
    // bwrap itself runs outside: nothing that a caller says is its own environment.
    '--clearenv',
    ...Object.entries(env).flatMap(([name, value]) => ['--setenv', name, value]),
    ...(image === null ? SYSTEM.flatMap(systemPlace) : imageFiles(image.root, mounted)),
    // Parents that bwrap makes by itself are for its own user alone.
    '--dir',
    '/etc',
    ...settings.flatMap((name) => ['--ro-bind-try', `/etc/${name}`, `/etc/${name}`]),
    ...proc(),
    '--dev',
    '/dev',
    ...['/dev/shm', '/tmp', '/var/tmp'].flatMap(inMemory),
    '--remount-ro',
    '/dev',
    '--dir',
    '/run',
    ...(NO_HOME.test(home) ? [] : inMemory(home)),
    ...[...readable, ...shown].flatMap(readOnly),
    ...(writable === null ? [] : ['--bind', writable, writable]),
    '--dir',
    `/${marker}`,
    '--remount-ro',
    '/',
    '--chdir',
    writable ?? '/',
  ]
}

/** True where the sandbox shows a path by itself. */
export const isOfSystem = (path: string): boolean => SYSTEM.some((one) => path.startsWith(`${one}/`))

/** What bwrap reads on descriptors of its own, where nobody else sees it, and how it is let go on. */
export interface SandboxPlan {
  readonly feeds: readonly { readonly descriptor: number; readonly bytes: Buffer }[]
  /** The program begins when a byte comes here. */
  readonly gate: number
  /** See `BubblewrapInit.marker`. */
  readonly marker: string
}

interface PlanInit {
  /** The first descriptor that is free. */
  readonly first: number
  readonly userNamespace: boolean
  /** Files that something before the program needs. */
  readonly shown: readonly string[]
}

/** What bwrap is started with, behind which its program follows, and what it is fed. */
export const planSandbox = (
  { executable, cwd, env, terminal }: Pick<Permit, 'executable' | 'cwd' | 'env' | 'terminal'>,
  grant: SandboxGrant,
  { first, userNamespace, shown }: PlanInit,
): { readonly words: readonly string[]; readonly sandbox: SandboxPlan } | { readonly problem: string } => {
  if (grant.writable !== cwd) return { problem: `the sandbox was granted ${grant.writable}, and the run is to be in ${cwd}` }
  const filter = callFilter({ unixSockets: grant.network || grant.unix_sockets })
  if (filter === null) return { problem: `no sandbox is known for processors of the kind ${process.arch}` }
  const marker = `.x0x-${randomBytes(16).toString('hex')}`
  // What holds a terminal is a program of this host's.
  if (grant.image !== null && terminal !== null) return { problem: 'in the image of a container there is no terminal: run it without one' }
  const isShown =
    shown.includes(executable.path) || grant.image !== null || isOfSystem(executable.path) || executable.path.startsWith(`${cwd}/`)
  const words = bubblewrapArguments({
    grant,
    writable: cwd,
    // On a raw terminal the program is sent its environment by who holds it.
    env: terminal?.raw === true ? {} : env,
    shown: isShown ? shown : [...shown, executable.path],
    marker,
    userNamespace,
  })
  const [options, calls, gate] = [first, first + 1, first + 2]
  return {
    words: ['--args', String(options), '--seccomp', String(calls), '--block-fd', String(gate)],
    sandbox: {
      feeds: [
        { descriptor: options, bytes: Buffer.from(words.map((word) => `${word}\0`).join('')) },
        { descriptor: calls, bytes: filter },
      ],
      gate,
      marker,
    },
  }
}
