import { counted } from '../../../base/counted.ts'
import { AppError, isAppError } from '../../../base/errors.ts'
import type { ExecDiagnostics } from '../../../diagnostics/exec-counters.ts'
import { checkAclFile, type AclCheck } from '../../../policy/mesh/check-acl.ts'
import { successorDoubts } from '../../../doctor/successor-check.ts'
import type { EnforcementJudge } from '../../../policy/mesh/confinement.ts'
import { explain, explanationText } from '../../../policy/mesh/explain.ts'
import { loadAcl } from '../../../policy/mesh/load-acl.ts'
import { Cells } from '../../../process/cells.ts'
import { isHexId } from '../../../protocol/ids.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { painter, printJson, printLine } from '../print.ts'
import { shown, shownLine } from '../../../base/visible-text.ts'

/** Tries what entries ask of this host, when one does. */
const checkHere = async (file: string): Promise<AclCheck> => {
  let cells: Cells | null = null
  const judge: EnforcementJudge = async (confinement) => {
    cells ??= await Cells.open({ guardian: null, log: { warn: () => undefined } }, { choice: 'auto', dataDir: null })
    return cells.judge(confinement)
  }
  try {
    return await checkAclFile(file, judge)
  } finally {
    await (cells as Cells | null)?.stop()
  }
}

/** What asks somebody is named where the file has any. */
const countsText = (summary: AclCheck['summary']): string => {
  const { asking_entry_count, ask_pattern_count, always_ask_count, approver_count, approvals_needed } = summary
  const asking = [
    [asking_entry_count, counted(asking_entry_count, 'entry that asks a human', 'entries that ask a human')],
    [ask_pattern_count, counted(ask_pattern_count, 'ask pattern')],
    [always_ask_count, counted(always_ask_count, 'rule that always asks', 'rules that always ask')],
    [approver_count, `${counted(approver_count, 'approver')}, of whom an entry needs up to ${approvals_needed}`],
  ] as const
  return [
    counted(summary.allow_entry_count, 'allow entry', 'allow entries'),
    counted(summary.command_entry_count, 'command'),
    ...asking.flatMap(([count, text]) => (count === 0 ? [] : [text])),
  ].join(', ')
}

/** The file that is named, else the one that the running daemon reads. */
const fileOf = async (context: CliContext, named: string | null): Promise<string> => {
  if (named !== null) return named
  try {
    const { acl_summary } = await context.api.json<ExecDiagnostics>({ method: 'GET', path: '/diagnostics/exec' })
    return acl_summary.loaded_from
  } catch (error) {
    if (!isAppError(error, 'daemon_unreachable')) throw error
    throw new AppError('daemon_unreachable', `which file? ${error.message}`, {
      cause: error,
      data: { next: 'name the file, for which no daemon is needed; which one a daemon would read: x0xd --check' },
    })
  }
}

/** `x0x acl check [FILE]`: 0 when a daemon would start with it, 2 when not. */
export const runAclCheck = async (context: CliContext, named: string | null): Promise<number> => {
  const file = await fileOf(context, named)
  const [checked, successors] = [await checkHere(file), await successorDoubts(file, context.api.paths.contacts)]
  const report = { ...checked, warnings: [...checked.warnings, ...successors.map(({ text, remedy }) => `${text}; ${remedy}`)] }
  const status = report.ok ? 0 : 2
  if (context.json) {
    await printJson(context, report)
    return status
  }
  const paint = painter(context.stdout, context.env)
  for (const problem of report.problems) await printLine(context, `${paint('red', 'problem')}  ${shownLine(problem)}`)
  for (const warning of report.warnings) await printLine(context, `${paint('yellow', 'warning')}  ${shownLine(warning)}`)
  await printLine(
    context,
    report.ok
      ? `${paint('green', 'ok')}       ${shownLine(file)}: ${countsText(report.summary)}`
      : `${paint('red', 'refused')}  a daemon would not start with ${shownLine(file)}`,
  )
  if (report.ok && !report.summary.enabled)
    await printLine(
      context,
      `${paint('yellow', 'off')}      exec is off: the file has no [exec] with enabled = true, so nothing of this runs`,
    )
  return status
}

export interface ExplainOptions {
  /** Null: the one that the running daemon reads. */
  readonly file: string | null
  readonly agent: string
  readonly machine: string
  readonly argv: readonly string[]
  /** It is to outlive its caller. */
  readonly detach: boolean
}

const checkId = (id: string, flag: string): string => {
  if (isHexId(id)) return id
  throw usageError(
    `${flag}: ${JSON.stringify(id)} is not an id of 64 lower-case hex characters`,
    'x0x id prints both, on the machine that asks',
  )
}

/** `x0x acl explain`: 0 when it would be allowed, 1 when denied, 2 when the file itself would be refused. */
export const runAclExplain = async (context: CliContext, options: ExplainOptions): Promise<number> => {
  const agent_id = checkId(options.agent, '--agent')
  const machine_id = checkId(options.machine, '--machine')
  const { acl } = await loadAcl({ path: await fileOf(context, options.file), explicit: true })
  const explanation = explain({ acl, agent_id, machine_id, argv: options.argv, detach: options.detach })
  if (context.json) await printJson(context, explanation)
  else await printLine(context, shown(explanationText(explanation, options.argv)))
  return explanation.allowed ? 0 : 1
}
