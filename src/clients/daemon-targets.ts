import { AppError, type ErrorCode, errorText, isAppError } from '../base/errors.ts'
import type { ReachedTarget, TerminalSize } from '../executor-api/local.ts'
import type { KnownNode, NodeDirectory } from '../executor/local/exec-target.ts'
import type { TargetFiles } from '../executor/local/target-files.ts'
import type { SelectedTarget, TargetRequest, TargetRunner, TargetTerminal, TargetTerminalRequest } from '../executor/local/target-runner.ts'
import type { ContactsAnswer, PeersAnswer } from '../protocol/api-answers.ts'
import { type AttachedEventJson, asAttachedEvent } from '../protocol/api/attached-events.ts'
import type { RulesJson } from '../protocol/api/rules.ts'
import {
  MAX_RUN_LINE,
  RAW_RUN_TYPE,
  type RunPart,
  type RunResultJson,
  type TerminalPart,
  lineTooLong,
  runEventsOf,
} from '../protocol/api/run-events.ts'
import { type RequestId, isHexId } from '../protocol/ids.ts'
import { isTable, isText } from '../protocol/json-table.ts'
import { MAX_MESH_TERMINAL_SIDE } from '../protocol/limits/terminal.ts'
import { linesOf } from '../protocol/lines.ts'
import { fromBase64 } from '../protocol/text.ts'
import type { WireTerminalSize } from '../protocol/wire/terminal.ts'
import { type ApiCall, type LocalApi, selectPath } from './daemon.ts'
import { FileApi } from './file-api.ts'
import { type RunProver, runProver } from './operator.ts'
import { askRules } from './rules.ts'
import { TerminalBody, openTerminal } from './terminal-call.ts'

/** Starts runs on other agents through the local daemon, as `x0x exec` does. */
export class DaemonTargets implements TargetRunner {
  readonly #daemon: () => LocalApi
  readonly #asOperator: boolean

  /** `daemon` is called for the first run on an agent, because an error in its configuration must not affect local runs. */
  constructor(components: { daemon: () => LocalApi }, init: { asOperator: boolean }) {
    this.#daemon = components.daemon
    this.#asOperator = init.asOperator
  }

  async *run(
    { target, argv, stdin, timeout_ms, request_id, detach }: TargetRequest,
    signal: AbortSignal,
  ): AsyncGenerator<RunPart, void, undefined> {
    const asked = { agent: target, argv, clamp: true, request_id }
    if (detach) return yield* this.#runDetached({ ...asked, detach: { lifetime_ms: timeout_ms } }, signal)
    const given = stdin === null ? {} : { stdin_b64: Buffer.from(stdin).toString('base64') }
    const call = this.#call({ ...asked, timeout_ms, ...given }, signal)
    yield* runEventsOf(await this.#daemon().open(call).catch(withRemedy))
  }

  openTerminal({ target, argv, timeout_ms, request_id, terminal }: TargetTerminalRequest, signal: AbortSignal): TargetTerminal {
    const size = { ...meshSize(terminal), term: TERM }
    const body = new TerminalBody({ agent: target, argv, request_id, timeout_ms, terminal: size })
    const type = async (data: Uint8Array): Promise<void> => {
      if (!body.type(data)) await body.drained()
    }
    return {
      parts: this.#partsOf(body, signal),
      type,
      endOfFile: () => body.endOfFile(),
      resize: (to) => body.resize(meshSize(to)),
    }
  }

  async cancel({ request_id, detach }: Pick<TargetRequest, 'request_id' | 'detach'>): Promise<void> {
    // The run may have ended, or the daemon may be gone. The run's own stream reports that.
    await this.#daemon()
      .json({ method: 'POST', path: detach ? '/runs/cancel' : '/exec/cancel', body: { request_id } })
      .catch(() => undefined)
  }

  async reach(target: string, signal: AbortSignal): Promise<ReachedTarget> {
    const api = this.#daemon()
    const call = { method: 'POST', path: '/agents/connect', body: { agent: target }, signal } as const
    try {
      const { agent_id, machine_id, decision } = await api.json<ReachedTarget>(call)
      return { agent_id, machine_id, decision }
    } catch (error) {
      // A daemon has no link to itself, but runs for its own agent work.
      const own = isAppError(error, 'bad_request') ? await api.json<ReachedTarget>({ method: 'GET', path: '/agent', signal }) : null
      if (own?.agent_id.startsWith(target) !== true) return withRemedy(error)
      return { agent_id: own.agent_id, machine_id: own.machine_id, decision: 'accept' }
    }
  }

  async rules(target: string, signal: AbortSignal): Promise<RulesJson> {
    return askRules(this.#daemon(), target, signal).catch(withRemedy)
  }

  files(target: string): TargetFiles {
    const files = new FileApi({ api: this.#daemon() }, { agent: target })
    return {
      stat: async (...call) => files.stat(...call).catch(withRemedy),
      list: async (...call) => files.list(...call).catch(withRemedy),
      download: async (...call) => files.download(...call).catch(withRemedy),
      upload: async (...call) => files.upload(...call).catch(withRemedy),
      append: async (...call) => files.append(...call).catch(withRemedy),
    }
  }

  async select(words: readonly string[], signal: AbortSignal): Promise<readonly SelectedTarget[]> {
    const answer = await this.#daemon()
      .json<unknown>({ method: 'GET', path: selectPath(words), signal })
      .catch(withRemedy)
    const hosts = isTable(answer) ? answer['hosts'] : null
    if (!Array.isArray(hosts) || !hosts.every(isSelected))
      throw new AppError('daemon_unreachable', 'the server is not x0xd: its answer has no hosts')
    return hosts.map(({ host, agent_id }) => ({ host, agent_id }))
  }

  /** Starts a detached run, or finds the one with this ID, and follows its output from the start. */
  async *#runDetached(
    asked: { readonly request_id: RequestId; readonly detach: object },
    signal: AbortSignal,
  ): AsyncGenerator<RunPart, void, undefined> {
    const api = this.#daemon()
    const begun = await api.json<RunResultJson | object>(this.#call(asked, signal)).catch(withRemedy)
    if ('stdout_b64' in begun) return yield { type: 'exit', ...begun }
    const { request_id } = asked
    const headers = { accept: 'application/x-ndjson' }
    try {
      const lines = linesOf(
        await api.open({ method: 'GET', path: `/runs/${request_id}/output`, headers, signal }),
        MAX_RUN_LINE,
        lineTooLong,
      )
      for await (const line of lines) yield* partsOf(asAttachedEvent(JSON.parse(line.toString('utf8'))))
    } catch (error) {
      signal.throwIfAborted()
      yield unknownEnd(request_id, errorText(error))
    }
  }

  async *#partsOf(body: TerminalBody, signal: AbortSignal): AsyncGenerator<TerminalPart, void, undefined> {
    try {
      const api = this.#daemon()
      yield* await openTerminal({ api }, body, { prover: this.#prover(api), signal }).catch(withRemedy)
    } finally {
      body.destroy()
    }
  }

  #call(request: object, signal: AbortSignal): ApiCall {
    const body = JSON.stringify(request)
    const proof = this.#prover(this.#daemon())?.(body)
    return { method: 'POST', path: '/exec/run', body, headers: { accept: RAW_RUN_TYPE, ...proof }, signal }
  }

  #prover(api: LocalApi): RunProver | null {
    return this.#asOperator ? runProver({ api }) : null
  }
}

/** The type of a terminal of REXD. */
const TERM = 'xterm-256color'

/** The mesh carries smaller terminals than REXD. */
const meshSize = ({ cols, rows }: TerminalSize): WireTerminalSize => ({
  columns: Math.min(cols, MAX_MESH_TERMINAL_SIDE),
  rows: Math.min(rows, MAX_MESH_TERMINAL_SIDE),
})

/** The error for a run that started and whose end is unknown. */
const unknownEnd = (request_id: RequestId, message: string): RunPart => ({
  type: 'error',
  request_id,
  error: 'daemon_unreachable',
  message,
  data: { asked: true },
})

const partsOf = (event: AttachedEventJson): RunPart[] => {
  switch (event.type) {
    case 'state':
    case 'reattached':
      return []
    case 'stdout':
    case 'stderr':
      return [{ type: event.type, data: fromBase64(event.data_b64) ?? new Uint8Array(0) }]
    case 'end':
      return [unknownEnd(event.request_id, `the detached run is ${event.state}: its result is not known`)]
    case 'error':
      return [unknownEnd(event.request_id, event.message)]
    case 'exit': {
      const { from: _from, next: _next, ...exit } = event
      return [exit]
    }
    default:
      return [event]
  }
}

/** Checked again, because the API may be any server. */
const isSelected = (value: unknown): value is SelectedTarget =>
  isTable(value) && isText(value['host']) && isText(value['agent_id']) && isHexId(value['agent_id'])

const withRemedy = (error: unknown): never => {
  const next = isAppError(error) ? REMEDIES[error.code] : undefined
  if (!isAppError(error) || next === undefined) throw error
  throw new AppError(error.code, `${error.message}; ${next}`, { cause: error, data: { ...error.data } })
}

const REMEDIES: Partial<Record<ErrorCode, string>> = {
  daemon_unreachable: 'a target needs x0xd on this machine: start it, or set X0X_DATA_DIR',
  operator_proof_required: 'clients of rexd count as operators if its configuration has security.targets_as_operator = true',
}

/** The agents that the local daemon knows. They are contacts, and agents that it has heard of since its start. */
export class DaemonNodes implements NodeDirectory {
  readonly #daemon: () => LocalApi

  constructor(components: { readonly daemon: () => LocalApi }) {
    this.#daemon = components.daemon
  }

  async nodes(signal: AbortSignal | null): Promise<readonly KnownNode[]> {
    const api = this.#daemon()
    const ask = async <T>(path: string): Promise<T> => api.json<T>({ method: 'GET', path, ...(signal === null ? {} : { signal }) })
    const [{ contacts }, { peers }] = await Promise.all([ask<ContactsAnswer>('/contacts'), ask<PeersAnswer>('/peers')])
    const ids = new Set([...contacts, ...peers].flatMap(({ agent_id }) => agent_id ?? []))
    return [...ids].map((agent_id) => {
      const contact = contacts.find((one) => one.agent_id === agent_id)
      const seen = peers.filter((one) => one.agent_id === agent_id)
      return {
        agent_id,
        contact: contact?.name ?? null,
        names: seen.flatMap(({ name }) => name ?? []),
        addresses: [...(contact?.addresses ?? []), ...seen.flatMap(({ addresses }) => addresses)],
      }
    })
  }
}
