import { isVisible } from '../../base/visible-text.ts'
import { MCP } from '../../command-line/mcp.ts'
import { badFlags, programLine } from '../../command-line/program-line.ts'
import { answerWithinProblem } from '../../config/rexd-config.ts'
import { DEFAULT_REXD_CONFIG } from '../../local-api/paths.ts'
import { MAX_NAME } from '../../protocol/limits.ts'

/** What the command line of `x0x mcp` says. */
export interface McpFlags {
  readonly whoami: string
  readonly config: string
  /** Null: what the configuration says. */
  readonly answerWithinMs: number | null
  /** Null: nothing is recorded. */
  readonly record: string | null
}

const usage = (text: string) => badFlags(text, MCP.name)

/** Parses the arguments behind `x0x mcp`; a text where help or the version was asked for. Throws `bad_config` naming the flag that is wrong. */
export const parseMcpFlags = (argv: readonly string[]): McpFlags | string => {
  const line = programLine(MCP, argv)
  if (typeof line === 'string') return line
  const whoami = line.value('whoami') ?? ''
  if (whoami === '' || whoami.length > MAX_NAME || !isVisible(whoami))
    throw usage(`--whoami: ${JSON.stringify(whoami)} is no name of 1 to ${MAX_NAME} visible characters, such as reviewer`)
  const ms = line.value('answer-within-ms')
  const problem = ms === null ? null : answerWithinProblem(/^[0-9]+$/.test(ms) ? Number(ms) : NaN)
  if (problem !== null) throw usage(`--answer-within-ms: ${problem}, not ${JSON.stringify(ms)}`)
  const config = line.value('config') ?? DEFAULT_REXD_CONFIG
  return { whoami, config, answerWithinMs: ms === null ? null : Number(ms), record: line.value('record') }
}
