import type { PageSources } from '../../src/doors/page/services.ts'
import { MAX_PAGE_CELLS, MAX_PAGE_CONTACTS, MAX_PAGE_ROWS } from '../../src/protocol/limits/page.ts'
import type { PageContactChange } from '../../src/protocol/page.ts'
import type { PageContact, PagePeer, PageRun } from '../../src/protocol/page-lists.ts'
import { NO_RUN_FACTS } from '../../src/programs/ui/run-index.ts'
import { sortedPeers } from '../../src/programs/ui/peer-list.ts'
import { sortedRuns } from '../../src/programs/ui/run-list.ts'
import { rangeStart, sliceOf } from '../../src/programs/ui/slices.ts'
import { pageFanout, pagePeer, pageRun } from '../../test/support/page-host.ts'

const PEERS = 1_000
const RUNS = 10_000

const RESULTS: readonly Partial<PageRun>[] = [
  {},
  { result: 'failed', code: 2, argv: ['systemctl', 'is-active', 'x0xd.service'] },
  { result: 'denied', code: null, reason: 'argv_not_allowed', side: 'incoming', who: 'carol', on: null, argv: ['cat', '/etc/shadow'] },
  { argv: ['journalctl', '-u', 'nginx', '--since', '1 hour ago'], duration_ms: 830 },
  { result: 'running', code: null, duration_ms: null, argv: ['apt-get', 'update'] },
]

const runAt = (at: number): PageRun =>
  pageRun(`run-${at}`, {
    on: `web${(at % PEERS) + 1}`,
    started_at: new Date(Date.now() - at * 20_000).toISOString(),
    ...RESULTS[at % RESULTS.length],
  })

const peerAt = (at: number): PagePeer =>
  pagePeer(`web${at + 1}`, {
    agent_id: at.toString(16).padStart(64, 'a'),
    labels: { role: at % 3 === 0 ? 'db' : 'web', site: at % 2 === 0 ? 'ber' : 'fra' },
    ...(at % 7 === 5 ? { state: 'not_seen', rtt_ms: null, path: null, version: null, last_seen: null } : {}),
    ...(at % 5 === 3 ? { path: 'relay-one', rtt_ms: 48.2 } : {}),
  })

const contactAt = (at: number): PageContact => {
  const { agent_id, machine_id, name, labels } = peerAt(at)
  const machines = at % 2 === 0 ? [machine_id!.replaceAll(/[^0-9a-f]/g, '7')] : []
  const trust = (['trusted', 'known', 'blocked', 'unknown'] as const)[at % 4]!
  return { name: name!, agent_id: agent_id!, trust, machines, labels, revoked: false, revoked_machines: [] }
}

const LOG = [
  ['alice', 'df', '-h', 0],
  ['carol', 'cat', '/etc/shadow', null],
  ['alice', 'systemctl', 'restart nginx', 1],
] as const

const entryAt = (at: number) => {
  const [who, program, argument, code] = LOG[at % LOG.length]!
  const key = {
    ts: new Date(Date.now() - at * 60_000).toISOString(),
    chain: 'c',
    n: at,
    agent_id: who,
    machine_id: 'b'.repeat(64),
    request_id: `r${at}`,
  }
  const argv = [program, argument]
  if (code === null) return { lines: [{ ...key, event: 'denial', argv, reason: 'argv_not_allowed', detail: null }] }
  const exit = { ...key, event: 'exit', code, signal: null, duration_ms: 12, stdout_bytes: 400, stderr_bytes: 0, truncated: false }
  return { lines: [{ ...key, event: 'request', argv, matched_acl: 'status' }, { ...key, event: 'started', pid: 7 }, exit] }
}

export interface BusyHost {
  readonly sources: Partial<PageSources>
  /** Changes that the page made. */
  readonly changes: PageContactChange[]
}

const all = <T>(count: number, make: (at: number) => T): readonly T[] => Array.from({ length: count }, (_, at) => make(at))

/** Data of a mesh with a thousand peers and ten thousand runs. */
export const busyHost = (): BusyHost => {
  const changes: PageContactChange[] = []
  const [runs, peers, contacts] = [all(RUNS, runAt), all(PEERS, peerAt), all(PEERS, contactAt)]
  const entries = all(2_000, entryAt)
  const sources: Partial<PageSources> = {
    overview: async () => ({
      hosts: { up: 857, down: 143, unlisted: 12 },
      runs: { count: 180, failed: 36, running: 36, denied: 36 },
      buckets: all(12, (at) => ({ good: 8 + (at % 5), bad: at % 4 })),
      latest: runs.slice(0, 8),
      problems: [],
    }),
    runs: async ({ result, text, within_ms, fanout_id, order, from }) => {
      const since = rangeStart(Date.now(), within_ms)
      const hosts = all(300, (at) =>
        pageRun(`host-${at}`, { on: `web${at + 1}`, ...(at < 3 ? { result: 'failed', code: 1 } : {}), fanout_id: 'f' }),
      )
      const fitting = (fanout_id === null ? runs : hosts).filter(
        (run) => (result === null || run.result === result) && run.argv.join(' ').includes(text) && run.started_at >= since,
      )
      return {
        ...sliceOf(sortedRuns(fitting, { fanout_id, order }, Date.now()), from, fanout_id === null ? MAX_PAGE_ROWS : MAX_PAGE_CELLS),
        older: true,
        problems: [],
      }
    },
    run: async (key) => ({
      run: pageRun(key, { key, ...RESULTS[2] }),
      facts: { ...NO_RUN_FACTS, door: 'mesh', detail: 'no rule of the entry "status" matches' },
      output: null,
      output_problem: null,
      denial: {
        cause: 'argv_not_allowed: no ACL entry for this agent matches that command',
        next: ['Try, on bob: x0x acl explain --last'],
      },
    }),
    explain: async () => ({ outcome: 'denied', text: 'The entry "status" allows: df -h' }),
    fanouts: async () => ({ rows: [pageFanout('f', { ok: 297, failed: 3 }), pageFanout('g', { ok: 40 })], problems: [] }),
    peers: async ({ text, label, state, order, from }) => {
      const [key = '', value = ''] = label.split('=')
      const fitting = peers.filter(
        (peer) =>
          `${peer.name} ${peer.machine_id}`.includes(text) &&
          (label === '' || peer.labels[key] === value) &&
          (state === null || (state === 'up' ? peer.state !== 'not_seen' : peer.state === state)),
      )
      return {
        ...sliceOf(sortedPeers(fitting, order), from),
        labels: ['role=db', 'role=web', 'site=ber', 'site=fra'],
        versions: ['0.3.0'],
        versions_missing: 0,
        problems: [],
      }
    },
    contacts: async ({ text, agents, from }) => ({
      ...sliceOf(
        contacts.filter(({ name, agent_id }) => name.includes(text) && (agents === null || agents.includes(agent_id))),
        from,
        agents === null ? MAX_PAGE_ROWS : MAX_PAGE_CONTACTS,
      ),
      machines: { [contacts[0]!.agent_id]: ['c'.repeat(64)] },
      problems: [],
    }),
    changeContact: async (change) => {
      changes.push(change)
      return {}
    },
    journal: async ({ within_ms, from }) => ({
      ...sliceOf(
        entries.filter(({ lines }) => lines[0]!.ts >= rangeStart(Date.now(), within_ms)),
        from,
      ),
      journals: ['audit', 'requests', 'approvals', `/var/lib/x0x/${'a-long-name/'.repeat(8)}exec.log`],
      names: {},
      more: true,
      unread: 0,
      problems: [],
    }),
    policy: async () => ({
      source: '/etc/x0x/exec-acl.toml',
      pairs: [
        {
          agent_id: 'a'.repeat(64),
          machine_id: 'b'.repeat(64),
          name: 'alice',
          commands: [{ argv: ['df', '-h'], note: 'status; 30 s, stdin closed' }],
        },
      ],
      problem: null,
    }),
  }
  return { sources, changes }
}
