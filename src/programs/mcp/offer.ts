import { systemClock, within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Environment } from '../../base/runtime.ts'
import { askRules } from '../../clients/rules.ts'
import type { RexdConfig } from '../../config/rexd-config.ts'
import { RuleTools } from '../../doors/mcp/rule-tools.ts'
import type { McpOffer } from '../../doors/mcp/server.ts'
import { instructionsFor, toolsFor } from '../../doors/mcp/tools.ts'
import { CAPABILITY_NAMES, type Capability } from '../../protocol/rexd/fields.ts'
import { daemonApi } from '../../supervision/local-executor.ts'

/** How long a start waits for a target's rules, because the client waits too. The client is notified of tools that come later. */
const RULES_START_MS = 8_000

/** Capabilities that tools can use. Their commands end with the session and have no terminal. */
export const FOR_TOOLS = CAPABILITY_NAMES.filter((name) => name !== 'exec.detach' && name !== 'pty')

/** The tools without a target's rules, for the granted capabilities. */
export const plainOffer = (granted: ReadonlySet<Capability>): McpOffer => {
  const tools = toolsFor(granted)
  return { tools, source: null, instructions: instructionsFor(tools) }
}

/**
 * One tool for each command of a target. Throws `bad_config` if the configuration does not allow asking it, or if the daemon does not know
 * the agent.
 */
export const ruleOffer = async (
  target: string,
  { policy, path }: Pick<RexdConfig, 'policy' | 'path'>,
  { env, log, ended }: { readonly env: Environment; readonly log: Logger; readonly ended: AbortSignal },
): Promise<McpOffer> => {
  if (!policy.granted.has('exec') || !policy.granted.has('target') || (policy.targets !== null && !policy.targets.includes(target)))
    throw new AppError(
      'bad_config',
      `--rules: ${path} does not let targets be asked: security.allow_targets must name ${JSON.stringify(target)}`,
    )
  const api = daemonApi(env)
  const source = new RuleTools(
    { ask: async (signal) => askRules(api, target, AbortSignal.any([signal, ended])), clock: systemClock },
    target,
  )
  const { rules, fixed } = source
  await within(systemClock, RULES_START_MS, rules.refresh())
  const { problem, code, commands } = rules.known
  if (code === 'unknown_agent' || code === 'ambiguous_agent')
    throw new AppError('bad_config', `--rules: ${problem ?? ''}\n  Try: x0x contacts list`)
  if (problem !== null) log.warn({ target, problem }, 'the target did not say which commands it allows')
  else if (commands.length === 0) log.warn({ target }, 'the target tells of no command that it allows us: x0x acl mine says what to do')
  return { tools: fixed, source, instructions: source.instructions }
}
