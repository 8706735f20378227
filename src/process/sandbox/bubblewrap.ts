import { randomBytes } from 'node:crypto'
import { accessSync, constants, existsSync, lstatSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { attempt } from '../../base/errors.ts'
import type { Permit, SandboxGrant } from '../../policy/permit.ts'
import { SANDBOX_TMP_BYTES } from '../../protocol/limits/daemon.ts'
import { callFilter } from './seccomp-filter.ts'

/** Directories of the system's programs and libraries. Some are links. */
const SYSTEM = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/nix/store']
/** Files of /etc that programs need and that contain no secret. Few, because bwrap reads all its mounts for each new one. */
const SETTINGS = (
  'alternatives fonts group java-11-openjdk java-17-openjdk java-21-openjdk ld.so.cache localtime mime.types nsswitch.conf ' +
  'os-release passwd perl pki/ca-trust pki/tls/certs ssl/certs ssl/openssl.cnf terminfo'
).split(' ')
/** Needed only with a network. */
const NETWORK_SETTINGS = ['gai.conf', 'host.conf', 'hosts', 'protocols', 'resolv.conf', 'services']
/** Parts of /proc that root could write without capabilities and that bwrap does not cover. */
const READ_ONLY_OF_PROC = ['sys', 'fs', 'mtrr']
/** Parts of /proc that describe the whole machine. */
const HIDDEN_OF_PROC = (
  'acpi asound kcore key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats sched_debug scsi slabinfo timer_list ' +
  'timer_stats vmallocinfo'
).split(' ')
/** Homes of system accounts. */
const NO_HOME = /^\/$|^\/(usr|bin|sbin|lib|etc|proc|dev)(\/|$)/

/** Host name inside the sandbox. */
const HOST_NAME = 'sandbox'

const inMemory = (path: string): string[] => ['--size', String(SANDBOX_TMP_BYTES), '--tmpfs', path]

/** Covers a directory with an empty directory and a file with an empty file. Skips missing paths. */
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

/** Paths that every sandbox creates. */
const OWN = ['/dev', '/proc', '/run', '/sys', '/tmp', '/var/tmp']

/**
 * Mounts an image's files read-only. A directory that contains another mount is created as a new directory, because the image's own
 * directory is read-only. No link of the image may be on the way to a mount, because bwrap would follow it out of the new root and create
 * directories on the host.
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

/** A user namespace is not available everywhere. Without it only root can create the others. */
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
  // A program must not type into the terminal of another session.
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
  // Only readable files are covered, because the user cannot read the others inside either.
  ...HIDDEN_OF_PROC.map((name) => `/proc/${name}`)
    .filter((path) => attempt(() => accessSync(path, constants.R_OK)) !== null)
    .flatMap(covered),
]

export interface BubblewrapInit {
  readonly grant: Pick<SandboxGrant, 'network' | 'readable' | 'home' | 'image'>
  /** Null for a trial without a writable directory. */
  readonly writable: string | null
  readonly env: Readonly<Record<string, string>>
  /** Additional visible files and directories. */
  readonly shown: readonly string[]
  /** Name of a directory that exists only in the root of this sandbox and identifies it. */
  readonly marker: string
  readonly userNamespace: boolean
}

/**
 * Arguments of bwrap without descriptors and program. The root is empty except for system files (read-only), memory file systems and the
 * grant's paths. Later mounts cover earlier ones.
 */
export const bubblewrapArguments = ({ grant, writable, env, shown, marker, userNamespace }: BubblewrapInit): string[] => {
  const { network, readable, home, image } = grant
  const settings = [...(image === null ? SETTINGS : []), ...(network ? NETWORK_SETTINGS : [])]
  const mounted = [...settings.map((name) => `/etc/${name}`), ...(NO_HOME.test(home) ? [] : [home]), ...readable, ...shown]
  mounted.push(...OWN, ...(writable === null ? [] : [writable]))
  return [
    ...namespaces(network, userNamespace),
    // bwrap itself runs outside, so a client's variables must not be its own environment.
    '--clearenv',
    ...Object.entries(env).flatMap(([name, value]) => ['--setenv', name, value]),
    ...(image === null ? SYSTEM.flatMap(systemPlace) : imageFiles(image.root, mounted)),
    // bwrap creates missing parents for its own user only.
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

/** True for a path below the system's directories. */
export const isOfSystem = (path: string): boolean => SYSTEM.some((one) => path.startsWith(`${one}/`))

/** Input of bwrap on private descriptors, and how the program is released. */
export interface SandboxPlan {
  readonly feeds: readonly { readonly descriptor: number; readonly bytes: Buffer }[]
  /** Writing a byte to this descriptor releases the program. */
  readonly gate: number
  /** See `BubblewrapInit.marker`. */
  readonly marker: string
}

interface PlanInit {
  /** First free descriptor. */
  readonly first: number
  readonly userNamespace: boolean
  /** Files that a wrapper of the program needs. */
  readonly shown: readonly string[]
}

/** Plans the words before the program and the input of bwrap. */
export const planSandbox = (
  { executable, cwd, env, terminal }: Pick<Permit, 'executable' | 'cwd' | 'env' | 'terminal'>,
  grant: SandboxGrant,
  { first, userNamespace, shown }: PlanInit,
): { readonly words: readonly string[]; readonly sandbox: SandboxPlan } | { readonly problem: string } => {
  if (grant.writable !== cwd) return { problem: `the sandbox was granted ${grant.writable}, and the run is to be in ${cwd}` }
  const filter = callFilter({ unixSockets: grant.network || grant.unix_sockets })
  if (filter === null) return { problem: `no sandbox is known for processors of the kind ${process.arch}` }
  const marker = `.x0x-${randomBytes(16).toString('hex')}`
  // The terminal's holder is a program of this machine.
  if (grant.image !== null && terminal !== null) return { problem: 'a sandbox from an image has no terminal: run it without one' }
  const isShown =
    shown.includes(executable.path) || grant.image !== null || isOfSystem(executable.path) || executable.path.startsWith(`${cwd}/`)
  const words = bubblewrapArguments({
    grant,
    writable: cwd,
    // On a raw terminal the holder sends the program its environment.
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
