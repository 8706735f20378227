import type { Environment } from '../../base/runtime.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { UI } from '../../cli/programs.ts'
import { type InstanceChoice, instanceChoice } from '../../clients/paths.ts'

export interface UiFlags {
  readonly instance: InstanceChoice
  readonly env: Environment
  /** Null for that of the daemon. */
  readonly execAcl: string | null
  /** The configuration of the programs whose agents are shown; null for the default ones. */
  readonly config: string | null
  readonly port: number
  /** Serve the page at 127.0.0.1 instead of under a new host name. */
  readonly loopbackIp: boolean
  readonly json: boolean
}

const MAX_PORT = 65_535

const portOf = (text: string): number => {
  if (/^[0-9]{1,5}$/.test(text) && Number(text) <= MAX_PORT) return Number(text)
  throw badFlags(`--port: ${JSON.stringify(text)} is not a number from 0 to ${MAX_PORT}`, UI.name)
}

/** Throws `bad_config` naming the flag that is wrong. */
export const uiFlags = (line: CommandLine, env: Environment): UiFlags => ({
  instance: instanceChoice({ name: line.value('name'), dataDir: line.value('data-dir') }, env),
  env,
  config: line.value('config'),
  execAcl: line.value('exec-acl'),
  port: portOf(line.value('port') ?? ''),
  loopbackIp: line.has('loopback-ip'),
  json: line.has('json'),
})
