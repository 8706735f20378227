import { BoundedMap, BoundedSet } from '../../base/bounded-collections.ts'
import { type LifecycleEvent, isOver } from '../../protocol/events/lifecycle.ts'
import type { DetachedRunView } from '../../protocol/api/detached-run.ts'
import type { RunSession } from '../../protocol/api-answers.ts'
import { type Fields, isText } from '../../protocol/json-table.ts'
import { MAX_PAGE_COMMAND, MAX_PAGE_RUNS, MAX_PAGE_TAILS } from '../../protocol/limits/page.ts'
import type { PageRun, PageRunFacts, RunSide } from '../../protocol/page-lists.ts'
import { DENIAL_REASONS, WARNING_KINDS } from '../../protocol/reasons.ts'

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** A run with its facts. `who` and `on` have IDs, which the answer replaces by names. */
export interface IndexedRun extends Mutable<PageRun> {
  facts: PageRunFacts
}

export interface RunTail {
  readonly text: string
  readonly truncated: boolean
}

/** Facts of a run, none of which is known. */
export const NO_RUN_FACTS: PageRunFacts = {
  door: null,
  session: null,
  matched_acl: null,
  approved_by: null,
  timeout_ms: null,
  keep_bytes: null,
  account: null,
  executable: null,
  cwd: null,
  env: [],
  pid: null,
  containment: null,
  terminal: false,
  stdin_bytes: null,
  stdout_bytes: null,
  stderr_bytes: null,
  truncated: false,
  detail: null,
  warnings: [],
}

const textOf = (value: unknown): string => (isText(value) ? value : '')
const textIn = (value: unknown): string | null => (isText(value) ? value : null)
const numberIn = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? value : null)
const textsIn = (value: unknown): readonly string[] => (Array.isArray(value) ? value.filter(isText) : [])

/** The words that fit, and whether words are missing. */
export const firstWords = (words: readonly string[], max = MAX_PAGE_COMMAND): { argv: readonly string[]; argv_cut: boolean } => {
  let room = max
  const argv: string[] = []
  for (const word of words) {
    if (room <= 0) return { argv, argv_cut: true }
    argv.push(word.slice(0, room))
    room -= word.length + 1
  }
  return { argv, argv_cut: room < -1 }
}

/** Key of the run of a line in an audit log. Runs of two requesters may have the same ID. */
const keyOf = (line: Fields): string => `${textOf(line['agent_id'] ?? line['session_id'])} ${textOf(line['request_id'])}`

const isDenial = (reason: string | null): boolean => (DENIAL_REASONS as readonly (string | null)[]).includes(reason)

/** Key of a run that this agent requested. */
export const keyOfMine = (requestId: string): string => `asked ${requestId}`

/** Milliseconds between the beginning and the end of a line, for ends without a duration. */
const between = (from: string, to: string): number | null => {
  const ms = Date.parse(to) - Date.parse(from)
  return Number.isFinite(ms) && ms >= 0 ? ms : null
}

/** The newest runs that the logs and the daemon of this machine know, in bounded memory. */
export class RunIndex {
  readonly #runs = new BoundedMap<string, IndexedRun>({ max: MAX_PAGE_RUNS })
  readonly #tails = new BoundedMap<string, RunTail>({ max: MAX_PAGE_TAILS })
  /** Keys of requested runs that have ended. */
  readonly #over = new BoundedSet<string>({ max: MAX_PAGE_RUNS })
  /** Number of refusals that the audit log counts without a line, by the time of the count. */
  readonly #suppressed = new BoundedMap<string, number>({ max: 256 })

  get isFull(): boolean {
    return this.#runs.size >= MAX_PAGE_RUNS
  }

  get(key: string): IndexedRun | null {
    return this.#runs.get(key) ?? null
  }

  tail(key: string): RunTail | null {
    return this.#tails.get(key) ?? null
  }

  /** The newest first. */
  list(): readonly IndexedRun[] {
    return [...this.#runs.values()].toSorted((a, b) => (a.started_at < b.started_at ? 1 : a.started_at > b.started_at ? -1 : 0))
  }

  /** Refusals since this time that have no line. */
  suppressedSince(iso: string): number {
    return [...this.#suppressed].reduce((sum, [at, count]) => (at >= iso ? sum + count : sum), 0)
  }

  /** A line of the audit log of the daemon or of a local program. */
  takeLogged(line: Fields): void {
    const key = keyOf(line)
    const known = this.#runs.get(key)
    switch (line['event']) {
      case 'request':
        return this.#add(key, this.#logged(key, line))
      case 'denial':
      case 'refused':
        return this.#deny(line)
      case 'started':
        if (known !== undefined) known.facts = { ...known.facts, pid: numberIn(line['pid']), containment: textIn(line['containment']) }
        return
      case 'warning':
        return warn(known, textOf(line['kind']))
      case 'exit':
        return end(known, line)
      case 'lost':
        if (known !== undefined) known.result = 'lost'
        return
      case 'refusals_suppressed':
        this.#suppressed.set(textOf(line['to']), numberIn(line['count']) ?? 0)
    }
  }

  /** A line of the request log. */
  takeRequested(line: Fields): void {
    if (line['event'] !== 'asked') return
    const key = keyOfMine(textOf(line['request_id']))
    const known = this.#runs.get(key)
    // A resent request has a second line, and an event may come before the line.
    if (known !== undefined && known.argv.length > 0) return
    const detach = line['detach'] as Fields | undefined
    const run = this.#new(key, 'mine', line)
    run.on = run.agent_id
    run.fanout_id = textIn(line['fanout_id'])
    run.detached = detach !== undefined
    run.result = 'unknown'
    run.facts = {
      ...NO_RUN_FACTS,
      stdin_bytes: numberIn(line['stdin_bytes']),
      timeout_ms: numberIn(line['timeout_ms'] ?? detach?.['lifetime_ms']),
      keep_bytes: numberIn(detach?.['keep_bytes']),
      terminal: line['terminal'] === true,
    }
    if (known === undefined) this.#add(key, run)
    else {
      const { result, code, signal, reason, duration_ms, facts } = known
      Object.assign(known, { ...run, result, code, signal, reason, duration_ms, facts: { ...run.facts, session: facts.session } })
    }
  }

  /** An event of a run that this agent requested. */
  takeEvent(event: LifecycleEvent): void {
    const key = keyOfMine(event.run_id)
    if (event.tail !== null) this.#tails.set(key, { text: event.tail, truncated: event.tail_truncated })
    const run = this.#runs.get(key) ?? this.#new(key, 'mine', { request_id: event.run_id, ts: event.ts })
    if (!this.#runs.has(key)) this.#add(key, { ...run, on: event.node, result: 'unknown' })
    const kept = this.#runs.get(key)
    if (kept === undefined || this.#over.has(key)) return
    kept.facts = { ...kept.facts, session: event.session }
    if (isOver(event)) this.#over.add(key)
    if (event.type === 'exec.started') kept.result = 'running'
    else if (event.type === 'exec.waiting') kept.result = 'waiting'
    else if (event.type === 'exec.denied') {
      const { denial_reason: reason, duration_ms } = event
      // A request that never arrived ends with the code of an error in place of a denial.
      Object.assign(kept, { result: isDenial(reason) ? 'denied' : 'failed', reason, duration_ms })
    } else if (event.type === 'exec.finished') {
      const { code, signal, duration_ms, incomplete } = event
      const result = incomplete ? 'lost' : code === 0 ? 'ok' : 'failed'
      Object.assign(kept, { result, code, signal, duration_ms: duration_ms ?? between(kept.started_at, event.ts) })
    }
  }

  /** All unfinished runs that this agent requested. A run that is not among them and has no known end is unknown. */
  takeSessions(sessions: readonly RunSession[]): void {
    const live = new Map(sessions.map((session) => [keyOfMine(session.request_id), session]))
    for (const run of this.#runs.values()) {
      const isOpen = run.side === 'mine' && (run.result === 'running' || run.result === 'waiting')
      if (isOpen && !run.detached && !live.has(run.key)) run.result = 'unknown'
    }
    for (const [key, session] of live) {
      if (!this.#runs.has(key)) this.#add(key, { ...this.#new(key, 'mine', { ...session, ts: session.started_at }), on: session.agent_id })
      const run = this.#runs.get(key)
      if (run === undefined || this.#over.has(key)) continue
      run.fanout_id ??= session.fanout_id ?? null
      run.result = session.state === 'waiting_for_approval' ? 'waiting' : 'running'
    }
  }

  /** The detached runs that this agent requested. */
  takeDetached(runs: readonly DetachedRunView[]): void {
    for (const view of runs) {
      const key = keyOfMine(view.request_id)
      if (!this.#runs.has(key)) this.#add(key, { ...this.#new(key, 'mine', { ...view, ts: view.asked_at }), on: view.agent_id })
      const run = this.#runs.get(key)
      if (run === undefined) continue
      const { state, code, signal, denial_reason: reason } = view
      const ended = reason !== null ? 'denied' : signal !== null ? 'failed' : code === 0 ? 'ok' : code !== null ? 'failed' : null
      const open = state === 'waiting' ? 'waiting' : state === 'running' ? 'running' : state === 'unknown' ? 'unknown' : 'lost'
      Object.assign(run, { detached: true, result: ended ?? open, code, signal, reason })
      run.facts = { ...run.facts, keep_bytes: view.keep_bytes, timeout_ms: view.lifetime_ms, session: view.session }
    }
  }

  #add(key: string, run: IndexedRun): void {
    this.#runs.set(key, run, run.side === 'mine' ? 'mine' : run.who)
  }

  #new(key: string, side: RunSide, line: Fields): IndexedRun {
    return {
      key,
      request_id: textOf(line['request_id']),
      side,
      who: '',
      on: null,
      agent_id: textIn(line['agent_id']),
      machine_id: textIn(line['machine_id']),
      ...firstWords(textsIn(line['argv'])),
      started_at: textOf(line['ts']),
      result: 'running',
      code: null,
      signal: null,
      reason: null,
      duration_ms: null,
      fanout_id: null,
      detached: false,
      facts: NO_RUN_FACTS,
    }
  }

  #logged(key: string, line: Fields): IndexedRun {
    const isMesh = isText(line['agent_id'])
    const run = this.#new(key, isMesh ? 'incoming' : 'local', line)
    run.who = isMesh ? textOf(line['agent_id']) : textOf(line['client_name'])
    run.on = textIn(line['target'])
    run.detached = line['keep_bytes'] !== undefined
    if (line['argv_cut'] !== undefined) run.argv_cut = true
    run.facts = {
      ...NO_RUN_FACTS,
      door: isMesh ? 'mesh' : textIn(line['door']),
      session: textIn(line['session_id']),
      matched_acl: textIn(line['matched_acl']),
      approved_by: textIn(line['approved_by']),
      timeout_ms: numberIn(line['timeout_ms']),
      keep_bytes: numberIn(line['keep_bytes']),
      account: textIn(line['account']),
      executable: textIn((line['executable'] as Fields | null | undefined)?.['path']),
      cwd: textIn(line['cwd']),
      env: textsIn(line['env']).slice(0, 64),
      terminal: line['terminal'] === true,
      stdin_bytes: numberIn(line['stdin_bytes']),
    }
    return run
  }

  /** A denial before the request has no other line. One after the start says that its limits could not be set. */
  #deny(line: Fields): void {
    // A refused call without a command, such as one for a file.
    if (!isText(line['request_id']) && textsIn(line['argv']).length === 0) return
    // A local program that was refused before its run began has no ID of one.
    const key = isText(line['request_id']) ? keyOf(line) : `refused ${textOf(line['chain'])} ${String(line['n'])}`
    if (!this.#runs.has(key)) this.#add(key, this.#logged(key, line))
    const run = this.#runs.get(key)
    if (run === undefined) return
    Object.assign(run, { result: 'denied', reason: textIn(line['reason'] ?? line['code']), duration_ms: null })
    run.facts = { ...run.facts, detail: textIn(line['detail']) }
  }
}

const warn = (run: IndexedRun | undefined, kind: string): void => {
  if (run === undefined || run.facts.warnings.includes(kind) || run.facts.warnings.length >= WARNING_KINDS.length) return
  run.facts = { ...run.facts, warnings: [...run.facts.warnings, kind] }
}

const end = (run: IndexedRun | undefined, line: Fields): void => {
  if (run === undefined) return
  const [code, signal] = [numberIn(line['code']), numberIn(line['signal'])]
  // A target's daemon did not report the end.
  const isUnknown = code === null && signal === null
  const result = isUnknown ? 'lost' : code === 0 ? 'ok' : 'failed'
  Object.assign(run, { result, code, signal, duration_ms: numberIn(line['duration_ms']) })
  const truncated = line['truncated'] === true
  run.facts = { ...run.facts, truncated, stdout_bytes: numberIn(line['stdout_bytes']), stderr_bytes: numberIn(line['stderr_bytes']) }
}
