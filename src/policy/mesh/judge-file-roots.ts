import { type Stats, statSync } from 'node:fs'
import { dirname, isAbsolute } from 'node:path'
import { attempt, errorText } from '../../base/errors.ts'
import { writableByOthers } from '../../base/file-permissions.ts'
import { octal } from '../../base/format.ts'
import { resolveSteps } from '../../base/path-resolution.ts'
import { type TomlDocument, tomlError } from '../../base/toml.ts'
import { findAccount } from '../account.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { interpreterName } from '../escapes.ts'
import { findExecutable, finderIn } from '../executable.ts'
import { autostartProblem, homesBeside, isWithin, whereTo } from '../sandbox/autostart-places.ts'
import { interpretersOf, pathsIn, scriptOf } from '../scripts.ts'
import type { Acl, AllowEntry, AllowedCommand } from './acl.ts'
import type { FileGrant } from './file-grants.ts'

/** Virtual file systems. Their files are not plain data, and a read or a write can act on the system. */
const VIRTUAL = ['/proc', '/sys', '/dev']

/** Where the system has programs, libraries, and files that name what it starts, in whole or in part. */
const SYSTEM_PLACES = [
  '/bin',
  '/boot',
  '/etc/cron.d',
  '/etc/init.d',
  '/etc/ld.so.conf.d',
  '/etc/pam.d',
  '/etc/profile.d',
  '/etc/ssh',
  '/etc/sudoers.d',
  '/etc/systemd',
  '/lib',
  '/lib64',
  '/Library/LaunchAgents',
  '/Library/LaunchDaemons',
  '/run/systemd',
  '/sbin',
  '/usr/bin',
  '/usr/lib',
  '/usr/sbin',
  '/usr/libexec',
  '/var/spool/cron',
]

const AS_A_SHELL = 'that is as good as a shell; choose another root, or remove write = true'

/** Files of x0x itself. The data directory is null if it is unknown. */
export interface OwnFiles {
  readonly acl: string
  readonly dataDir: string | null
}

interface Judgement {
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

interface Place {
  readonly path: string
  /** The path as a part of a sentence. */
  readonly name: string
}

/** Judges the roots of all files tables as they are now. Each text has the form `file:line: key: text`. */
export const judgeFileRoots = (document: TomlDocument, acl: Acl | null, own: OwnFiles): Judgement => {
  const [problems, warnings]: [string[], string[]] = [[], []]
  if (acl === null || acl.allow.every(({ files }) => files.length === 0)) return { problems, warnings }
  const places = placesOf(acl, own)
  const homes = homesBeside()
  for (const [entryIndex, { files }] of acl.allow.entries())
    for (const [index, grant] of files.entries()) {
      const at = ['exec', 'allow', entryIndex, 'files', index, 'root']
      const say = (text: string): string => tomlError('bad_acl', document, at, text).message
      const root = whereTo(grant.root)
      problems.push(...[...exposedData(root, own), ...(grant.write ? writableProblems(root, places, homes) : [])].map(say))
      warnings.push(...[...rootWarnings(grant), ...virtualWarnings(root), ...(grant.write ? directoryWarnings(root, acl) : [])].map(say))
    }
  return { problems, warnings }
}

/** Why this process cannot give files to the user of the table, or null if it can. */
export const ownerProblem = (name: string): string | null => {
  if (process.geteuid?.() !== 0) return 'only a daemon that runs as root can give files to a user'
  const lookup = findAccount(name)
  return lookup.kind === 'refused' ? lookup.detail : null
}

/** The data directory has the keys of the agent, so its reader can act as the agent. */
const exposedData = (root: string, { dataDir }: OwnFiles): string[] =>
  dataDir !== null && isWithin(whereTo(dataDir), root)
    ? [`contains the data directory ${dataDir}: a requester could read or replace keys of this machine; choose another root`]
    : []

const writableProblems = (root: string, places: readonly Place[], homes: readonly string[]): string[] => {
  const held = places.find(({ path }) => isWithin(path, root))
  const around = SYSTEM_PLACES.find((path) => isWithin(root, path) || isWithin(root, whereTo(path)))
  const home = homes.find((one) => isWithin(one, root))
  const startUp = home === undefined ? autostartProblem(root, homes) : `it contains the home ${home} with its start-up files`
  return [
    ...(held === undefined ? [] : [`a requester could replace ${held.name}: ${AS_A_SHELL}`]),
    ...(held !== undefined || around === undefined ? [] : [`a requester could write into ${around} of the system: ${AS_A_SHELL}`]),
    ...(startUp === null ? [] : [`a requester could write start-up files, because ${startUp}: ${AS_A_SHELL}`]),
  ]
}

/** All that a requester must not replace, with the files of the rules first. */
const placesOf = (acl: Acl, { acl: file }: OwnFiles): Place[] => {
  const rules = acl.allow.flatMap(programsOfEntry)
  const own: Place[] = [
    { path: file, name: 'the ACL' },
    ...(acl.audit_log_path === null ? [] : [{ path: acl.audit_log_path, name: 'the audit log' }]),
    { path: process.execPath, name: `${process.execPath}, which runs x0x` },
    // A single executable file has no script.
    { path: process.argv[1] ?? process.execPath, name: 'the program files of x0x' },
  ]
  const system = [...SCRUBBED_PATH.split(':'), ...SYSTEM_PLACES].map((path) => ({ path, name: `${path} of the system` }))
  return [...rules, ...own, ...system].flatMap(({ path, name }) => stepsTo(path).map((step) => ({ path: step, name })))
}

/** The file or directory, and each link on the way. All are resolved, except that they may be links. */
const stepsTo = (path: string): string[] => {
  const links = attempt(() => [...resolveSteps(path)].filter(({ info }) => info?.isSymbolicLink() === true).map((step) => step.path)) ?? []
  return [...new Set([...links, whereTo(path)])]
}

const programsOfEntry = ({ commands, asking }: AllowEntry): Place[] =>
  [...commands, ...asking.patterns].flatMap((rule) =>
    [...programsOf(rule.argv[0] ?? ''), ...scriptsOf(rule)].map((path) => ({ path, name: `${path}, which line ${rule.line} runs` })),
  )

/** The program and its interpreters. A program that is not installed counts by its absolute path. */
const programsOf = (name: string): string[] => {
  const lookup = findExecutable(name)
  if (lookup.kind === 'missing') return isAbsolute(name) ? [name] : []
  const { path } = lookup.executable
  const chain = attempt(() => interpretersOf(path, finderIn(SCRUBBED_PATH))) ?? []
  return [path, ...chain.map(({ interpreter }) => interpreter)]
}

/** The script of an interpreter, if the rule names it by an absolute path. */
const scriptsOf = ({ argv }: AllowedCommand): string[] => {
  const [program = '', ...words] = argv
  const interpreter = interpreterName(program)
  if (interpreter === null) return []
  const given = scriptOf(interpreter, words)
  // After an unknown option, the first path is probably the script.
  const path = given.kind === 'script' ? given.word : given.kind === 'unsure' ? pathsIn(words)[0] : undefined
  return path !== undefined && isAbsolute(path) ? [path] : []
}

const rootWarnings = ({ root, write }: FileGrant): string[] => {
  let info: Stats
  try {
    info = statSync(root)
  } catch (error) {
    return [`no file command can use it: ${errorText(error)}`]
  }
  if (!info.isDirectory()) return ['is not a directory: no file command can use it']
  const [place] = writableByOthers(dirname(root))
  if (place !== undefined) return [`no file command can use it: ${place}`]
  const isLoose = write && (info.mode & 0o022) !== 0
  return isLoose ? [`other users can write ${root} (mode ${octal(info.mode)}), so they can replace its files; fix it with: chmod go-w`] : []
}

const virtualWarnings = (root: string): string[] => {
  const place = VIRTUAL.find((path) => isWithin(root, path))
  return place === undefined ? [] : [`lies in ${place}, whose files show or change the state of the system`]
}

const directoryWarnings = (root: string, { default_cwd }: Acl): string[] =>
  default_cwd !== null && isWithin(whereTo(default_cwd), root)
    ? [`contains default_cwd (${default_cwd}): programs may read settings from their working directory, and a requester could write those`]
    : []
