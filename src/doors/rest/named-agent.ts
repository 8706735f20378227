import type { Clock } from '../../base/clock.ts'
import { attempt, isAppError } from '../../base/errors.ts'
import { type AgentId, isHexId } from '../../protocol/ids.ts'
import { FOLLOW_MS } from '../../protocol/limits.ts'
import type { RestDirectory } from './components.ts'
import { targetOf } from './run-request.ts'

const LOOK_MS = 20

/** Whether the contact of this name becomes that agent, as the link that has just proved it says (docs/keys.md). */
const becomes = async ({ directory, clock }: NamedAgentComponents, name: string, met: string, signal: AbortSignal): Promise<boolean> => {
  for (let waited = 0; ; waited += LOOK_MS) {
    if (attempt(() => directory.resolve(name)) === met) return true
    if (waited >= FOLLOW_MS || signal.aborted) return false
    await new Promise<void>((resolve) => clock.setTimeout(resolve, LOOK_MS))
  }
}

export interface NamedAgentComponents {
  readonly directory: Pick<RestDirectory, 'resolve'>
  readonly clock: Clock
}

/**
 * Asks the agent that the body names. Where its machine proves to be another agent, and a contact that was named has followed it to that
 * new key, the new one is asked: nothing was sent yet. Who is named by an id is that id alone. Throws as `targetOf` and `ask`.
 */
export const askNamed = async <T>(
  components: NamedAgentComponents,
  body: { agent_id?: string | undefined; agent?: string | undefined },
  signal: AbortSignal,
  ask: (agentId: AgentId, signal: AbortSignal) => Promise<T>,
): Promise<T> => {
  const agentId = targetOf(components.directory, body)
  try {
    return await ask(agentId, signal)
  } catch (error) {
    const met = isAppError(error) ? error.data['met'] : undefined
    const { agent } = body
    if (agent === undefined || isHexId(agent) || typeof met !== 'string' || !(await becomes(components, agent, met, signal))) throw error
    return ask(met, signal)
  }
}
