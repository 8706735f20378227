import type { ServerResponse } from 'node:http'
import type { TestContext } from 'node:test'

import { sumsOf, type FanoutEventJson, type FanoutHostJson } from '../../src/protocol/api/fanout.ts'
import { fakeDaemon, json, type SeenRequest } from './fake-daemon.ts'

/** An agent ID for tests in which any ID will do. The same name gives the same ID. */
export const agentIdOf = (host: string): string => Buffer.from(host).toString('hex').padEnd(64, '0').slice(0, 64)
export const requestIdOf = (host: string): string => `01a1fafc-9b07-75d0-b2a2-${agentIdOf(host).slice(0, 12)}`

/** The successful result of a host. `more` replaces fields. */
export const hostEnd = (host: string, more: Partial<FanoutHostJson> = {}): FanoutHostJson => ({
  host,
  agent_id: agentIdOf(host),
  machine_id: 'b'.repeat(64),
  request_id: requestIdOf(host),
  end: 'ran',
  code: 0,
  signal: null,
  denial_reason: null,
  error: null,
  duration_ms: 1,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: false,
  incomplete: false,
  warnings: [],
  ...more,
})

const NOT_RUN = { code: null, duration_ms: null } as const
export const denied = (host: string): FanoutHostJson => hostEnd(host, { ...NOT_RUN, end: 'denied', denial_reason: 'argv_not_allowed' })
export const unreachable = (host: string): FanoutHostJson =>
  hostEnd(host, { ...NOT_RUN, end: 'unreachable', machine_id: null, error: 'peer_unreachable', message: 'no address answered' })
export const notStarted = (host: string): FanoutHostJson =>
  hostEnd(host, { ...NOT_RUN, end: 'not_started', machine_id: null, request_id: null, error: 'canary_failed', message: 'the first failed' })
export const unknown = (host: string): FanoutHostJson => hostEnd(host, { ...NOT_RUN, end: 'unknown', message: 'the connection was lost' })

/** A fan-out that this daemon received, and the events that it sends. */
export interface AskedFanout {
  readonly body: { readonly hosts: readonly string[]; readonly argv: readonly string[]; readonly [key: string]: unknown }
  readonly request: SeenRequest
  /** The names of the agents in `body.hosts`. */
  readonly hosts: readonly string[]
  say(...events: readonly object[]): void
  output(host: string, text: string | Uint8Array, stream?: 'stdout' | 'stderr'): void
  begun(...hosts: readonly string[]): void
  ended(...hosts: readonly FanoutHostJson[]): void
  /** Sends the ledger of all results, and ends the answer. */
  close(): void
  readonly response: ServerResponse
}

/** A fake daemon that knows `hosts`. It calls `asked` for each fan-out after the first event. */
export const fleetDaemon = async (
  t: TestContext,
  hosts: readonly string[],
  asked: (fanout: AskedFanout) => void,
  cancelled: (body: Record<string, unknown>) => void = () => undefined,
  refuses: () => boolean = () => false,
  /** The name in events, if it differs from the name at selection. */
  called: (host: string) => string = (host) => host,
): Promise<{ dir: string; seen: SeenRequest[] }> =>
  fakeDaemon(t, (request, response) => {
    if (request.path.startsWith('/contacts/select'))
      return json(response, 200, { ok: true, hosts: hosts.map((host) => ({ host, agent_id: agentIdOf(host) })), expression: '' })
    if (request.path === '/agent') return json(response, 200, { agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64) })
    if (request.path === '/exec/cancel') {
      json(response, 200, { ok: true })
      return cancelled(JSON.parse(request.body) as Record<string, unknown>)
    }
    if (refuses()) return json(response, 429, { ok: false, error: 'rate_limited', message: '16 fan-outs are running, which is the limit' })
    return asked(askedFanout(hosts, request, response, called))
  })

const askedFanout = (
  known: readonly string[],
  request: SeenRequest,
  response: ServerResponse,
  called: (host: string) => string,
): AskedFanout => {
  const body = JSON.parse(request.body) as AskedFanout['body']
  const hosts = known.filter((host) => body.hosts.includes(agentIdOf(host)))
  const fanout_id = String(body['fanout_id'])
  const ends: FanoutHostJson[] = []
  const say = (...events: readonly object[]): void => {
    for (const event of events) response.write(`${JSON.stringify(event)}\n`)
  }
  response.writeHead(200, { 'content-type': 'application/x-ndjson' })
  say({
    type: 'fanout',
    fanout_id,
    hosts: hosts.map((host) => ({ host: called(host), agent_id: agentIdOf(host) })),
  } satisfies FanoutEventJson)
  return {
    body,
    request,
    hosts,
    response,
    say,
    output: (host, text, type = 'stdout') =>
      say({ type, host: called(host), request_id: requestIdOf(host), seq: 0, data_b64: Buffer.from(text).toString('base64') }),
    begun: (...names) => say(...names.map((host) => ({ type: 'begun', host: called(host), request_id: requestIdOf(host) }))),
    ended: (...all) => {
      ends.push(...all)
      say(...all.map((end) => ({ type: 'host', ...end, host: called(end.host) })))
    },
    close: () => {
      say({ type: 'ledger', ...sumsOf(fanout_id, ends) })
      response.end()
    },
  }
}
