import type { GivenOptions } from '../../base/hint.ts'
import { isVisible } from '../../base/visible-text.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { MCP } from '../../cli/programs.ts'
import { DEFAULT_REXD_CONFIG } from '../../clients/paths.ts'
import { answerWithinProblem } from '../../config/rexd-config.ts'
import { MAX_NAME } from '../../protocol/limits/wire.ts'

export type McpFlags =
  | {
      readonly mode: 'serve'
      readonly whoami: string
      readonly config: string
      /** Null for the value of the configuration. */
      readonly answerWithinMs: number | null
      /** Null for no record. */
      readonly record: string | null
      /** The agent whose rules become the tools, or null for tools that take any command. */
      readonly rules: string | null
    }
  | { readonly mode: 'check'; readonly config: string; readonly json: boolean; readonly given: GivenOptions }
  | {
      readonly mode: 'init'
      readonly directory: string
      readonly whoami: string
      /** Null for the default place. */
      readonly config: string | null
      /** The agent whose rules become the tools, or null. */
      readonly rules: string | null
    }

/** Length limit of an agent's ID or name. */
const MAX_ID_TEXT = 64

const usage = (text: string) => badFlags(text, MCP.name)

/** Throws `bad_config` naming the flag that is wrong. */
export const mcpFlags = (line: CommandLine): McpFlags => {
  const config = line.value('config')
  if (line.has('check')) return { mode: 'check', config: config ?? DEFAULT_REXD_CONFIG, json: line.has('json'), given: line.given }
  const directory = line.value('init')
  const rules = rulesOf(line.value('rules'))
  if (directory !== null) {
    const whoami = whoamiOf(line.value('whoami') ?? FIRST_NAME)
    return { mode: 'init', directory, whoami, config: line.has('config') ? config : null, rules }
  }
  return {
    mode: 'serve',
    whoami: whoamiOf(line.value('whoami')),
    config: config ?? DEFAULT_REXD_CONFIG,
    answerWithinMs: answerWithinOf(line.value('answer-within-ms')),
    record: line.value('record'),
    rules,
  }
}

/** The name of an agent without one. */
const FIRST_NAME = 'agent'

const whoamiOf = (name: string | null): string => {
  if (name === null) throw usage('missing --whoami NAME: the name of the AI agent in the audit log, such as --whoami reviewer')
  if (name !== '' && name !== '*' && name.length <= MAX_NAME && isVisible(name)) return name
  throw usage(`--whoami: ${JSON.stringify(name)} is not a name of 1 to ${MAX_NAME} visible characters, such as reviewer`)
}

const rulesOf = (agent: string | null): string | null => {
  // In `security.allow_targets`, which --init writes, "*" is every agent.
  if (agent === null || (agent !== '' && agent !== '*' && agent.length <= MAX_ID_TEXT && isVisible(agent))) return agent
  throw usage(`--rules: ${JSON.stringify(agent)} is not a name or ID of an agent`)
}

const answerWithinOf = (ms: string | null): number | null => {
  if (ms === null) return null
  const problem = answerWithinProblem(/^[0-9]+$/.test(ms) ? Number(ms) : NaN)
  if (problem !== null) throw usage(`--answer-within-ms: ${problem}, not ${JSON.stringify(ms)}`)
  return Number(ms)
}
