import { AppError, errorCodeOf, errorText, isAppError } from '../../base/errors.ts'
import { boundedError } from '../../executor-api/calls.ts'
import type {
  FileAnswer,
  FileCall,
  LocalExecutor,
  LocalOutcome,
  LocalRunHandle,
  LocalRunSink,
  MatchedTarget,
  ReachedTarget,
  JournalledEnd,
  JournalledRunHandle,
  LocalRunRequest,
  SessionOpening,
} from '../../executor-api/local.ts'
import type { JournalledRun } from '../../journal/past-runs.ts'
import { targetNameOf } from '../../policy/local/authorize-target.ts'
import { lookUpCommand } from '../../policy/local/look-up-command.ts'
import type { CommandLookup, RulesJson } from '../../protocol/api/rules.ts'
import { MAX_PORT_CALLS } from '../../protocol/limits/wire.ts'
import { capabilityNamesOf } from '../../protocol/rexd/fields.ts'
import type { SessionGrant } from '../../protocol/rexd/results.ts'
import type { LocalEngine } from './engine.ts'
import { answerFileCall } from './file-calls.ts'
import { startRun } from './start-run.ts'
import type { TargetRunner } from './target-runner.ts'

const endOf = (end: JournalledRun['end']): JournalledEnd => {
  if (end.kind === 'refused') return { kind: 'refused', error: new AppError(errorCodeOf(end.code), end.detail) }
  if (end.kind !== 'exit') return { kind: end.kind === 'goes_on' ? end.kind : 'unknown' }
  const { kind: _kind, stdout_bytes, stderr_bytes, ...facts } = end
  const totals = { stdout_bytes_total: stdout_bytes, stderr_bytes_total: stderr_bytes }
  const outcome: LocalOutcome = { ...facts, ...totals, denial_reason: null, detail: null, lost: null }
  return { kind: 'outcome', outcome }
}

/** Converts a run found in the audit log for local interfaces. */
export const recalledRun = ({ request_id: _id, end, ...facts }: JournalledRun): JournalledRunHandle => ({ ...facts, end: endOf(end) })

/** The `LocalExecutor` of this process, with limits on concurrent calls and starts. */
export class LocalExecutorService implements LocalExecutor {
  readonly #engine: LocalEngine
  /** A start may wait for an approval, so starts are counted apart from other calls. */
  readonly #inWork = { calls: 0, starts: 0 }

  constructor(deps: { engine: LocalEngine }) {
    this.#engine = deps.engine
  }

  get mayAsk(): boolean {
    return this.#engine.services.modes !== undefined
  }

  async open(opening: SessionOpening): Promise<{ session: string; grant: SessionGrant }> {
    return this.#call(async () => {
      const { key, rights } = await this.#engine.open(opening)
      const { capabilities, limits, roots, target } = rights
      const where = { workspace_roots: roots.map((root) => root.path), ...(target === null ? {} : { target }) }
      return { session: key.session_id, grant: { capabilities: capabilityNamesOf(capabilities), limits, ...where } }
    })
  }

  /** Not limited, because closing a session frees resources. */
  async close(session: string): Promise<number> {
    return this.#engine.close(this.#engine.session(session), 'cancelled')
  }

  async refused(session: string, { method, code, detail }: Parameters<LocalExecutor['refused']>[1]): Promise<void> {
    await this.#call(async () => {
      await this.#engine.refused(this.#engine.session(session).key, { method, argv: null }, new AppError(code, detail))
    })
  }

  async file(call: FileCall, signal: AbortSignal | null = null): Promise<FileAnswer> {
    return this.#call(async () => answerFileCall(this.#engine, this.#engine.session(call.session), call, signal))
  }

  async start(start: LocalRunRequest, sink: LocalRunSink, signal: AbortSignal | null = null): Promise<LocalRunHandle> {
    const begin = async (): Promise<LocalRunHandle> =>
      startRun({ engine: this.#engine, session: this.#engine.session(start.session), start, sink, signal })
    return this.#call(begin, 'starts')
  }

  async lookUp(session: string, command: string): Promise<CommandLookup> {
    return this.#call(async () => {
      const { rights } = this.#engine.session(session)
      if (rights.target !== null) throw new AppError('unsupported_capability', 'a target does not list its programs')
      return lookUpCommand(command, this.#engine.services.policy, rights)
    })
  }

  async reach(session: string, signal: AbortSignal): Promise<ReachedTarget> {
    return this.#asked(async () => {
      const { target, targets } = this.#target(session)
      return targets.reach(target, signal)
    }, signal)
  }

  async rules(session: string, signal: AbortSignal): Promise<RulesJson> {
    return this.#asked(async () => {
      const { target, targets } = this.#target(session)
      return targets.rules(target, signal)
    }, signal)
  }

  async select(words: readonly string[], signal: AbortSignal): Promise<readonly MatchedTarget[]> {
    return this.#asked(async () => {
      const { targets, policy } = this.#engine.services
      if (targets === null)
        throw new AppError('unsupported_capability', 'targets are not allowed; add them to security.allow_targets', {
          data: { capability: 'target' },
        })
      return (await targets.select(words, signal)).map((one) => ({ ...one, target: targetNameOf(one, policy) }))
    }, signal)
  }

  /** Not limited, because these calls share reads of the audit log. */
  async recall(keySha256: string): Promise<JournalledRunHandle | null> {
    const run = await this.#engine.services.journal.recall(keySha256)
    return run && recalledRun(run)
  }

  #target(session: string): { readonly target: string; readonly targets: TargetRunner } {
    const { target } = this.#engine.session(session).rights
    const { targets } = this.#engine.services
    if (target === null || targets === null) throw new AppError('conflict', 'the session is for this host, not for a target')
    return { target, targets }
  }

  /** Calls the daemon. An error after the client has left does not count as an internal failure. */
  async #asked<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
    return this.#call(async () => {
      try {
        return await ask()
      } catch (error) {
        throw signal.aborted && !isAppError(error) ? new AppError('conflict', 'the client has disconnected') : error
      }
    })
  }

  async #call<T>(work: () => Promise<T>, kind: 'calls' | 'starts' = 'calls'): Promise<T> {
    this.#inWork[kind] += 1
    try {
      if (this.#inWork[kind] > MAX_PORT_CALLS) throw new AppError('rate_limited', `too many ${kind} at once`)
      return await work()
    } catch (error) {
      if (!isAppError(error))
        this.#engine.services.log.error({ error: errorText(error) }, 'a call of an interface failed with an internal error')
      throw boundedError(error)
    } finally {
      this.#inWork[kind] -= 1
    }
  }
}
