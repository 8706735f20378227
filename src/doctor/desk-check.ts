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

const TOPIC = 'desk'
const NO_DESK = 'start x0xd --init, or x0x desk where no daemon runs: until then what runs on this host, or must be asked, is denied'
const LOG = 'look at the log of x0xd or x0x desk'

/** Limit on agents with a line of their own. */
const MAX_NAMED = 32

const humansFinding = (windows: number): Finding =>
  windows === 0
    ? ok('humans', 'nobody watches now, so what must be asked is denied at once: x0x approvals watch, or the page of x0x ui')
    : ok('humans', `${counted(windows, 'window')} watched now; each shows every question, and the first answer counts`)

/** The default modes of the store, and those of each agent with a row. */
const modeFindings = ({ defaults, agents }: Fields): Finding[] => {
  const rows = Object.entries(agents as Readonly<Record<string, Fields>>)
  const textOf = (row: Fields): string => {
    const of = { ...(defaults as Fields), ...row }
    const fallback = stricterFallback((defaults as Fields)['askFallback'] as AskFallback, of['askFallback'] as AskFallback)
    return `security ${String(of['security'])}, ask ${String(of['ask'])}, no approver connected: ${fallback}`
  }
  return [
    ok('modes', `of everybody: ${textOf({})}`),
    ...rows.slice(0, MAX_NAMED).map(([agent, row]) => ok('modes', `of ${shownLine(agent)}: ${textOf(row)}`)),
    ...(rows.length > MAX_NAMED ? [ok('modes', `and of ${counted(rows.length - MAX_NAMED, 'other')}`)] : []),
  ]
}

/** Rows without effect, such as patterns of a release in which every pattern was valid for every program. */
const rowFindings = (store: Fields): Finding[] =>
  ineffectiveRows(store, homeDirectory(), Date.now()).map(({ agent, row, why, remedy }) =>
    warn('store', shownLine(`${row} of ${agent} does not count: ${why}`), shownLine(remedy)),
  )

const storeFindings = async (desk: ApprovalClient, path: string): Promise<Finding[]> => {
  try {
    const store = await desk.store()
    return [ok('store', `${path} is sound`), ...rowFindings(store), ...modeFindings(store)]
  } catch (error) {
    return [fail('store', errorText(error), `mend ${path}, or move it away and start the desk again; until then it denies everything`)]
  }
}

const askedFindings = async (desk: ApprovalClient, { approvals, approvalsSocket }: DataPaths): Promise<Finding[]> => {
  try {
    const { questions, windows } = await desk.pending()
    const there = ok(TOPIC, `one answers at ${approvalsSocket}; waiting now: ${counted(questions.length, 'question')}`)
    return [there, humansFinding(windows), ...(await storeFindings(desk, approvals))]
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
    if (isAppError(error, 'daemon_unreachable')) return [warn(TOPIC, `none answers at ${paths.approvalsSocket}`, NO_DESK)]
    return [warn(TOPIC, `what answers at ${paths.approvalsSocket} cannot be asked: ${errorText(error)}`, 'look as the user of the desk')]
  }
  return askedFindings(desk, paths)
}
