import { systemClock } from '../../../base/clock.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { FanoutHostJson } from '../../../protocol/api/fanout.ts'
import type { CliContext } from '../context.ts'
import { statusAsExec } from '../failure.ts'
import { printJson, printNotice } from '../print.ts'
import { type FleetLine, type RetryOf, fleetLine, retryLine } from './fleet-line.ts'
import { FleetProgress } from './fleet-progress.ts'
import { type SourcedRequest, fleetRequest } from './fleet-request.ts'
import { FleetRun, fleetStatus } from './fleet-run.ts'
import { summaryLines } from './fleet-summary.ts'
import { DiffView, GroupView } from './group-view.ts'
import { LedgerState } from './ledger-state.ts'
import { type FleetView, JsonView, PrefixedView } from './line-views.ts'
import { ShownLines } from './lines.ts'
import { OutputStore, SpillFile } from './output-store.ts'

/** How a fan-out is shown. */
interface FanoutDisplay extends Pick<FleetLine, 'shape' | 'raw' | 'bounds' | 'retry'> {
  /** Whether `--timeout` was given. */
  readonly timed: boolean
}

/** Selects the view. `held` stores outputs for later, or null for a view that prints at once. */
const viewOf = (
  context: CliContext,
  { shape, raw }: FanoutDisplay,
  beside: FleetProgress,
): { view: FleetView; held: OutputStore | null } => {
  const lines = new ShownLines({ context, beside }, { raw })
  if (shape === 'prefix') return { view: new PrefixedView({ lines }), held: null }
  const held = new OutputStore({ file: new SpillFile() })
  if (shape === 'json') return { view: new JsonView({ context, held }), held }
  return { view: shape === 'group' ? new GroupView({ lines, held }) : new DiffView({ lines, held }), held }
}

/** The ledger has no output. */
const withoutOutput = (host: FanoutHostJson): object => ({
  ...host,
  stdout_b64: '',
  stderr_b64: '',
  output_cut: host.stdout_bytes_total + host.stderr_bytes_total > 0,
})

const NOTHING_TO_RETRY: Readonly<Record<RetryOf['which'], string>> = {
  certain: 'no command of this ledger certainly did not run',
  unknown: 'no command of this ledger is unknown',
  unsuccessful: 'each host has the whole copy',
}

/** The result of the ledger if no host has to be asked again. */
const nothingToAsk = async (context: CliContext, state: LedgerState, { file, which }: RetryOf): Promise<number> => {
  const ledger = state.ledger()
  const { argv } = state.head
  if (context.json) await printJson(context, { ...ledger, hosts: state.ends().map(withoutOutput) })
  else {
    const unknown = which === 'certain' && ledger.unknown > 0 ? `; where it may have run: ${retryLine(file, argv, { unknown: true })}` : ''
    await printNotice(context, `no host to retry: ${NOTHING_TO_RETRY[which]}${unknown}`)
    const facts = { argv, timed: false, own: null, elapsedMs: null, ledger: null }
    for (const line of summaryLines(ledger, state.ends(), facts)) await printNotice(context, line)
  }
  return fleetStatus(ledger)
}

/** Finds the hosts and the source; if a ledger has no host to ask again, its state. */
type RequestMaker = (signal: AbortSignal) => Promise<SourcedRequest | LedgerState>

/** Runs a fan-out that `make` describes. Returns the exit status, 255 if no host could be asked. */
export const runFanout = async (context: CliContext, line: FanoutDisplay, make: RequestMaker): Promise<number> =>
  statusAsExec(context, async () => follow(context, line, make))

const follow = async (context: CliContext, line: FanoutDisplay, make: RequestMaker): Promise<number> => {
  const closing = new AbortController()
  const progress = new FleetProgress(
    { stderr: context.stderr, clock: systemClock },
    { env: context.env, off: context.quiet || context.env['TERM'] === 'dumb' },
  )
  const { view, held } = viewOf(context, line, progress)
  // Created first, so that a signal while the ledger is written does not leave it without an end.
  const fleet = new FleetRun({ context, view, held, progress, closing }, { timed: line.timed, bounds: line.bounds })
  try {
    const made = await make(closing.signal)
    if (made instanceof LedgerState) return await nothingToAsk(context, made, line.retry!)
    return await fleet.run(made.request, made.source)
  } catch (error) {
    // A signal came before any host was asked.
    if (closing.signal.aborted && fleet.interruptedStatus !== null) return fleet.interruptedStatus
    throw error
  } finally {
    progress.end()
    fleet.close()
    await view.close()
  }
}

/** `x0x exec WHO... -- ARGV...` for many hosts. Returns the exit status; 255 if no host could be asked. */
export const runFleet = async (context: CliContext, commandLine: CommandLine): Promise<number> => {
  const line = fleetLine(commandLine)
  return runFanout(context, { ...line, timed: line.timeoutMs !== null }, async (signal) => fleetRequest(context, line, signal))
}
