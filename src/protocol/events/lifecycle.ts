import {
  type Sent,
  closedProblemOf,
  count,
  flag,
  integer,
  isTable,
  isText,
  oneOf,
  orNull,
  tested,
  text,
  textOf,
  textUpTo,
} from '../json-table.ts'
import { MAX_EVENT_TAIL } from '../limits/events.ts'
import { LOCAL_INTERFACES } from '../reasons.ts'

/**
 * What is told of a run to whoever asked for it: that it began, that it waits for a human, how it ended, or that it was
 * denied. Of one run at most one `exec.started`, and exactly one of `exec.finished` and `exec.denied`, which is its last.
 */
export const LIFECYCLE_TYPES = ['exec.started', 'exec.waiting', 'exec.finished', 'exec.denied'] as const

/** Beside those, for a human who watches over this host: what a run that goes on has written so far. Whoever asked for it has its stream. */
export const WATCHED_TYPES = [...LIFECYCLE_TYPES, 'exec.output'] as const

/** `rest`: asked over the API of a daemon; `mesh`: asked by an agent of the mesh, here. */
export const LIFECYCLE_INTERFACES = ['rest', 'mesh', ...LOCAL_INTERFACES] as const

/** Where a run is that is neither on another machine nor in a sandbox. */
export const HERE = 'gateway'
const SANDBOX = 'sandbox'

/** Neither empty nor anything that would end a line or the parenthesis of the sentence. */
const NOT_OF_A_NAME = /[\p{C}\p{Z}(),=]/gu
const MAX_LIFECYCLE_NAME = 128
const name = tested<string>(
  (value) => isText(value) && value.length > 0 && value.length <= MAX_LIFECYCLE_NAME && value.search(NOT_OF_A_NAME) === -1,
  'a name',
)

/** What a name is called in an event: as it is, but for what would end its sentence. */
export const lifecycleName = (text: string): string => text.slice(0, MAX_LIFECYCLE_NAME).replaceAll(NOT_OF_A_NAME, '_') || '_'

const MAX_LABEL = 256
const label = textUpTo(MAX_LABEL)

/** A label of any length, as far as an event has it. */
export const lifecycleLabel = (text: string): string => text.slice(0, MAX_LABEL).replaceAll('\0', ' ')

/** Fields of an event. */
export const LIFECYCLE_FIELDS = {
  type: oneOf(WATCHED_TYPES),
  /** Of the log that it is read from, from 1, without a gap but for what that log says it dropped. */
  n: count,
  /** ISO 8601. */
  ts: text,
  /** Who asked: a label of a local caller, or the id of an agent. */
  owner: label,
  session: orNull(label),
  door: oneOf(LIFECYCLE_INTERFACES),
  run_id: name,
  /** Where: the id or name of an agent as it was asked for, `gateway` (this host) or `sandbox`. */
  node: name,
  code: orNull(integer),
  signal: orNull(integer),
  duration_ms: orNull(count),
  /** Of `exec.waiting`: how long it waits at most, from `ts` on. */
  expires_in_ms: orNull(count).says('of exec.waiting: how long it waits at most'),
  /** The end of what it wrote to both streams, as they came; null but in `exec.finished` and `exec.output`. A foreign text. */
  tail: orNull(textOf({ max: MAX_EVENT_TAIL })).says('the end of its output: a foreign text'),
  tail_truncated: flag,
  /** How it ended is not known, or bytes of its output are missing: never a success. */
  incomplete: flag,
  denial_reason: orNull(name),
}

export type LifecycleEvent = Sent<typeof LIFECYCLE_FIELDS>

/** What a room that sees a run says of it; the rest is the log's. */
export type LifecycleFacts = Pick<LifecycleEvent, 'type' | 'owner' | 'session' | 'door' | 'run_id' | 'node'> & Partial<LifecycleEvent>

const NOTHING = {
  code: null,
  signal: null,
  duration_ms: null,
  expires_in_ms: null,
  tail: null,
  tail_truncated: false,
  incomplete: false,
  denial_reason: null,
}

export const lifecycleEvent = (facts: LifecycleFacts, { n, ts }: Pick<LifecycleEvent, 'n' | 'ts'>): LifecycleEvent => {
  const { type, owner, session, door, run_id, node, ...rest } = facts
  return { type, n, ts, owner, session, door, run_id, node, ...NOTHING, ...rest }
}

/** Of which run it is: an agent of the mesh chooses the ids of its runs, and may choose one of another's. */
export const runOf = ({ session, owner, run_id }: Pick<LifecycleEvent, 'session' | 'owner' | 'run_id'>): string =>
  `${session ?? owner} ${run_id}`

/** True for the last event of a run. */
export const isOver = ({ type }: Pick<LifecycleEvent, 'type'>): boolean => type === 'exec.finished' || type === 'exec.denied'

/** True for a run that is not on another machine. */
export const isHere = ({ node }: LifecycleEvent): boolean => node === HERE || node === SANDBOX

/** What is wrong with a value that should be an event; null: nothing. */
export const lifecycleProblem = (value: unknown): string | null => {
  return isTable(value) ? closedProblemOf(value, LIFECYCLE_FIELDS) : 'it is not an object'
}

/** Behind the code: what keeps it from saying all. */
const qualifiers = ({ signal, incomplete }: LifecycleEvent): string =>
  `${signal === null ? '' : ` signal=${signal}`}${incomplete ? ' incomplete' : ''}`

/** The sentence of the specification, without the tail. */
export const lifecycleText = (event: LifecycleEvent): string => {
  const which = `node=${event.node}, id=${event.run_id}`
  switch (event.type) {
    case 'exec.started':
      return `Exec started (${which})`
    case 'exec.waiting':
      return `Exec waiting for approval (${which})`
    case 'exec.output':
      return `Exec running (${which})`
    case 'exec.finished':
      return `Exec finished (${which}, code=${event.code}${qualifiers(event)})`
    case 'exec.denied':
      return `Exec denied (${which}, ${event.denial_reason})`
    default:
      return event.type satisfies never
  }
}

const INDENT = '  '

/** The sentence, and its tail in lines that begin otherwise than a sentence, so that what a program wrote cannot pass for one. `show` makes a foreign text fit to be seen. */
export const lifecycleTextWithTail = (event: LifecycleEvent, show: (foreign: string) => string): string => {
  const sentence = lifecycleText(event)
  if (event.tail === null || event.tail === '') return sentence
  const lines = show(event.tail).replace(/\n$/, '').split('\n')
  return [sentence, ...lines.map((line) => `${INDENT}${line}`)].join('\n')
}
