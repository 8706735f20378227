import { type GivenOptions, givenOptions } from '../../base/hint.ts'
import { programLine } from '../../cli/program-line.ts'
import { X0XD } from '../../cli/x0xd.ts'
import type { ConfigFlags } from '../../config/config.ts'

/** What the command line of `x0xd` says; null or empty where it is silent. */
export interface DaemonFlags extends ConfigFlags {
  readonly mode: 'run' | 'check' | 'doctor'
  readonly json: boolean
  /** For hints. */
  readonly given: GivenOptions
  /** Makes what is missing first. */
  readonly init: boolean
  /** Ends the daemon that is there first. */
  readonly replace: boolean
}

/** Settings of config.toml that have a flag of the same name; those that may be repeated are lists. */
const SETTINGS = ['exec-acl', 'api-port']
const LISTS = ['listen', 'bootstrap']

/** Parses the arguments behind the program's name; a text where help or the version was asked for. Throws `bad_config` naming the flag that is wrong. */
export const parseDaemonFlags = (argv: readonly string[]): DaemonFlags | string => {
  const line = programLine(X0XD, argv)
  if (typeof line === 'string') return line
  const mode = line.has('check') ? 'check' : line.has('doctor') ? 'doctor' : 'run'
  const one = SETTINGS.filter((flag) => line.has(flag)).map((flag) => [flag, line.value(flag) ?? ''] as const)
  const many = LISTS.filter((flag) => line.has(flag)).map((flag) => [flag, line.values(flag)] as const)
  return {
    mode,
    json: line.has('json'),
    given: givenOptions(X0XD.name, line),
    init: line.has('init'),
    replace: line.has('replace'),
    name: line.value('name'),
    config: line.value('config'),
    dataDir: line.value('data-dir'),
    executorSocket: line.value('executor-socket'),
    settings: Object.fromEntries<string | readonly string[]>([...one, ...many]),
  }
}
