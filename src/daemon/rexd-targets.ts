import { AppError, isAppError } from '../base/errors.ts'
import type { TargetRequest, TargetRunner } from '../executor/local/target-runner.ts'
import type { RequestId } from '../protocol/ids.ts'
import { runEventsOf, type RunPart } from '../protocol/run-events.ts'
import { RAW_RUN_TYPE } from '../protocol/run-json.ts'
import type { LocalApi } from './local-api.ts'
import { runProver, type RunProver } from './operator.ts'

/** Asks this host's daemon for runs of others, as `x0x exec` does. */
export class DaemonTargets implements TargetRunner {
  readonly #api: LocalApi

  constructor(components: { api: LocalApi }) {
    this.#api = components.api
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
    await this.#api.json({ method: 'POST', path: '/exec/cancel', body: { request_id: id } }).catch(() => undefined)
  }

  /** With a proof where this user can make one, so that the daemon knows an operator's word from a token's. */
  async #open(body: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const prover = this.#prover()
    const headers = { accept: RAW_RUN_TYPE, ...(prover instanceof AppError ? {} : prover(body)) }
    try {
      return await this.#api.open({ method: 'POST', path: '/exec/run', body, headers, signal })
    } catch (error) {
      if (isAppError(error, 'operator_proof_required') && prover instanceof AppError) throw prover
      if (!isAppError(error, 'daemon_unreachable')) throw error
      const next = 'a target is asked for through x0xd of this host: start it, or say which by X0X_DATA_DIR'
      throw new AppError(error.code, `${error.message}; ${next}`, { cause: error, data: { ...error.data } })
    }
  }

  #prover(): RunProver | AppError {
    try {
      return runProver({ api: this.#api })
    } catch (error) {
      if (isAppError(error)) return error
      throw error
    }
  }
}
