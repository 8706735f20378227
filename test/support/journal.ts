import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import type { JournalEvent, JournalLine, LineHead, LocalEvent, LocalKey, LocalRunKey, MeshEvent } from '../../src/journal/events.ts'
import type { RunKey } from '../../src/journal/run-key.ts'
import { LIFE_EVENTS, type ChainEvent } from '../../src/journal/chain-events.ts'
import { Journal } from '../../src/journal/journal.ts'
import { RunningMarks } from '../../src/journal/running-marks.ts'
import { ALICE, LAPTOP } from './acl-text.ts'
import { ManualClock } from './manual-clock.ts'
import { silent, temporaryDirectory } from './processes.ts'

/** A line about another agent's run, or about a request of this agent. */
export type MeshLine = LineHead & MeshEvent

export const isLifeEvent = <E extends { readonly event: string }>(event: E): event is E & ChainEvent =>
  LIFE_EVENTS.some((name) => name === event.event)

/** The n-th run of ALICE on LAPTOP. */
export const runKey = (n: number): RunKey => ({
  request_id: `01900000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`,
  agent_id: ALICE,
  machine_id: LAPTOP,
})

const EVIDENCE = { stdin_sha256: null, request_sha256: null, executable: null, account: null }

export const requestEvent = (n: number, argv: readonly string[] = ['echo', `${n}`]): JournalEvent => ({
  event: 'request',
  ...runKey(n),
  argv,
  matched_acl: 'alice on her laptop',
  ...EVIDENCE,
  stdin_bytes: 0,
  timeout_ms: 30_000,
})

export const startedEvent = (n: number): JournalEvent => ({ event: 'started', ...runKey(n), pid: 1000 + n, containment: 'group' })

/** The end of every run in these tests. */
const END = {
  code: 0,
  signal: null,
  duration_ms: 3,
  stdout_bytes: 2,
  stderr_bytes: 0,
  stdout_sha256: null,
  stderr_sha256: null,
  truncated: false,
} as const

export const exitEvent = (n: number): JournalEvent => ({ event: 'exit', ...runKey(n), ...END })

export const localSession: LocalKey = { door: 'stdio', session_id: 's_AAAAAAAAAAAAAAAAAAAA-_', client_name: 'an agent' }

/** The n-th run of the session. It has the request ID of the n-th run of the mesh. */
export const localRunKey = (n: number): LocalRunKey => ({ ...localSession, request_id: runKey(n).request_id })

export const localRequest = (n: number): LocalEvent => ({
  event: 'request',
  ...localRunKey(n),
  argv: ['echo', `${n}`],
  matched_acl: 'security',
  ...EVIDENCE,
  stdin_bytes: 0,
  timeout_ms: 30_000,
  cwd: '/srv/app',
  target: null,
  env: ['CI'],
})

export const localStarted = (n: number): LocalEvent => ({ event: 'started', ...localRunKey(n), pid: 1_000 + n, containment: 'cgroup' })

export const localExit = (n: number): LocalEvent => ({ event: 'exit', ...localRunKey(n), ...END })

export const denialEvent = (n: number, reason: 'argv_not_allowed' | 'spawn_failed' = 'argv_not_allowed'): JournalEvent => ({
  event: 'denial',
  ...runKey(n),
  argv: ['rm', '-rf', '/'],
  reason,
  detail: null,
})

export interface TestJournal {
  readonly journal: Journal
  readonly clock: ManualClock
  readonly directory: string
  readonly path: string
  readonly runningDir: string
}

/** Starts a journal in a temporary directory, or in `directory` to open an existing one again. */
export const openJournal = async (t: TestContext, directory?: string, path?: string): Promise<TestJournal> => {
  const place = directory ?? (await temporaryDirectory(t))
  const file = path ?? join(place, 'log', 'exec.log')
  const runningDir = join(place, 'running')
  const clock = new ManualClock()
  const journal = new Journal(
    { clock, log: silent },
    { path: file, marks: new RunningMarks({ log: silent }, { directory: runningDir, journal: file }) },
  )
  await journal.start()
  t.after(() => journal.stop())
  return { journal, clock, directory: place, path: file, runningDir }
}

/** The complete lines. A reader of a file that is being written can see the beginning of a line. */
export const wholeLines = (text: string): string[] =>
  text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter(Boolean)

/** The lines of a journal without those about the journal itself. Invalid lines stay text. */
export const linesOf = async (path: string): Promise<(JournalLine | string)[]> =>
  (await allLinesOf(path)).filter((line) => typeof line === 'string' || !isLifeEvent(line))

/** The lines of a journal. Invalid lines stay text. */
export const allLinesOf = async (path: string): Promise<(JournalLine | string)[]> =>
  (await readFile(path, 'utf8'))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      try {
        return JSON.parse(line) as JournalLine
      } catch {
        return line
      }
    })
