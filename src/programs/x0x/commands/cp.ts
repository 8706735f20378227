import { systemClock } from '../../../base/clock.ts'
import { AppError, isAppError } from '../../../base/errors.ts'
import { optionParts } from '../../../cli/command.ts'
import { exitOfSignal } from '../../../cli/exit.ts'
import { COPY_FLEET_OPTIONS } from '../../../cli/files.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { LocalApi, selectPath } from '../../../clients/daemon.ts'
import { FileApi, type OnFileWaiting } from '../../../clients/file-api.ts'
import { SELECTED_HOSTS } from '../../../protocol/api-answers.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import type { CopyPlan } from '../copy/copy-job.ts'
import { runCopyFleet } from '../copy/copy-fleet.ts'
import { CopyProgress } from '../copy/copy-progress.ts'
import { CopyRun } from '../copy/copy-run.ts'
import { DownloadPlan } from '../copy/download-plan.ts'
import { type CopyOrder, copyOrderOf } from '../copy/places.ts'
import { UploadPlan } from '../copy/upload-plan.ts'

/** The same agent has the same ID under each of its names, so that another command can resume a copy. */
const agentIdOf = async (api: LocalApi, host: string, signal: AbortSignal): Promise<string> => {
  const { hosts } = await api.read({ method: 'GET', path: selectPath([host]), signal }, SELECTED_HOSTS)
  const [agent] = hosts
  if (agent === undefined) throw new AppError('unknown_agent')
  return agent.agent_id
}

const planOf = async (
  context: CliContext,
  line: CommandLine,
  order: CopyOrder,
  { api, signal, onWaiting }: { readonly api: LocalApi; readonly signal: AbortSignal; readonly onWaiting: OnFileWaiting },
): Promise<CopyPlan> => {
  const options = { recursive: line.has('recursive'), preserve: line.has('preserve') }
  const agentId = await agentIdOf(api, order.host, signal)
  const files = new FileApi({ api, onWaiting }, { agent: order.host })
  if (order.direction === 'upload')
    return new UploadPlan({ files, stdin: () => context.stdin }, order, { ...options, agentId }).make(signal)
  return new DownloadPlan({ files, stdout: context.stdout }, order, { ...options, agentId, hashes: context.json }).make(signal)
}

/** The destination as the user would type it. */
const placeText = ({ host, destination }: CopyOrder): string =>
  destination.kind === 'stream' ? '-' : destination.kind === 'local' ? destination.path : `${host}:${destination.path}`

/** Whether the progress line would mix with the content of the file. */
const isOnScreen = ({ stdout }: CliContext, { destination }: CopyOrder): boolean => destination.kind === 'stream' && stdout.isTTY === true

/** `x0x cp SOURCE... DESTINATION`. */
export const runCp = async (context: CliContext, line: CommandLine): Promise<number> => {
  const { instance, env } = context
  // Without the line about a daemon that does not answer, in whose place is the progress of the copy.
  const api = new LocalApi({ instance, url: line.value('api') ?? env['X0X_API'] ?? null, env })
  if (line.has('retry')) {
    const [first] = line.words
    if (first === undefined) return runCopyFleet({ context, api }, line, null)
    throw usageError(`--retry takes its files and hosts from the ledger; remove ${JSON.stringify(first)}`)
  }
  const fanout = COPY_FLEET_OPTIONS.some((option) => line.has(optionParts(option).name))
  const order = copyOrderOf(line.words, { recursive: line.has('recursive'), json: context.json, fanout })
  if (order.direction === 'upload' && order.isFanout) return runCopyFleet({ context, api }, line, order)
  return copyOnce(context, line, order, api)
}

/** Copies to or from one host. */
const copyOnce = async (context: CliContext, line: CommandLine, order: CopyOrder, api: LocalApi): Promise<number> => {
  const { env, stderr } = context
  const off = context.quiet || env['TERM'] === 'dumb' || isOnScreen(context, order)
  const { host } = order
  const progress = new CopyProgress({ stderr, clock: systemClock }, { off, quiet: context.quiet || context.json, host })
  const onWaiting: OnFileWaiting = (path, state) => progress.waits(path, state)
  const run = new CopyRun({ context, progress }, order)
  const ending = new AbortController()
  let interrupted: NodeJS.Signals | null = null
  const stopListening = context.onSignal((signal) => {
    interrupted ??= signal
    ending.abort(new AppError('conflict', 'interrupted'))
  })
  try {
    await run.copy(await planOf(context, line, order, { api, signal: ending.signal, onWaiting }), ending.signal)
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    // The destination or the agent was not reached.
    const place = placeText(order)
    if (interrupted === null) await run.report({ source: place, destination: place, error })
  } finally {
    progress.end()
    stopListening()
  }
  if (interrupted === null) return run.finish()
  await run.interrupted()
  return exitOfSignal(interrupted)
}
