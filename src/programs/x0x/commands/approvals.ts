import { AppError, isAppError } from '../../../base/errors.ts'
import { counted, shellWords } from '../../../base/format.ts'
import { homeDirectory } from '../../../base/home.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import { type CommandLine, durationOf } from '../../../cli/parse.ts'
import { countdown, questionLines } from '../../../clients/approval-text.ts'
import { type ApprovalClient, openDesk } from '../../../clients/desk.ts'
import type { DataPaths } from '../../../clients/paths.ts'
import { type StoredRows, grantEnd, ineffectiveRows, rowProblem } from '../../../policy/approval/allowlist-row.ts'
import { unallowable } from '../../../protocol/desk/approval-request-size.ts'
import type { ApprovalRequest, Decision } from '../../../protocol/desk/approval-request.ts'
import type { Grant, PendingApprovalRequest } from '../../../protocol/desk/messages.ts'
import { MAX_GRANT_MS, MAX_GRANT_USES, MAX_HISTORY, OPAQUE_GRANT_MS } from '../../../protocol/limits/approvals.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { painter, printAnswer, printDone, printHint, printLine, printTable } from '../print.ts'
import { confirmed, isAtTerminal } from '../prompts.ts'

/** Length of the shortest accepted beginning of an ID. */
const MIN_PREFIX = 6

/** The approval service's paths. Throws `operator_proof_required` if `--api` leads to another machine. */
export const deskPathsOf = ({ api }: CliContext): DataPaths => {
  if (api.isOwn) return api.paths
  throw new AppError('operator_proof_required', 'approvals need a data directory: use --data-dir instead of --api', {
    data: { next: 'Use --name or --data-dir to choose the daemon' },
  })
}

/** Does one thing at the approval service and disconnects. */
export const atDesk = async <T>(context: CliContext, work: (desk: ApprovalClient) => Promise<T>): Promise<T> => {
  const desk = await openDesk(deskPathsOf(context), 'x0x approvals')
  try {
    return await work(desk)
  } finally {
    desk.close()
  }
}

const oneOf = <T>(items: readonly T[], idOf: (item: T) => string, text: string, what: string): T => {
  if (text.length < MIN_PREFIX)
    throw usageError(`${JSON.stringify(text)} is too short for the ID of an ${what}`, `Use at least its first ${MIN_PREFIX} characters`)
  const fitting = items.filter((item) => idOf(item).startsWith(text))
  const exact = fitting.find((item) => idOf(item) === text) ?? (fitting.length === 1 ? fitting[0] : undefined)
  if (exact !== undefined) return exact
  if (fitting.length === 0)
    throw new AppError('not_found', `no ${what} matches ${JSON.stringify(text)}`, {
      data: {
        next: what === 'approval request' ? 'See: x0x approvals pending, x0x approvals history' : 'See: x0x approvals list',
      },
    })
  throw new AppError('conflict', `${JSON.stringify(text)} matches more than one ID: ${fitting.map(idOf).join(', ')}`, {
    data: { next: 'Use more characters' },
  })
}

const headOf = ({ question_id: id, expires_at_ms: expires, decisions }: PendingApprovalRequest, now: number): string =>
  `${id}   ${countdown(expires, now)} left, then it is denied${decisions.includes('allow_always') ? '' : '; it can be allowed only once'}`

/** Width of a terminal, or undefined for anything else, where lines are not cut. */
const columnsOf = ({ stdout }: CliContext): number | undefined => (stdout.isTTY === true ? stdout.columns : Infinity)

const whole = (pending: PendingApprovalRequest, context: CliContext): string =>
  `${[headOf(pending, Date.now()), ...questionLines(pending.question, columnsOf(context))].join('\n')}\n`

export const runPending = async (context: CliContext): Promise<number> =>
  atDesk(context, async (desk) => {
    const waiting = await desk.pending()
    return printAnswer(context, waiting, async () => {
      if (waiting.questions.length === 0) await printLine(context, 'no open approval requests')
      for (const question of waiting.questions) await write(context.stdout, `${whole(question, context)}\n`)
      for (const { asker, count } of waiting.floods)
        await printLine(context, `denied: ${counted(count, 'request')} more of ${shownLine(asker)}, which asks too often`)
    })
  })

const WORDS: Readonly<Record<Decision, { readonly ask: string; readonly done: string }>> = {
  allow_once: { ask: 'allow this once', done: 'allowed once' },
  allow_always: { ask: 'allow exactly this, now and from now on', done: 'allowed from now on' },
  deny: { ask: 'deny this', done: 'denied' },
}

const checkPermit = ({ question: { permit_sha256: permit } }: PendingApprovalRequest, shown: string | null): void => {
  if (shown === null) return
  if (!/^[0-9a-f]{12,64}$/.test(shown))
    throw usageError(`--permit: ${JSON.stringify(shown)} is not the first 12 to 64 hex digits of a permit`)
  if (!permit.startsWith(shown))
    throw new AppError('conflict', `the approval request has another permit than the one that was shown: ${permit}`, {
      data: { next: 'Try: x0x approvals pending' },
    })
}

/** Nobody may allow a request that cannot be shown completely. */
export const checkShowable = (question: ApprovalRequest, decision: Decision): void => {
  const problem = decision === 'deny' ? null : unallowable(question)
  if (problem !== null) throw new AppError('too_large', `this request cannot be approved: ${problem}`, { data: { next: 'Deny it' } })
}

/** Throws before asking the user if the service would refuse this decision. */
const checkOffered = ({ question_id: id, decisions }: PendingApprovalRequest, decision: Decision): void => {
  if (decisions.includes(decision)) return
  throw new AppError('bad_request', 'this can be allowed only once: it needs approval each time', {
    data: { next: `Try: x0x approvals approve ${id}` },
  })
}

/** The limits of `allow-always`. */
const lastingOf = (line: CommandLine): { readonly expires_in_ms?: number; readonly uses?: number } => {
  const [time, uses] = [line.value('for'), line.value('uses')]
  const ms = time === null ? null : durationOf(time)
  if (time !== null && (ms === null || ms > MAX_GRANT_MS))
    throw usageError(`--for: ${JSON.stringify(time)} is not a time such as 90s, 15m, 8h or 30d, of at most a year`)
  if (uses !== null && !(/^[1-9][0-9]{0,6}$/.test(uses) && Number(uses) <= MAX_GRANT_USES))
    throw usageError(`--uses: ${JSON.stringify(uses)} is not a count from 1 to ${MAX_GRANT_USES}`)
  return { ...(ms === null ? {} : { expires_in_ms: ms }), ...(uses === null ? {} : { uses: Number(uses) }) }
}

/** An opaque command is allowed for some hours only, because each run may do something else. */
const lastingText = ({ question: { opaque } }: PendingApprovalRequest): string =>
  opaque === null
    ? ''
    : ` (each run can differ, so the grant ends in ${counted(OPAQUE_GRANT_MS / 3_600_000, 'hour')}; change this with --for)`

/** `x0x approvals approve|deny|allow-always ID`: shows the complete request first, and decides exactly that one. */
const runDecide = async (context: CliContext, line: CommandLine, decision: Decision): Promise<number> => {
  const [[id = ''], lasting] = [line.words, lastingOf(line)]
  return atDesk(context, async (desk) => {
    const { questions } = await desk.pending()
    const pending = oneOf(questions, ({ question_id }) => question_id, id, 'approval request')
    checkPermit(pending, line.value('permit'))
    const { ask, done } = WORDS[decision]
    checkShowable(pending.question, decision)
    checkOffered(pending, decision)
    const isAsked = isAtTerminal(context) && !line.has('yes')
    if (isAsked || !context.json) await write(context.json ? context.stderr : context.stdout, whole(pending, context))
    if (isAsked && !(await confirmed(context, `${ask}${decision === 'allow_always' ? lastingText(pending) : ''}?`)))
      throw new AppError('conflict', 'nothing was decided: the request is still open', { data: { next: '' } })
    const { permit_sha256 } = pending.question
    const answer = await desk.decide({ question_id: pending.question_id, permit_sha256, decision, ...lasting }).catch((error: unknown) => {
      throw asLate(error)
    })
    const paint = painter(context.stdout, context.env)
    return printDone(context, { ok: true, ...answer, permit_sha256, question: pending.question }, async () =>
      printLine(
        context,
        `${paint(decision === 'deny' ? 'red' : 'green', done)}: ${pending.question_id}${answer.grant_id === null ? '' : `, as ${answer.grant_id}; take it back: x0x approvals revoke ${answer.grant_id}`}`,
      ),
    )
  })
}

export const runApprove = async (context: CliContext, line: CommandLine): Promise<number> => runDecide(context, line, 'allow_once')
export const runDeny = async (context: CliContext, line: CommandLine): Promise<number> => runDecide(context, line, 'deny')
export const runAllowAlways = async (context: CliContext, line: CommandLine): Promise<number> => runDecide(context, line, 'allow_always')

/** Adds who decided first, and how. */
export const asLate = (error: unknown): unknown => {
  if (!isAppError(error, 'conflict') || typeof error.data['won_by'] !== 'string') return error
  return new AppError('conflict', `${String(error.data['decision'] ?? 'decided')} already, by ${error.data['won_by']}`, {
    cause: error,
    data: { ...error.data, next: '' },
  })
}

const grantRow = (grant: Grant): string[] => {
  const { id, agent, argv, uses_left: uses, by } = grant
  return [id, agent, uses === null ? 'any' : String(uses), new Date(grantEnd(grant)).toISOString(), by, shellWords(argv)]
}

export const runList = async (context: CliContext): Promise<number> =>
  atDesk(context, async (desk) => {
    const [grants, store] = [await desk.grants(), await desk.store()]
    const { agents = {}, modes = {} } = store as Partial<StoredRows>
    const ineffective = ineffectiveRows({ agents, grants, modes }, homeDirectory(), Date.now())
    return printAnswer(context, { ok: true, grants, store, ineffective }, async () => {
      const patterns = Object.entries(agents).flatMap(([agent, { allowlist = [] }]) =>
        allowlist.map(({ pattern, opaque }) => [agent, opaque === true ? `${pattern}  --opaque` : pattern]),
      )
      if (grants.length + patterns.length === 0) await printLine(context, 'no grants and no allowed patterns')
      if (grants.length > 0) await printTable(context, ['GRANT', 'AGENT', 'USES', 'UNTIL', 'BY', 'COMMAND'], grants.map(grantRow))
      if (patterns.length > 0) await printTable(context, ['AGENT', 'PATTERN'], patterns)
      for (const { agent, row, why, remedy } of ineffective) {
        await printLine(context, shownLine(`has no effect: ${row} of ${agent}: ${why}`))
        await printHint(context, `  Try: ${remedy}`)
      }
    })
  })

export const runRevokeGrant = async (context: CliContext, { words: [id = ''] }: CommandLine): Promise<number> =>
  atDesk(context, async (desk) => {
    const grant = oneOf(await desk.grants(), (one) => one.id, id, 'grant')
    const { revoked } = await desk.revoke(grant.id)
    if (!revoked) throw new AppError('conflict', `${grant.id} was revoked already`, { data: { next: '' } })
    return printDone(context, { ok: true, revoked: grant }, async () =>
      printLine(context, `revoked: ${grant.id}  ${shownLine(shellWords(grant.argv))}`),
    )
  })

export const runAllowlist = async (context: CliContext, line: CommandLine): Promise<number> =>
  atDesk(context, async (desk) => {
    const [agent = '', pattern = ''] = line.words
    const change = line.command === 'approvals allowlist add' ? 'allowlist_add' : 'allowlist_remove'
    const opaque = change === 'allowlist_add' && line.has('opaque')
    const problem = change === 'allowlist_add' ? rowProblem(agent, { pattern, opaque }, homeDirectory()) : null
    if (problem !== null)
      throw new AppError('bad_request', `${JSON.stringify(pattern)} is not added for ${agent}: ${problem.why}`, {
        data: { next: problem.instead === null ? '' : `Try: ${problem.instead}` },
      })
    const answer = await desk.allowlist(change, agent, pattern, opaque)
    const done = change === 'allowlist_add' ? 'may run without approval' : 'needs approval again'
    if (answer['changed'] === false)
      throw new AppError('conflict', change === 'allowlist_add' ? `${agent} has that pattern already` : `${agent} has no such pattern`, {
        data: { next: 'See: x0x approvals list' },
      })
    return printDone(context, { ok: true, agent, pattern, ...answer }, async () =>
      printLine(context, shownLine(`${pattern}: ${done}, by ${agent}`)),
    )
  })

type HistoryLine = Readonly<Record<string, unknown>>

const cell = (value: unknown): string =>
  value === undefined || value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value)

/** A row for a request, its end, or a change of the store. */
const historyRow = ({ ts, event, question_id, outcome, change, by, asker, argv, reason, detail }: HistoryLine): string[] => [
  cell(ts),
  cell(event),
  cell(question_id),
  cell(outcome ?? change),
  cell(by ?? asker),
  Array.isArray(argv) ? shellWords(argv.map(String)) : cell(reason ?? detail),
]

export const runHistory = async (context: CliContext, line: CommandLine): Promise<number> => {
  const count = line.value('lines') ?? ''
  if (!/^[1-9][0-9]{0,4}$/.test(count) || Number(count) > MAX_HISTORY)
    throw usageError(`--lines: ${JSON.stringify(count)} is not a count from 1 to ${MAX_HISTORY}`)
  return atDesk(context, async (desk) => {
    const history = await desk.history(Number(count))
    return printAnswer(context, { ok: true, ...history }, async () => {
      const lines = Array.isArray(history['lines']) ? (history['lines'] as readonly HistoryLine[]) : []
      if (lines.length === 0) await printLine(context, 'no approval requests yet')
      else await printTable(context, ['WHEN', 'WHAT', 'QUESTION', 'OUTCOME', 'BY', 'COMMAND'], lines.map(historyRow))
    })
  })
}
