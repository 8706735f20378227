import { existsSync, lstatSync, readdirSync } from 'node:fs'
import { homedir, userInfo } from 'node:os'
import { isAbsolute, join } from 'node:path'

import { attempt } from '../../base/errors.ts'
import { realPath } from '../../base/real-path.ts'
import type { SandboxGrant, SandboxImage } from '../permit.ts'
import { refused, type Refused } from '../local/intent.ts'
import type { SandboxSettings } from './sandbox-settings.ts'

/** What no run in a sandbox may have, because the rest of the system lives by it; nor anything below. */
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
]
/** Directories of everybody: their own entries are others' sockets and files. What is below is for whoever made it. */
const SHARED = ['/', '/home', '/media', '/mnt', '/opt', '/root', '/srv', '/tmp', '/var', '/var/lib', '/var/tmp']
/** Of those, a configuration may show these. */
const SHOWABLE = ['/etc', '/media', '/mnt', '/opt', '/srv', '/usr']
/** Secrets of the whole system, which a daemon of root's could read. */
const SYSTEM_SECRETS = ['/etc/gshadow', '/etc/shadow', '/etc/ssh', '/etc/ssl/private', '/etc/sudoers', '/etc/x0x']
/** Where a user's secrets lie in the home. Whatever begins with `.x0x` is one as well: data directories of ours. */
const SECRETS = [
  '.Xauthority',
  '.aws',
  '.azure',
  '.bash_history',
  '.cargo/credentials.toml',
  '.config/gcloud',
  '.config/gh',
  '.config/google-chrome',
  '.config/chromium',
  '.docker',
  '.git-credentials',
  '.gnupg',
  '.kube',
  '.local/share/keyrings',
  '.mozilla',
  '.netrc',
  '.npmrc',
  '.password-store',
  '.pgpass',
  '.pypirc',
  '.ssh',
  '.thunderbird',
  '.vault-token',
  '.zsh_history',
] as const

/** In the home: the files of images, which no run may change. */
export const IMAGES_DIRECTORY = '.x0x-images'

/** What there is on this host that a sandbox must not show. */
export interface SandboxPlace {
  readonly home: string
  /** Data directories of ours and whatever else is secret, as paths that need not exist. */
  readonly secrets: readonly string[]
}

const realOf = (path: string): string => attempt((): string => realPath(path)) ?? path

/** True where `path` is the directory or lies below it. */
const isWithin = (path: string, directory: string): boolean =>
  path === directory || path.startsWith(directory === '/' ? '/' : `${directory}/`)

/** What is secret in a home, whether it is there or not. */
const secretsOf = (home: string): string[] => {
  const ours = (attempt(() => readdirSync(home)) ?? []).filter((name) => name.startsWith('.x0x'))
  return ['.x0x', IMAGES_DIRECTORY, ...ours, ...SECRETS].map((name) => join(home, name))
}

/**
 * The home of this user, with the secrets that stand in it, and further ones: the data directory of whoever asks, where it is another. A
 * variable may name another home than the system does, whose secrets are none the less.
 */
export const sandboxPlace = (further: readonly string[] = []): SandboxPlace => {
  const named = attempt(homedir) ?? '/'
  const own = attempt(() => userInfo().homedir) ?? '/'
  const home = realOf(isAbsolute(named) ? named : own)
  const secrets = [...new Set([home, realOf(own)])].filter((one) => isAbsolute(one)).flatMap(secretsOf)
  return { home, secrets: [...new Set([...secrets, ...SYSTEM_SECRETS, ...further].flatMap((path) => [path, realOf(path)]))] }
}

/** Of a directory of secrets, how many of its own links are followed. */
const MAX_SECRET_LINKS = 1_000

/** What secrets are by their own paths: a link that leads to one, or out of a directory of them, does not show it at the other end. */
const coveredIn = (cwd: string, secrets: readonly string[]): string[] => {
  const inside = secrets.flatMap((secret) =>
    (attempt(() => readdirSync(secret, { withFileTypes: true })) ?? [])
      .filter((entry) => entry.isSymbolicLink())
      .slice(0, MAX_SECRET_LINKS)
      .map((entry) => join(secret, entry.name)),
  )
  const real = new Set([...secrets, ...inside].map(realOf))
  return [...real].filter((path) => path !== cwd && isWithin(path, cwd) && attempt(() => lstatSync(path).isSymbolicLink()) !== true)
}

/** A secret of the home that lies elsewhere in it: a run could take the link away, and a later one would find the secret uncovered. */
const movableSecret = (home: string, secrets: readonly string[]): string | null => {
  const link = secrets.find((path) => isWithin(path, home) && realOf(path) !== path && isWithin(realOf(path), home))
  return link === undefined ? null : `${link} leads to ${realOf(link)}, and a run could take that link away`
}

const forbidden = (path: string, why: string, remedy: string): Refused =>
  refused('forbidden_path', `${path} cannot be the working directory of a sandbox: ${why}; ${remedy}`, { path })

const ELSEWHERE = 'use a directory of the project, below the home or elsewhere'

/** Why a directory may not be shown; null: it may. `writable`: whether it can be changed as well. */
const placeProblem = (
  path: string,
  { home, secrets }: SandboxPlace,
  { writable, allowHome }: { writable: boolean; allowHome: boolean },
): string | null => {
  if (!isAbsolute(path)) return 'it is no absolute path'
  const barred = (one: string): boolean => writable || !SHOWABLE.includes(one)
  if (SHARED.filter(barred).includes(path) && !(path === home && allowHome)) return 'it belongs to the whole system'
  const system = SYSTEM.filter(barred).find((one) => isWithin(path, one))
  if (system !== undefined) return `it is of the system's ${system}`
  const around = secrets.find((secret) => isWithin(path, secret))
  if (around !== undefined) return `it lies in ${around}, which holds secrets`
  if (path === home) return allowHome ? null : 'it is the home, where secrets lie'
  if (isWithin(home, path)) return `it holds the home ${home}`
  const inside = secrets.find((secret) => isWithin(secret, path))
  return inside === undefined ? null : `it holds ${inside}, where secrets lie`
}

/**
 * What a run in a directory may have of the host: that directory, to write; the system's programs, to read; and nothing else.
 * `cwd` is a path without links, as one gets that was opened. Refuses a directory that would show more than a project.
 */
export const sandboxGrant = (
  settings: SandboxSettings,
  cwd: string,
  place: SandboxPlace = sandboxPlace(),
  image: SandboxImage | null = null,
): { readonly kind: 'grant'; readonly grant: SandboxGrant } | Refused => {
  const { engine, network, allow_home, readable, max_memory_bytes, max_processes } = settings
  const problem =
    placeProblem(cwd, place, { writable: true, allowHome: allow_home }) ?? (cwd === place.home ? movableSecret(cwd, place.secrets) : null)
  if (problem !== null) {
    const remedy = cwd === place.home && !allow_home ? `${ELSEWHERE}, or set allow_home in [tools.exec.sandbox]` : ELSEWHERE
    return forbidden(cwd, problem, remedy)
  }
  const shown: string[] = []
  for (const named of readable) {
    const path = realOf(named)
    const why = existsSync(path) ? placeProblem(path, place, { writable: false, allowHome: false }) : 'it does not exist'
    if (why !== null)
      return refused('forbidden_path', `tools.exec.sandbox.readable: ${path} cannot be shown in a sandbox: ${why}`, { path })
    // What is in the directory is shown with it.
    if (!isWithin(path, cwd)) shown.push(path)
  }
  // A home is shown by configuration alone, and then without its secrets.
  const hidden = cwd === place.home ? coveredIn(cwd, place.secrets) : []
  return {
    kind: 'grant',
    grant: { engine, image, network, writable: cwd, readable: shown, hidden, home: place.home, max_memory_bytes, max_processes },
  }
}
