import { accessSync, constants, existsSync, lstatSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { homedir, userInfo } from 'node:os'
import { basename, dirname, isAbsolute, join, posix } from 'node:path'
import { attempt } from '../../base/errors.ts'
import { MAX_SANDBOX_LINKS } from '../../protocol/limits/daemon.ts'
import type { ExecutableLookup } from '../executable.ts'
import { type Refused, refused } from '../local/intent.ts'
import type { Executable, Permit, SandboxGrant, SandboxImage } from '../permit.ts'
import { autostartProblem, homesBeside, isWithin, whereTo } from './autostart-places.ts'
import type { SandboxSettings } from './sandbox-settings.ts'

/** Directories, with all below them, that a sandbox may not show because the system depends on them. */
const SYSTEM = [
  '/bin',
  '/boot',
  '/dev',
  '/etc',
  '/lib',
  '/lib32',
  '/lib64',
  '/libx32',
  '/proc',
  '/run',
  '/sbin',
  '/sys',
  '/usr',
  '/var/run',
  '/var/spool/at',
  '/var/spool/cron',
]
/** Directories that several users share. Their entries may belong to other users. Directories below them may be shown. */
const SHARED = ['/', '/home', '/media', '/mnt', '/opt', '/root', '/srv', '/tmp', '/var', '/var/lib', '/var/tmp']
/** Exceptions that a configuration may show read-only. */
const SHOWABLE = ['/etc', '/media', '/mnt', '/opt', '/srv', '/usr']
/** Secrets of the system that a daemon running as root could read. */
const SYSTEM_SECRETS = ['/etc/gshadow', '/etc/shadow', '/etc/ssh', '/etc/ssl/private', '/etc/sudoers', '/etc/x0x']
/** Secrets in a user's home. Names that begin with `.x0x` also count, as they are data directories of x0x. */
const SECRETS = [
  '.Xauthority',
  '.aws',
  '.azure',
  '.bash_history',
  '.boto',
  '.cargo/credentials',
  '.cargo/credentials.toml',
  '.claude',
  '.codex',
  '.config/gcloud',
  '.config/gh',
  '.config/google-chrome',
  '.config/op',
  '.config/rclone',
  '.config/chromium',
  '.docker',
  '.fly',
  '.git-credentials',
  '.gnupg',
  '.kube',
  '.local/share/fish/fish_history',
  '.local/share/keyrings',
  '.m2/settings.xml',
  '.mozilla',
  '.netrc',
  '.npmrc',
  '.oci',
  '.password-store',
  '.pgpass',
  '.psql_history',
  '.pypirc',
  '.s3cfg',
  '.ssh',
  '.terraform.d',
  '.thunderbird',
  '.vault-token',
  '.zsh_history',
  'snap/firefox',
] as const

/** Directory in the home with the files of images, which no run may change. */
export const IMAGES_DIRECTORY = '.x0x-images'

/** Paths on this host that a sandbox must not show. */
export interface SandboxPath {
  readonly home: string
  /** Data directories and other secrets. The paths need not exist. */
  readonly secrets: readonly string[]
}

/** Paths of secrets in a home, existing or not. */
const secretsOf = (home: string): string[] => {
  const ours = (attempt(() => readdirSync(home)) ?? []).filter((name) => name.startsWith('.x0x'))
  return ['.x0x', IMAGES_DIRECTORY, ...ours, ...SECRETS].map((name) => join(home, name))
}

/**
 * The home of this user with its secrets, and `further` secrets such as a data directory outside the home. HOME may differ from the home in
 * passwd, so the secrets of both count.
 */
export const sandboxPath = (further: readonly string[] = []): SandboxPath => {
  const named = attempt(homedir) ?? '/'
  const own = attempt(() => userInfo().homedir) ?? '/'
  const home = whereTo(isAbsolute(named) ? named : own)
  const secrets = [...new Set([home, whereTo(own)])].filter((one) => isAbsolute(one)).flatMap(secretsOf)
  return { home, secrets: [...new Set([...secrets, ...SYSTEM_SECRETS, ...further].flatMap((path) => [path, whereTo(path)]))] }
}

const ELSEWHERE = 'use a project directory'

/** Why a directory may not be shown, or null if it may. `writable` tells whether the run may change it. */
const placeProblem = (path: string, { home, secrets }: SandboxPath, writable: boolean): string | null => {
  if (!isAbsolute(path)) return 'it is not an absolute path'
  const barred = (one: string): boolean => writable || !SHOWABLE.includes(one)
  if (SHARED.filter(barred).includes(path)) return 'it belongs to the whole system'
  const system = SYSTEM.filter(barred).find((one) => isWithin(path, one))
  if (system !== undefined) return `it belongs to ${system} of the system`
  const around = secrets.find((secret) => isWithin(path, secret))
  if (around !== undefined) return `it lies in ${around}, which holds secrets`
  const homes = [home, ...homesBeside()]
  if (homes.includes(path)) return 'it is a home, where secrets and start-up files lie'
  const held = homes.find((one) => isWithin(one, path))
  if (held !== undefined) return `it holds the home ${held}`
  const inside = secrets.find((secret) => isWithin(secret, path))
  if (inside !== undefined) return `it holds ${inside}, where secrets lie`
  return writable ? autostartProblem(path, homes) : null
}

/**
 * Grant of a run in a directory. It may write this directory and read the system's programs. All else is inaccessible. `cwd` must have no
 * links. Refuses a directory that would show more than a project.
 */
export const sandboxGrant = (
  settings: SandboxSettings,
  cwd: string,
  place: SandboxPath = sandboxPath(),
  image: SandboxImage | null = null,
): { readonly kind: 'grant'; readonly grant: SandboxGrant } | Refused => {
  const { engine, network, unix_sockets, readable, max_memory_bytes, max_processes } = settings
  const problem = placeProblem(cwd, place, true)
  if (problem !== null)
    return refused('forbidden_path', `${cwd} cannot be the working directory of a sandbox: ${problem}; ${ELSEWHERE}`, { path: cwd })
  const shown: string[] = []
  for (const named of readable) {
    const path = whereTo(named)
    const why = existsSync(path) ? placeProblem(path, place, false) : 'it does not exist'
    if (why !== null)
      return refused('forbidden_path', `tools.exec.sandbox.readable: ${path} cannot be shown in a sandbox: ${why}`, { path })
    // A directory below the working directory is already visible.
    if (!isWithin(path, cwd)) shown.push(path)
  }
  return {
    kind: 'grant',
    grant: { engine, image, network, unix_sockets, writable: cwd, readable: shown, home: place.home, max_memory_bytes, max_processes },
  }
}

/** The path on this host that `path` means to a process with the root directory `root`. Throws the system's error. */
export const seenFrom = (root: string, path: string, placeOf = (inside: string): string => join(root, inside)): string => {
  let rest = posix.normalize(path).split('/').filter(Boolean)
  let at = '/'
  for (let links = 0; rest.length > 0;) {
    const [name = '', ...further] = rest
    rest = further
    if (name === '..') {
      at = dirname(at)
      continue
    }
    const next = join(at, name)
    if (!lstatSync(placeOf(next)).isSymbolicLink()) {
      at = next
      continue
    }
    links += 1
    if (links > MAX_SANDBOX_LINKS) throw new Error(`${path} leads through too many links`)
    const target = readlinkSync(placeOf(next))
    if (target.startsWith('/')) at = '/'
    rest = [...target.split('/').filter((part) => part !== '' && part !== '.'), ...rest]
  }
  return placeOf(at)
}

type SandboxMount = Pick<SandboxGrant, 'image' | 'writable' | 'readable'>

/**
 * The host path that `path` means in a sandbox. Shown host directories keep their paths. All else is in the image. Throws system errors.
 */
export const seenIn = ({ image, writable, readable }: SandboxMount, path: string): string => {
  if (image === null) return path
  const shown = [writable, ...readable]
  return seenFrom(image.root, path, (inside) => {
    if (shown.some((one) => inside === one || inside.startsWith(`${one}/`))) return inside
    const own = join(image.root, inside)
    // The sandbox creates missing parents of shown directories.
    const isParent = shown.some((one) => one.startsWith(`${inside}/`))
    return isParent && attempt(() => lstatSync(own).isDirectory()) !== true ? image.root : own
  })
}

/** Path of a run's program on this host. Throws the system's error. */
export const programPath = ({ executable, sandbox }: Pick<Permit, 'executable' | 'sandbox'>): string =>
  sandbox === null ? executable.path : seenIn(sandbox, executable.path)

const programAt = (grant: SandboxGrant, path: string): Executable | null =>
  attempt(() => {
    const place = seenIn(grant, path)
    const info = statSync(place, { bigint: true })
    if (!info.isFile()) return null
    accessSync(place, constants.X_OK)
    return { path, dev: info.dev, ino: info.ino }
  })

/** Finds a program in a sandbox with an image, like `findExecutable` but without the host's files. */
export const findInImage = (grant: SandboxGrant, name: string, path: string): ExecutableLookup => {
  const places = name.includes('/')
    ? [posix.resolve(grant.writable, name)]
    : path.split(':').map((one) => posix.resolve(grant.writable, one, name))
  for (const place of name === '' ? [] : places) {
    const executable = programAt(grant, place)
    if (executable !== null) return { kind: 'found', executable }
  }
  const where = name.includes('/') ? 'is not a program' : `is in no directory of ${path}`
  return { kind: 'missing', why: 'not_found', path: null, detail: `${JSON.stringify(name)} ${where} in the image ${grant.image?.name}` }
}

/** Names of a program in an image. They are the called name, and the name of its file behind links. */
export const namesInImage = (grant: SandboxGrant, { path }: Executable): readonly string[] => [
  basename(path),
  basename(attempt(() => seenIn(grant, path)) ?? path),
]
