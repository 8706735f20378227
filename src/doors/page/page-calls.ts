import { AppError } from '../../base/errors.ts'
import { DECISIONS } from '../../protocol/desk/approval-request.ts'
import { isHexId } from '../../protocol/ids.ts'
import {
  type FieldTable,
  type Fields,
  closedProblemOf,
  isText,
  listUpTo,
  oneOf,
  orNull,
  tested,
  text,
  textUpTo,
  wholeUpTo,
} from '../../protocol/json-table.ts'
import { MAX_FOLLOWED_RUNS, MAX_GRANT_MS, MAX_GRANT_USES, MAX_RUN_NAME, MAX_SESSION_NAME } from '../../protocol/limits/approvals.ts'
import type { PageDecision, PageExplainQuery, PageJournalQuery, PageRunsQuery } from '../../protocol/page.ts'
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
const id = tested<string>((value) => isText(value) && isHexId(value), '64 hexadecimal digits')

/** Calls of the page, by name below `/api/`. */
export const PAGE_CALLS: Readonly<Record<string, CallDefinition>> = {
  about: { fields: {}, run: async ({ sources }, _body, signal) => sources.about(signal) },
  runs: {
    fields: { followed: listUpTo(textUpTo(MAX_RUN_NAME, 1), MAX_FOLLOWED_RUNS) },
    run: async ({ feed, sources }, body, signal) => {
      const { followed } = body as unknown as PageRunsQuery
      const [going, runs] = await Promise.all([feed.followRuns(followed), sources.runs(signal)])
      return { going, ...runs }
    },
  },
  peers: { fields: {}, run: async ({ sources }, _body, signal) => sources.peers(signal) },
  journal: {
    fields: { journal: shortText, event: orNull(shortText), text: orNull(shortText) },
    run: async ({ sources }, body, signal) => sources.journal(body as unknown as PageJournalQuery, signal),
  },
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
