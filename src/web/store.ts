import type { Flood, PendingApprovalRequest } from '../protocol/desk/messages.ts'
import { type LifecycleEvent, runOf } from '../protocol/events/lifecycle.ts'
import type { PageAbout, PageEvent, PageSettled } from '../protocol/page.ts'
import { counted, durationText } from './format.ts'

/** An approval request on the page. A settled one keeps its place, so that nothing moves under the pointer. */
export interface ShownApproval {
  readonly item: PendingApprovalRequest
  readonly settled: PageSettled | null
}

export interface PageState {
  /** The connection to the program that serves the page. */
  readonly connection: 'connecting' | 'open' | 'lost' | 'signed-out'
  /** Time at which the last connection was lost, or null if there was none. */
  readonly lostAt: number | null
  readonly desk: { readonly open: boolean; readonly problem: string | null }
  /** Oldest first. */
  readonly questions: readonly ShownApproval[]
  /** Requests that were denied because a client made too many. */
  readonly floods: readonly Flood[]
  /** Newest first. */
  readonly events: readonly LifecycleEvent[]
  /** The latest announcement for screen readers. */
  readonly said: string
}

export const FIRST_STATE: PageState = {
  connection: 'connecting',
  lostAt: null,
  desk: { open: false, problem: null },
  questions: [],
  floods: [],
  events: [],
  said: '',
}

const MAX_EVENTS = 500
/** Settled requests that stay visible. */
const MAX_SETTLED = 20

export type Action =
  | PageEvent
  | { readonly type: 'connection'; readonly connection: PageState['connection']; readonly at: number }
  | { readonly type: 'clear' }

/** Output so far replaces the earlier output of the run. */
const withEvent = (events: readonly LifecycleEvent[], event: LifecycleEvent): readonly LifecycleEvent[] =>
  [event, ...events.filter((one) => one.type !== 'exec.output' || runOf(one) !== runOf(event))].slice(0, MAX_EVENTS)

const withApproval = (questions: readonly ShownApproval[], item: PendingApprovalRequest): readonly ShownApproval[] => {
  const known = questions.findIndex((one) => one.item.question_id === item.question_id)
  if (known !== -1) return questions.with(known, { item, settled: null })
  return [...questions, { item, settled: null }].sort((a, b) => a.item.asked_at_ms - b.item.asked_at_ms)
}

const onlyRecent = (questions: readonly ShownApproval[]): readonly ShownApproval[] => {
  const settled = questions.filter((one) => one.settled !== null)
  const dropped = new Set(settled.slice(0, Math.max(0, settled.length - MAX_SETTLED)))
  return questions.filter((one) => !dropped.has(one))
}

const settle = (questions: readonly ShownApproval[], settled: PageSettled): readonly ShownApproval[] =>
  onlyRecent(questions.map((one) => (one.item.question_id === settled.question_id ? { ...one, settled } : one)))

/** Requests of a lost approval service cannot be decided any more. */
const voided = (questions: readonly ShownApproval[]): readonly ShownApproval[] =>
  onlyRecent(
    questions.map((one) =>
      one.settled === null
        ? { ...one, settled: { question_id: one.item.question_id, decision: 'lost', by: 'the approval service stopped' } }
        : one,
    ),
  )

export const reduce = (state: PageState, action: Action): PageState => {
  switch (action.type) {
    case 'connection':
      return {
        ...state,
        connection: action.connection,
        // The time of the loss stays while the page tries again.
        lostAt: state.connection === 'open' ? action.at : state.lostAt,
        questions: voided(state.questions),
      }
    case 'desk':
      return {
        ...state,
        connection: 'open',
        desk: { open: action.open, problem: action.problem },
        questions: action.open ? state.questions : voided(state.questions),
      }
    case 'question':
      return {
        ...state,
        questions: withApproval(state.questions, action.question),
        said: 'A command waits for your decision.',
      }
    case 'settled':
      return { ...state, questions: settle(state.questions, action), said: `Request decided: ${action.decision}.` }
    case 'flood':
      return { ...state, floods: [...state.floods.filter(({ asker }) => asker !== action.flood.asker), action.flood] }
    case 'event':
      return { ...state, events: withEvent(state.events, action.event) }
    case 'clear':
      return { ...state, floods: [], questions: state.questions.filter((one) => one.settled === null) }
    case 'beat':
      return state
    default:
      return action satisfies never
  }
}

/** The latest event of each run. Runs are in the order of their first event, newest first, so that none moves while it writes. */
export const lastOfEach = (events: readonly LifecycleEvent[]): readonly LifecycleEvent[] =>
  [...new Map(events.toReversed().map((event) => [runOf(event), event])).values()].toReversed()

/** A run that is silent for this long, and that the approval service does not list as live, counts as ended. */
const SILENT_MS = 10_000

export const isSilent = ({ ts, expires_in_ms }: LifecycleEvent, now: number): boolean =>
  now - Date.parse(ts) > SILENT_MS + (expires_in_ms ?? 0)

export const waitingOf = ({ questions }: Pick<PageState, 'questions'>): readonly ShownApproval[] =>
  questions.filter((one) => one.settled === null)

interface StatusFacts {
  readonly state: Pick<PageState, 'connection' | 'lostAt' | 'desk' | 'questions'>
  /** Null until it is loaded. */
  readonly about: Pick<PageAbout, 'daemon' | 'name' | 'data_dir'> | null
  readonly now: number
}

interface StatusText {
  readonly text: string
  readonly tone: 'good' | 'wait' | 'bad'
}

const waitingText = (count: number): string =>
  count === 0 ? 'Nothing waits.' : `${counted(count, 'approval')} ${count === 1 ? 'waits' : 'wait'}.`

/** The state of the connections in words, and what it means. */
export const statusText = ({ state, about, now }: StatusFacts): StatusText => {
  const { connection, lostAt, desk } = state
  const waiting = waitingOf(state).length
  if (connection === 'signed-out') return { text: 'Signed out. New requests are not shown.', tone: 'bad' }
  if (connection === 'lost') {
    const since = lostAt === null ? '' : ` for ${durationText(Math.max(1_000, now - lostAt))}`
    return { text: `No connection to x0x ui${since}; retrying. New requests are not shown.`, tone: 'bad' }
  }
  if (connection === 'connecting' || about === null) return { text: 'Connecting to x0x ui …', tone: 'wait' }
  const daemon = about.daemon === null ? null : `x0xd of ${about.name ?? 'this machine'}`
  if (desk.open) {
    const to = daemon ?? `the approval service in ${about.data_dir}; no x0xd answers`
    return { text: `Connected to ${to}. ${waitingText(waiting)}`, tone: waiting > 0 ? 'wait' : 'good' }
  }
  if (daemon !== null)
    return { text: `Connected to ${daemon}, but not to an approval service: commands that need approval are denied.`, tone: 'bad' }
  return { text: `No x0xd and no approval service answer in ${about.data_dir}; retrying.`, tone: 'bad' }
}
