import { readdirSync, readlinkSync } from 'node:fs'
import { userInfo } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { attempt } from '../../base/errors.ts'
import { readPasswd } from '../../base/file-permissions.ts'
import { realPath } from '../../base/path-resolution.ts'

/**
 * Directories of a home with files that run, or name what runs, outside the sandbox. The home's hidden files, such as `.bashrc`, also
 * count. The targets of links in these directories count as well.
 */
const AUTOSTART_PLACES = [
  // Programs that a person calls by name.
  'bin',
  '.local',
  '.local/bin',
  // Settings that programs read at start and that can name commands.
  '.config',
  '.config/fish',
  '.config/fish/conf.d',
  // Files that the desktop, systemd or launchd starts at login.
  '.config/autostart',
  '.config/environment.d',
  '.config/systemd',
  '.config/systemd/user',
  '.local/share',
  '.local/share/systemd',
  'Library/LaunchAgents',
  // Commands of ssh and sshd.
  '.ssh',
] as const

const RUNS_OUTSIDE = 'where programs and settings lie that run outside of the sandbox'

/** Maximum number of links followed in one directory. */
const MAX_LINKS = 1_000
/** Limit of the kernel (path_resolution(7)). */
const MAX_LINKS_IN_A_ROW = 40
/** First user ID of persons (login.defs(5)), and that of nobody. */
const [FIRST_PERSON, NOBODY] = [1_000, 65_534]

export const isWithin = (path: string, directory: string): boolean =>
  path === directory || path.startsWith(directory === '/' ? '/' : `${directory}/`)

/** Resolves a path whose end may not exist. */
export const whereTo = (path: string, links = 0): string => {
  const real = attempt((): string => realPath(path))
  if (real !== null || path === dirname(path)) return real ?? path
  const parent = whereTo(dirname(path), links)
  const target = links < MAX_LINKS_IN_A_ROW ? attempt(() => readlinkSync(path)) : null
  return target === null ? join(parent, basename(path)) : whereTo(resolve(parent, target), links + 1)
}

/** The home of this user and, if it is root, those of all persons, because root can write there. */
export const homesBeside = (): string[] => {
  const persons = process.geteuid?.() === 0 ? (attempt(() => readPasswd()) ?? []) : []
  const homes = persons.filter(({ uid }) => uid !== null && uid >= FIRST_PERSON && uid < NOBODY).map(({ home }) => home)
  return [attempt(() => userInfo().homedir) ?? '', ...homes]
    .filter((home) => home.startsWith('/') && home !== '/')
    .map((home) => whereTo(home))
}

const linksIn = (directory: string): string[] =>
  (attempt(() => readdirSync(directory, { withFileTypes: true })) ?? [])
    .filter((entry) => entry.isSymbolicLink())
    .slice(0, MAX_LINKS)
    .map(({ name }) => join(directory, name))

/** Hidden names in a home are start-up files or settings. */
const isAutostart = (name: string): boolean => name.startsWith('.') || name === 'bin' || name === 'Library'

/** Why a run must not write a directory: files in it would run outside the sandbox. Null if it may. */
export const autostartProblem = (path: string, homes: readonly string[]): string | null => {
  for (const home of homes) {
    const [name = ''] = isWithin(path, home) ? path.slice(home.length + 1).split('/') : []
    if (isAutostart(name)) return `it lies in ${join(home, name)}, ${RUNS_OUTSIDE}`
    const own = linksIn(home).filter((link) => isAutostart(basename(link)))
    for (const link of [...own, ...AUTOSTART_PLACES.flatMap((place) => linksIn(join(home, place)))]) {
      const target = whereTo(link)
      if (isWithin(target, path) || isWithin(path, target)) return `${link} is a link to ${target}, ${RUNS_OUTSIDE}`
    }
  }
  return null
}
