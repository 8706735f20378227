import { systemClock } from '../../../base/clock.ts'
import { Condition } from '../../../base/wait-queue.ts'
import type { LocalApi } from '../../../clients/daemon.ts'
import type { OnFileWaiting } from '../../../clients/file-api.ts'
import { Fanout, type HostRun } from '../../../exec/fleet/fanout.ts'
import type { FanoutHost } from '../../../exec/fleet/host-end.ts'
import { type FanoutEventJson, failuresAllowed } from '../../../protocol/api/fanout.ts'
import { FANOUT_HOSTS_PER_EVENT } from '../../../protocol/limits/fleet.ts'
import type { CliContext } from '../context.ts'
import type { FanoutSource, FleetRequest } from '../fleet/fanout-source.ts'
import type { FleetLimits } from '../fleet/fleet-line.ts'
import type { RequestedHost } from '../fleet/ledger-state.ts'
import type { CopyOptions } from './copy-job.ts'
import { HostCopy } from './host-copy.ts'
import type { UploadOrder } from './places.ts'

/** Default number of concurrent hosts. The daemon sends six chunks of files at once, so more hosts are hardly faster. */
const DEFAULT_COPY_PARALLEL = 8

/** The process that copies has all the slots that it wants. */
const ANY_SLOT = { acquire: async (): Promise<() => void> => () => undefined }

interface CopyFanoutInit {
  readonly order: Pick<UploadOrder, 'sources' | 'destination'>
  readonly options: CopyOptions
  readonly limits: FleetLimits
}

/** A fan-out of copies, which this process does itself through its daemon. */
export class CopyFanout implements FanoutSource {
  readonly #components: { readonly context: CliContext; readonly api: LocalApi }
  readonly #init: CopyFanoutInit
  readonly #changed = new Condition()
  #events: FanoutEventJson[] = []
  #isOver = false
  #fanout: Fanout | null = null

  constructor(components: { readonly context: CliContext; readonly api: LocalApi }, init: CopyFanoutInit) {
    this.#components = components
    this.#init = init
  }

  async open({ fanoutId, hosts }: FleetRequest, signal: AbortSignal): Promise<AsyncIterable<FanoutEventJson>> {
    const { parallel, canary, maxFailures } = this.#init.limits
    const ids = new Map(hosts.map(({ agent_id, request_id }) => [agent_id, request_id]))
    const fanout = new Fanout(
      {
        clock: systemClock,
        slots: ANY_SLOT,
        start: (host) => this.#start(host, ids.get(host.agent_id)!),
        ended: (host) => this.#add({ type: 'host', ...host }),
      },
      {
        fanout_id: fanoutId,
        hosts: hosts.map(({ host, agent_id }) => ({ host, agent_id })),
        parallel: parallel ?? DEFAULT_COPY_PARALLEL,
        canary: canary ?? 0,
        maxFailures: maxFailures === null ? null : failuresAllowed(maxFailures, hosts.length),
        deadlineMs: null,
      },
    )
    this.#fanout = fanout
    this.#addHosts(fanoutId, hosts)
    signal.addEventListener('abort', () => {
      fanout.stop('caller_left')
      this.#changed.notifyAll()
    })
    return this.#follow(fanout, signal)
  }

  async cancel(): Promise<void> {
    this.#fanout?.stop('fanout_cancelled')
  }

  async *#follow(fanout: Fanout, signal: AbortSignal): AsyncGenerator<FanoutEventJson, void, undefined> {
    const work = async (): Promise<void> => {
      try {
        this.#add({ type: 'ledger', ...(await fanout.run()) })
      } finally {
        this.#isOver = true
        this.#changed.notifyAll()
      }
    }
    const ended = work()
    ended.catch(() => undefined)
    while (!this.#isOver || this.#events.length > 0) {
      signal.throwIfAborted()
      yield* this.#events.splice(0)
      if (this.#events.length === 0 && !this.#isOver && !signal.aborted) await this.#changed.wait()
    }
    await ended
  }

  #add(event: FanoutEventJson): void {
    this.#events.push(event)
    this.#changed.notifyAll()
  }

  #addHosts(fanout_id: string, hosts: readonly RequestedHost[]): void {
    for (let at = 0; at < hosts.length; at += FANOUT_HOSTS_PER_EVENT) {
      const some = hosts.slice(at, at + FANOUT_HOSTS_PER_EVENT).map(({ host, agent_id }) => ({ host, agent_id }))
      const more = at + FANOUT_HOSTS_PER_EVENT < hosts.length
      this.#add({ type: 'fanout', fanout_id, hosts: some, ...(more && { more }) })
    }
  }

  #start(host: FanoutHost, requestId: string): HostRun {
    const { context, api } = this.#components
    const { order, options } = this.#init
    const stopping = new AbortController()
    let seq = 0
    let written = 0
    const line = (text: string): void => {
      const data = Buffer.from(`${text}\n`)
      written += data.length
      const at = { host: host.host, request_id: requestId, seq: seq++ }
      this.#add({ type: 'stderr', ...at, data_b64: data.toString('base64') })
    }
    this.#add({ type: 'begun', host: host.host, request_id: requestId })
    const onWaiting: OnFileWaiting = (_path, state) => {
      if (state !== null) this.#add({ ...state, host: host.host, request_id: requestId })
    }
    const components = { api, clock: systemClock, stdin: () => context.stdin, line, onWaiting }
    const copy = new HostCopy(components, { host, requestId, order, ...options })
    const run = async (): Promise<Awaited<HostRun['ended']>> => {
      const end = await copy.run(stopping.signal)
      const isShown = context.stderr.isTTY === true && !context.quiet && !context.json
      if (isShown && end.end === 'ran' && copy.summary !== null) line(copy.summary)
      return { ...end, stderr_bytes_total: written }
    }
    return { ended: run(), cancel: () => stopping.abort() }
  }
}
