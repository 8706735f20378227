import { AppError, isAppError, type ErrorCode } from '../base/errors.ts'
import type { SelectedTarget, TargetRequest, TargetRunner } from '../executor/local/target-program.ts'
import type { ReachedTarget } from '../executor/port/local-executor.ts'
import { isTable, isText } from '../protocol/json-table.ts'
import { isHexId, type RequestId } from '../protocol/ids.ts'
import type { RulesJson } from '../protocol/rules-json.ts'
import { RAW_RUN_TYPE, runEventsOf, type RunPart } from '../protocol/run-events.ts'
import type { LocalApi } from './local-api.ts'
import { runProver } from './operator.ts'
import { askRules } from './rules.ts'
import { selectPath } from './select-path.ts'

/** Asks this host's daemon for runs of others, as `x0x exec` does. */
export class DaemonTargets implements TargetRunner {
  readonly #daemon: () => LocalApi
  readonly #asOperator: boolean

  /** `daemon` is asked when there is something to run there: which one is meant may be said wrongly, and concerns no run of this host. */
  constructor(components: { daemon: () => LocalApi }, init: { asOperator: boolean }) {
    this.#daemon = components.daemon
    this.#asOperator = init.asOperator
  }

  async *run(
    { target, argv, stdin, timeout_ms, request_id }: TargetRequest,
    signal: AbortSignal,
  ): AsyncGenerator<RunPart, void, undefined> {
    const asked = { agent: target, argv, clamp: true, request_id, timeout_ms }
    const body = JSON.stringify(stdin === null ? asked : { ...asked, stdin_b64: Buffer.from(stdin).toString('base64') })
    yield* runEventsOf(await this.#open(body, signal))
  }

  async cancel(id: RequestId): Promise<void> {
    // It may be over, or the daemon gone: what becomes of it is told by the run itself.
    await this.#daemon()
      .json({ method: 'POST', path: '/exec/cancel', body: { request_id: id } })
      .catch(() => undefined)
  }

  async reach(target: string, signal: AbortSignal): Promise<ReachedTarget> {
    const api = this.#daemon()
    const call = { method: 'POST', path: '/agents/connect', body: { agent: target }, signal } as const
    try {
      const { agent_id, machine_id, decision } = await api.json<ReachedTarget>(call)
      return { agent_id, machine_id, decision }
    } catch (error) {
      // Nobody links with himself, and runs go to him all the same.
      const own = isAppError(error, 'bad_request') ? await api.json<ReachedTarget>({ method: 'GET', path: '/agent', signal }) : null
      if (own?.agent_id.startsWith(target) !== true) return withRemedy(error)
      return { agent_id: own.agent_id, machine_id: own.machine_id, decision: 'accept' }
    }
  }

  async rules(target: string, signal: AbortSignal): Promise<RulesJson> {
    return askRules(this.#daemon(), target, signal).catch(withRemedy)
  }

  async select(words: readonly string[], signal: AbortSignal): Promise<readonly SelectedTarget[]> {
    const answer = await this.#daemon()
      .json<unknown>({ method: 'GET', path: selectPath(words), signal })
      .catch(withRemedy)
    const hosts = isTable(answer) ? answer['hosts'] : null
    if (!Array.isArray(hosts) || !hosts.every(isSelected))
      throw new AppError('daemon_unreachable', 'what answers is no daemon: its answer has no hosts')
    return hosts.map(({ host, agent_id }) => ({ host, agent_id }))
  }

  async #open(body: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const api = this.#daemon()
    const proof = this.#asOperator ? runProver({ api })(body) : {}
    const headers = { accept: RAW_RUN_TYPE, ...proof }
    return api.open({ method: 'POST', path: '/exec/run', body, headers, signal }).catch(withRemedy)
  }
}

/** Read again: an API may be anywhere. */
const isSelected = (value: unknown): value is SelectedTarget =>
  isTable(value) && isText(value['host']) && isText(value['agent_id']) && isHexId(value['agent_id'])

const withRemedy = (error: unknown): never => {
  const next = isAppError(error) ? REMEDIES[error.code] : undefined
  if (!isAppError(error) || next === undefined) throw error
  throw new AppError(error.code, `${error.message}; ${next}`, { cause: error, data: { ...error.data } })
}

const REMEDIES: Partial<Record<ErrorCode, string>> = {
  daemon_unreachable: 'a target is asked for through x0xd of this host: start it, or say which by X0X_DATA_DIR',
  operator_proof_required: "callers of rexd speak with the operator's word where its configuration has security.targets_as_operator = true",
}
