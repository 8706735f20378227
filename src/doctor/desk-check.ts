import { errorText, isAppError } from '../base/errors.ts'
import { counted } from '../base/format.ts'
import { homeDirectory } from '../base/home.ts'
import { shownLine } from '../base/visible-text.ts'
import { type ApprovalClient, openDesk } from '../clients/desk.ts'
import type { DataPaths } from '../clients/paths.ts'
import { ineffectiveRows } from '../policy/approval/allowlist-row.ts'
import { type AskFallback, stricterFallback } from '../policy/modes.ts'
import type { Fields } from '../protocol/json-table.ts'
import { type Finding, fail, ok, warn } from './findings.ts'

const TOPIC = 'approval service'
const NO_DESK = 'start x0xd --init, or x0x desk without a daemon; until then, requests that need approval are denied'
const LOG = 'see the log of x0xd or x0x desk'

/** Limit on agents with a line of their own. */
const MAX_NAMED = 32

const approversFinding = (windows: number): Finding =>
  windows === 0
    ? ok('approvers', 'none is connected, so requests that need approval are denied: run x0x approvals watch, or open x0x ui')
    : ok('approvers', `${counted(windows, 'approval client')} connected; the first answer counts`)

/** The default modes of the store, and those of each agent with a row. */
const modeFindings = ({ defaults, agents }: Fields): Finding[] => {
  const rows = Object.entries(agents as Readonly<Record<string, Fields>>)
  const textOf = (row: Fields): string => {
    const of = { ...(defaults as Fields), ...row }
    const fallback = stricterFallback((defaults as Fields)['askFallback'] as AskFallback, of['askFallback'] as AskFallback)
    return `security ${String(of['security'])}, ask ${String(of['ask'])}, no approver connected: ${fallback}`
  }
  return [
    ok('modes', `default: ${textOf({})}`),
    ...rows.slice(0, MAX_NAMED).map(([agent, row]) => ok('modes', `${shownLine(agent)}: ${textOf(row)}`)),
    ...(rows.length > MAX_NAMED ? [ok('modes', `and ${counted(rows.length - MAX_NAMED, 'other')}`)] : []),
  ]
}

/** Rows without effect, such as patterns of a release in which every pattern was valid for every program. */
const rowFindings = (store: Fields): Finding[] =>
  ineffectiveRows(store, homeDirectory(), Date.now()).map(({ agent, row, why, remedy }) =>
    warn('approval store', shownLine(`${row} of ${agent} has no effect: ${why}`), shownLine(remedy)),
  )

const storeFindings = async (desk: ApprovalClient, path: string): Promise<Finding[]> => {
  try {
    const store = await desk.store()
    return [ok('approval store', `${path} is valid`), ...rowFindings(store), ...modeFindings(store)]
  } catch (error) {
    return [
      fail(
        'approval store',
        errorText(error),
        `fix ${path}, or move it away and restart the approval service; until then, all requests are denied`,
      ),
    ]
  }
}

const askedFindings = async (desk: ApprovalClient, { approvals, approvalsSocket }: DataPaths): Promise<Finding[]> => {
  try {
    const { questions, windows } = await desk.pending()
    const there = ok(TOPIC, `it answers at ${approvalsSocket}; open: ${counted(questions.length, 'approval request')}`)
    return [there, approversFinding(windows), ...(await storeFindings(desk, approvals))]
  } catch (error) {
    return [fail(TOPIC, errorText(error), LOG)]
  } finally {
    desk.close()
  }
}

/** Whether an approval service answers, who would be asked, whether its store is valid, its modes, and its pending requests. */
export const deskFindings = async (paths: DataPaths): Promise<Finding[]> => {
  let desk: ApprovalClient
  try {
    desk = await openDesk(paths, 'doctor')
  } catch (error) {
    if (isAppError(error, 'daemon_unreachable')) return [warn(TOPIC, `no approval service answers at ${paths.approvalsSocket}`, NO_DESK)]
    return [
      warn(
        TOPIC,
        `the server at ${paths.approvalsSocket} cannot be used: ${errorText(error)}`,
        'run this as the user of the approval service',
      ),
    ]
  }
  return askedFindings(desk, paths)
}
