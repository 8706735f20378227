import { request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import type { TestContext } from 'node:test'

import { systemClock, type Clock } from '../../src/base/clock.ts'
import { AppError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import type { DeskListener, PageDesk } from '../../src/doors/page/services.ts'
import type { PageFiles } from '../../src/doors/page/services.ts'
import { PageServer } from '../../src/doors/page/server.ts'
import type { PageSources } from '../../src/doors/page/services.ts'
import type { PendingApprovalRequest } from '../../src/protocol/desk/messages.ts'
import type { LifecycleEvent } from '../../src/protocol/events/lifecycle.ts'
import { PAGE_PROOF_HEADER, type PageDecision } from '../../src/protocol/page.ts'
import type { PageFanout, PagePeer, PageRun } from '../../src/protocol/page-lists.ts'
import { questionOf } from './approval-request.ts'

/** An approval service that the test controls. It records the calls of the page's server. */
export class SpokenDesk implements PageDesk {
  readonly listeners = new Set<DeskListener>()
  readonly decided: PageDecision[] = []
  /** The runs of each `follow` call. */
  readonly followed: (readonly string[])[] = []
  running: readonly LifecycleEvent[] = []
  refuses: AppError | null = null
  isThere = true
  #gone = Promise.withResolvers<string>()

  async watch(listener: DeskListener) {
    if (!this.isThere) throw new AppError('daemon_unreachable', 'no desk answers')
    this.listeners.add(listener)
    return {
      ended: this.#gone.promise,
      decide: async (decision: PageDecision) => {
        if (this.refuses !== null) throw this.refuses
        this.decided.push(decision)
        return { question_id: decision.question_id, decision: decision.decision, grant_id: null }
      },
      follow: async (runs: readonly string[]) => {
        this.followed.push(runs)
        return this.running
      },
      close: () => void this.listeners.delete(listener),
    }
  }

  ask(pending: PendingApprovalRequest): void {
    for (const listener of this.listeners) listener({ type: 'question', question: pending })
  }

  tell(event: LifecycleEvent): void {
    for (const listener of this.listeners) listener({ type: 'event', event })
  }

  leave(why: string): void {
    this.isThere = false
    this.listeners.clear()
    this.#gone.resolve(why)
    this.#gone = Promise.withResolvers<string>()
  }
}

export const pendingOf = (id: string, changed: Parameters<typeof questionOf>[0] = {}): PendingApprovalRequest => ({
  question_id: `q_${id.padEnd(22, '0')}`,
  question: questionOf(changed),
  asked_at_ms: Date.now(),
  expires_at_ms: Date.now() + 120_000,
  engine: 'x0x mcp',
  decisions: ['allow_once', 'allow_always', 'deny'],
})

const NO_ROWS = { rows: [], from: 0, total: 0, problems: [] } as const

const NO_RESULTS = { running: 0, waiting: 0, ok: 0, failed: 0, denied: 0, lost: 0, unknown: 0 } as const

const NOTHING: PageSources = {
  about: async () => ({ version: '0', daemon: '0', data_dir: '/x', agent_id: null, machine_id: null, name: 'bob' }),
  overview: async () => ({
    hosts: { up: 0, down: 0, unlisted: 0 },
    runs: { count: 0, failed: 0, running: 0, denied: 0 },
    buckets: [],
    latest: [],
    problems: [],
  }),
  runs: async () => ({ ...NO_ROWS, older: false }),
  run: async () => {
    throw new AppError('unknown_run')
  },
  detachedOutput: async () => {
    throw new AppError('unknown_run')
  },
  stopRun: async () => {
    throw new AppError('unknown_run')
  },
  fanouts: async () => ({ rows: [], problems: [] }),
  peers: async () => ({ ...NO_ROWS, labels: [], versions: [], versions_missing: 0 }),
  ping: async () => {
    throw new AppError('peer_unreachable')
  },
  contacts: async () => ({ ...NO_ROWS, machines: {} }),
  changeContact: async () => {
    throw new AppError('operator_proof_required')
  },
  enrolKeys: async () => ({ keys: [] }),
  createEnrolKey: async () => {
    throw new AppError('operator_proof_required')
  },
  revokeEnrolKey: async () => ({}),
  journal: async () => ({ ...NO_ROWS, journals: ['approvals'], names: {}, more: false, unread: 0 }),
  policy: async () => ({ source: null, pairs: [], problem: null }),
  modes: async () => ({ agents: [], others: [], grants: [], problems: [] }),
  revoke: async () => ({ revoked: false }),
  takeBackModes: async () => ({}),
  explain: async () => ({ outcome: 'denied', text: 'denied' }),
}

/** A run as the page lists it. `changed` replaces fields. */
export const pageRun = (id: string, changed: Partial<PageRun> = {}): PageRun => ({
  key: `asked ${id}`,
  request_id: id,
  side: 'mine',
  who: 'this agent',
  on: 'web1',
  agent_id: 'a'.repeat(64),
  machine_id: 'b'.repeat(64),
  argv: ['df', '-h'],
  argv_cut: false,
  started_at: new Date().toISOString(),
  result: 'ok',
  code: 0,
  signal: null,
  reason: null,
  duration_ms: 12,
  fanout_id: null,
  detached: false,
  ...changed,
})

/** A peer as the page lists it. */
export const pagePeer = (name: string, changed: Partial<PagePeer> = {}): PagePeer => ({
  agent_id: 'a'.repeat(64),
  machine_id: name.padEnd(64, '0'),
  name,
  trust: 'trusted',
  labels: { role: 'web' },
  state: 'linked',
  last_seen: new Date().toISOString(),
  rtt_ms: 1.5,
  version: '0.3.0',
  path: 'direct',
  addresses: ['/ip4/192.0.2.7/tcp/5600'],
  ...changed,
})

/** A fan-out whose hosts have these results. */
export const pageFanout = (id: string, results: Partial<PageFanout['results']>): PageFanout => ({
  fanout_id: id,
  argv: ['uname', '-r'],
  started_at: new Date().toISOString(),
  hosts: Object.values(results).reduce((sum, count) => sum + count, 0),
  results: { ...NO_RESULTS, ...results },
})

const NO_FILES = Object.fromEntries(
  ['page.html', 'sign-in.html', 'page.js', 'sign-in.js', 'page.css', 'icon.svg'].map((name) => [name, Buffer.from(`the text of ${name}`)]),
) as unknown as PageFiles

export interface PageHost {
  readonly server: PageServer
  readonly desk: SpokenDesk
  readonly origin: string
}

export const pageHost = async (
  t: Pick<TestContext, 'after'>,
  parts: { clock?: Clock; files?: PageFiles; sources?: Partial<PageSources>; port?: number; loopbackIp?: boolean } = {},
): Promise<PageHost> => {
  const desk = new SpokenDesk()
  const { clock = systemClock, files = NO_FILES, port = 0, loopbackIp = false } = parts
  const server = new PageServer({ desk, sources: { ...NOTHING, ...parts.sources }, files, clock, log: silentLogger }, { port, loopbackIp })
  await server.start()
  t.after(() => server.stop())
  return { server, desk, origin: `http://${server.host}` }
}

export interface PageAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
}

export interface PageAsk {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string | string[]>>
  readonly body?: string | Buffer
}

/** Sends one request with exactly these headers. A browser would not let a page choose them. */
export const askPage = async ({ origin }: Pick<PageHost, 'origin'>, path: string, ask: PageAsk = {}): Promise<PageAnswer> =>
  new Promise((resolve, reject) => {
    const { method = ask.body === undefined ? 'GET' : 'POST', body } = ask
    const { host, port } = new URL(origin)
    const headers = { host, ...ask.headers }
    const request = httpRequest({ host: '127.0.0.1', port, path, method, headers, agent: false }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (part: string) => (text += part))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }))
      response.on('error', reject)
    })
    request.on('error', reject)
    request.end(body)
  })

/** The headers that a page sends with every call. */
export const pageHeaders = ({ origin }: Pick<PageHost, 'origin'>, session?: { cookie: string; proof: string }) => ({
  origin,
  'content-type': 'application/json',
  'sec-fetch-site': 'same-origin',
  ...(session === undefined ? {} : { cookie: session.cookie, [PAGE_PROOF_HEADER]: session.proof }),
})

export const codeOf = (link: string): string => link.slice(link.indexOf('#') + 1)

/** Follows a new link, as the sign-in page does. */
export const signInTo = async (host: PageHost): Promise<{ cookie: string; proof: string }> => {
  const code = codeOf(host.server.newLink())
  const { status, headers, text } = await askPage(host, '/sign-in', { headers: pageHeaders(host), body: JSON.stringify({ code }) })
  if (status !== 200) throw new Error(text)
  return { cookie: headers['set-cookie']![0]!.split(';')[0]!, proof: (JSON.parse(text) as { proof: string }).proof }
}
