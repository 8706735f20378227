import { isAppError } from '../../../base/errors.ts'
import { runProver } from '../../../clients/operator.ts'
import { FANOUT_OPERATION } from '../../../identity/operator-proof.ts'
import { type FanoutEventJson, fanoutEventsOf } from '../../../protocol/api/fanout.ts'
import { MAX_PROVEN_REQUEST } from '../../../protocol/limits/daemon.ts'
import type { CliContext } from '../context.ts'
import { askUntilBack } from '../draining.ts'
import { traceHeader } from '../request-headers.ts'
import type { LedgerFile } from './ledger-file.ts'
import type { RequestedHost } from './ledger-state.ts'

/** What hosts are asked, and the ledger of it. */
export interface FleetRequest {
  readonly argv: readonly string[]
  readonly fanoutId: string
  /** With requested names, which hosts keep even if a contact is renamed meanwhile. */
  readonly hosts: readonly RequestedHost[]
  readonly ledger: LedgerFile | null
}

/** Does the work of a fan-out and reports it. */
export interface FanoutSource {
  /** Starts it once. The events end with `ledger`. Aborting the signal stops it without waiting. Throws if no host was asked. */
  open(request: FleetRequest, signal: AbortSignal): Promise<AsyncIterable<FanoutEventJson>>
  /** Stops it. Its remaining events still arrive. Throws `unknown_run` if it has ended. */
  cancel(request: FleetRequest): Promise<void>
}

/** A command that the daemon runs on each host. */
export class DaemonFanout implements FanoutSource {
  readonly #context: CliContext
  readonly #body: object

  /** `body` is that of `POST /exec/fanout`. */
  constructor(components: { readonly context: CliContext }, init: { readonly body: object }) {
    this.#context = components.context
    this.#body = init.body
  }

  async open(_request: FleetRequest, signal: AbortSignal): Promise<AsyncIterable<FanoutEventJson>> {
    return askUntilBack(this.#context, signal, async () => this.#ask(signal))
  }

  async #ask(signal: AbortSignal): Promise<AsyncIterable<FanoutEventJson>> {
    const { api, env } = this.#context
    const body = JSON.stringify(this.#body)
    const headers = { accept: 'application/x-ndjson', ...this.#proof(body), ...traceHeader(env) }
    const call = { method: 'POST', path: '/exec/fanout', body, signal } as const
    return fanoutEventsOf(await api.open({ ...call, headers: { 'content-type': 'application/json', ...headers } }))
  }

  async cancel({ fanoutId }: FleetRequest): Promise<void> {
    await this.#context.api.json({ method: 'POST', path: '/exec/cancel', body: { fanout_id: fanoutId } })
  }

  /** Proves the request if possible and not too large, so that the daemon's journal has the operator. */
  #proof(text: string): Readonly<Record<string, string>> {
    if (Buffer.byteLength(text) > MAX_PROVEN_REQUEST) return {}
    try {
      return runProver(this.#context, FANOUT_OPERATION)(text)
    } catch (error) {
      if (isAppError(error)) return {}
      throw error
    }
  }
}
