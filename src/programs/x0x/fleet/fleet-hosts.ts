import { type FanoutEventJson, type FanoutHostJson, type FanoutLedgerJson, sumsOf } from '../../../protocol/api/fanout.ts'
import { unheardEnd } from './ledger-state.ts'

interface Host {
  readonly host: string
  readonly agent_id: string
  /** Null before the host is asked. */
  request_id: string | null
  end: FanoutHostJson | null
}

/** The state of each host of a live fan-out. */
export class FleetHosts {
  readonly #hosts = new Map<string, Host>()
  /** The requested name by the daemon's current name, if they differ. */
  readonly #asked = new Map<string, string>()

  /** Whether no hosts are known yet. */
  get isEmpty(): boolean {
    return this.#hosts.size === 0
  }

  get names(): string[] {
    return [...this.#hosts.keys()]
  }

  /** `names`: the requested names by agent ID. */
  add(hosts: readonly { readonly host: string; readonly agent_id: string }[], names: ReadonlyMap<string, string>): void {
    for (const { host: said, agent_id } of hosts) {
      const host = names.get(agent_id) ?? said
      if (host !== said) this.#asked.set(said, host)
      this.#hosts.set(host, { host, agent_id, request_id: null, end: null })
    }
  }

  asAsked(event: FanoutEventJson): FanoutEventJson {
    const host = 'host' in event ? this.#asked.get(event.host) : undefined
    return host === undefined ? event : ({ ...event, host } as FanoutEventJson)
  }

  start(host: string, requestId: string): void {
    this.#of(host).request_id = requestId
  }

  /** False if the host had already ended: its first end counts. */
  end(end: FanoutHostJson): boolean {
    const host = this.#of(end.host)
    if (host.end !== null) return false
    host.end = end
    return true
  }

  /** Ends all other hosts, for the reason `why`. A started command may have run. */
  abandon(why: string): FanoutHostJson[] {
    const left = [...this.#hosts.values()].filter(({ end }) => end === null)
    return left.map((host) => {
      const { request_id } = host
      const end = request_id === null ? 'not_started' : 'unknown'
      host.end = unheardEnd({ ...host, request_id: request_id ?? '' }, end, why)
      return host.end
    })
  }

  ends(): FanoutHostJson[] {
    return [...this.#hosts.values()].flatMap(({ end }) => end ?? [])
  }

  sums(fanoutId: string): FanoutLedgerJson {
    return sumsOf(fanoutId, this.ends())
  }

  #of(name: string): Host {
    const host = this.#hosts.get(name)
    if (host === undefined) throw new SyntaxError(`the daemon reports ${JSON.stringify(name)}, which is not one of the hosts`)
    return host
  }
}
