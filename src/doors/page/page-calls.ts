import { AppError } from '../../base/errors.ts'
import { DECISIONS } from '../../protocol/desk/approval-request.ts'
import { isHexId } from '../../protocol/ids.ts'
import {
  type FieldTable,
  type Fields,
  closedProblemOf,
  count,
  isText,
  listUpTo,
  map,
  oneOf,
  orNull,
  tested,
  text,
  textUpTo,
  wholeUpTo,
} from '../../protocol/json-table.ts'
import { MAX_FOLLOWED_RUNS, MAX_GRANT_MS, MAX_GRANT_USES, MAX_RUN_NAME, MAX_SESSION_NAME } from '../../protocol/limits/approvals.ts'
import { MAX_PAGE_CONTACTS, MAX_PAGE_FILTER, MAX_PAGE_RUNS } from '../../protocol/limits/page.ts'
import { MAX_ENROL_MS, MAX_ENROL_NAMES, MAX_ENROL_USES, MIN_ENROL_MS } from '../../protocol/limits/enrolment.ts'
import { MAX_LABELS, MAX_LABEL_TEXT } from '../../protocol/limits/fleet.ts'
import type { PageContactChange, PageDecision, PageExplainQuery } from '../../protocol/page.ts'
import type { PageEnrolWish } from '../../protocol/page-enrol.ts'
import {
  PEER_ORDERS,
  PEER_STATES,
  type PageContactsQuery,
  type PageJournalQuery,
  type PagePeersQuery,
  type PageRunsQuery,
  RUN_ORDERS,
  RUN_RESULTS,
  RUN_SIDES,
} from '../../protocol/page-lists.ts'
import { TRUST_LEVELS } from '../../protocol/reasons.ts'
import type { PageServices } from './services.ts'
import type { DeskFeed } from './desk-feed.ts'

type CallDeps = Pick<PageServices, 'sources'> & { readonly feed: DeskFeed }
type Call = (deps: CallDeps, body: Fields, signal: AbortSignal) => Promise<object>

interface CallDefinition {
  readonly fields: FieldTable
  readonly run: Call
}

/** A body has room for no more. */
const MAX_EXPLAINED_TOKENS = 4_096

const shortText = textUpTo(256)
const filter = textUpTo(MAX_PAGE_FILTER)
/** Position in a list. None is longer. */
const from = wholeUpTo(10 * MAX_PAGE_RUNS)
const id = tested<string>((value) => isText(value) && isHexId(value), '64 lower-case hex digits')

/** Calls of the page, by name below `/api/`. */
export const PAGE_CALLS: Readonly<Record<string, CallDefinition>> = {
  about: { fields: {}, run: async ({ sources }, _body, signal) => sources.about(signal) },
  overview: { fields: {}, run: async ({ sources }) => sources.overview() },
  runs: {
    fields: {
      side: orNull(oneOf(RUN_SIDES)),
      result: orNull(oneOf(RUN_RESULTS)),
      text: filter,
      host: filter,
      within_ms: orNull(count),
      fanout_id: orNull(shortText),
      order: orNull(oneOf(RUN_ORDERS)),
      from,
    },
    run: async ({ sources }, body) => sources.runs(body as unknown as PageRunsQuery),
  },
  run: {
    fields: { key: textUpTo(MAX_RUN_NAME, 1) },
    run: async ({ sources }, body, signal) => sources.run(String(body['key']), signal),
  },
  detached_output: {
    fields: { key: textUpTo(MAX_RUN_NAME, 1) },
    run: async ({ sources }, body, signal) => sources.detachedOutput(String(body['key']), signal),
  },
  stop: {
    fields: { key: textUpTo(MAX_RUN_NAME, 1) },
    run: async ({ sources }, body, signal) => sources.stopRun(String(body['key']), signal),
  },
  watch: {
    fields: { followed: listUpTo(textUpTo(MAX_RUN_NAME, 1), MAX_FOLLOWED_RUNS) },
    run: async ({ feed }, body) => ({ going: await feed.followRuns(body['followed'] as readonly string[]) }),
  },
  fanouts: { fields: {}, run: async ({ sources }) => sources.fanouts() },
  peers: {
    fields: {
      text: filter,
      label: filter,
      state: orNull(oneOf([...PEER_STATES, 'up'])),
      version: filter,
      unseen_ms: orNull(count),
      order: orNull(oneOf(PEER_ORDERS)),
      from,
    },
    run: async ({ sources }, body) => sources.peers(body as unknown as PagePeersQuery),
  },
  ping: { fields: { agent_id: id }, run: async ({ sources }, body, signal) => sources.ping(String(body['agent_id']), signal) },
  contacts: {
    fields: { text: filter, level: orNull(oneOf(TRUST_LEVELS)), agents: orNull(listUpTo(id, MAX_PAGE_CONTACTS)), from },
    run: async ({ sources }, body) => sources.contacts(body as unknown as PageContactsQuery),
  },
  contact_trust: {
    fields: { contact: shortText, level: oneOf(TRUST_LEVELS) },
    run: async ({ sources }, body) => sources.changeContact({ kind: 'trust', ...body } as unknown as PageContactChange),
  },
  contact_pin: {
    fields: { contact: shortText, machine_id: id },
    run: async ({ sources }, body) => sources.changeContact({ kind: 'pin', ...body } as unknown as PageContactChange),
  },
  contact_unpin: {
    fields: { contact: shortText, machine_id: id },
    run: async ({ sources }, body) => sources.changeContact({ kind: 'unpin', ...body } as unknown as PageContactChange),
  },
  contact_label: {
    fields: { contact: shortText, labels: map(textUpTo(MAX_LABEL_TEXT, 1), orNull(textUpTo(MAX_LABEL_TEXT)), { max: MAX_LABELS }) },
    run: async ({ sources }, body) => sources.changeContact({ kind: 'label', ...body } as unknown as PageContactChange),
  },
  journal: {
    fields: { journal: shortText, event: orNull(shortText), text: orNull(filter), within_ms: orNull(count), from },
    run: async ({ sources }, body, signal) => sources.journal(body as unknown as PageJournalQuery, signal),
  },
  enrol_list: { fields: {}, run: async ({ sources }) => sources.enrolKeys() },
  enrol_create: {
    fields: {
      uses: wholeUpTo(MAX_ENROL_USES, 1),
      expires_in_ms: wholeUpTo(MAX_ENROL_MS, MIN_ENROL_MS),
      names: orNull(textUpTo(MAX_ENROL_NAMES, 1)),
      labels: map(textUpTo(MAX_LABEL_TEXT, 1), textUpTo(MAX_LABEL_TEXT, 1), { max: MAX_LABELS }),
    },
    run: async ({ sources }, body) => sources.createEnrolKey(body as unknown as PageEnrolWish),
  },
  enrol_revoke: { fields: { id: shortText }, run: async ({ sources }, body) => sources.revokeEnrolKey(String(body['id'])) },
  policy: { fields: {}, run: async ({ sources }, _body, signal) => sources.policy(signal) },
  modes: { fields: {}, run: async ({ sources }, _body, signal) => sources.modes(signal) },
  revoke: { fields: { grant_id: shortText }, run: async ({ sources }, body) => sources.revoke(String(body['grant_id'])) },
  modes_off: {
    fields: { session: textUpTo(MAX_SESSION_NAME, 1) },
    run: async ({ sources }, body) => sources.takeBackModes(String(body['session'])),
  },
  explain: {
    fields: { agent_id: id, machine_id: id, argv: listUpTo(text, MAX_EXPLAINED_TOKENS) },
    run: async ({ sources }, body, signal) => sources.explain(body as unknown as PageExplainQuery, signal),
  },
  decide: {
    fields: {
      question_id: shortText,
      permit_sha256: id,
      decision: oneOf(DECISIONS),
      expires_in_ms: orNull(wholeUpTo(MAX_GRANT_MS, 1)),
      uses: orNull(wholeUpTo(MAX_GRANT_USES, 1)),
    },
    run: async ({ feed }, body) => feed.decide(body as unknown as PageDecision),
  },
}

/** Throws `bad_request` for a malformed body, and the errors of the call. */
export const runCall = async ({ fields, run }: CallDefinition, deps: CallDeps, body: Fields, signal: AbortSignal): Promise<object> => {
  const problem = closedProblemOf(body, fields)
  if (problem !== null) throw new AppError('bad_request', problem)
  return run(deps, body, signal)
}
