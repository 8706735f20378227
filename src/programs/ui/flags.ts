import type { Environment } from '../../base/runtime.ts'
import { badFlags, programLine } from '../../cli/program-line.ts'
import { UI } from '../../cli/programs.ts'
import { type InstanceChoice, instanceChoice } from '../../clients/paths.ts'

/** What the command line of `x0x ui` says. */
export interface UiFlags {
  readonly instance: InstanceChoice
  readonly env: Environment
  /** Null: that of the daemon. */
  readonly execAcl: string | null
  /** Of the programs whose agents are shown; null: those that they read unless they are told otherwise. */
  readonly config: string | null
  readonly port: number
  /** Serve the page at 127.0.0.1, and not below a new name. */
  readonly loopbackIp: boolean
  readonly json: boolean
}

const MAX_PORT = 65_535

const portOf = (text: string): number => {
  if (/^[0-9]{1,5}$/.test(text) && Number(text) <= MAX_PORT) return Number(text)
  throw badFlags(`--port: ${JSON.stringify(text)} is not a number from 0 to ${MAX_PORT}`, UI.name)
}

/** Parses the arguments behind `x0x ui`; a text where help or the version was asked for. Throws `bad_config` naming the flag that is wrong. */
export const parseUiFlags = (argv: readonly string[], env: Environment): UiFlags | string => {
  const line = programLine(UI, argv)
  if (typeof line === 'string') return line
  return {
    instance: instanceChoice({ name: line.value('name'), dataDir: line.value('data-dir') }, env),
    env,
    config: line.value('config'),
    execAcl: line.value('exec-acl'),
    port: portOf(line.value('port') ?? ''),
    loopbackIp: line.has('loopback-ip'),
    json: line.has('json'),
  }
}
