import { stat } from 'node:fs/promises'
import { isAbsolute } from 'node:path'
import { AppError } from '../../../base/errors.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { LocalApi } from '../../../clients/daemon.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { runFanout } from '../fleet/fleet-command.ts'
import { fleetLimits, namedFile, retryLine } from '../fleet/fleet-line.ts'
import { type SourcedRequest, firstRequest, repeatedRequest } from '../fleet/fleet-request.ts'
import { COPY_WORD, LedgerState, isCopyCommand } from '../fleet/ledger-state.ts'
import { CopyFanout } from './copy-fanout.ts'
import { type CopyOptions, atPath } from './copy-job.ts'
import { type UploadOrder, copyOrderOf } from './places.ts'

/** Maximum number of hosts at once. Each has up to four connections to the daemon. */
const MAX_COPY_PARALLEL = 64

/** What is copied, without the hosts. */
export interface FleetCopy {
  readonly order: Pick<UploadOrder, 'sources' | 'destination'>
  readonly options: CopyOptions
}

const FLAGS = ['recursive', 'preserve'] as const

/** The command in a ledger. Its sources are absolute, so that a retry finds them from any directory. */
export const copyCommand = ({ order, options }: FleetCopy, directory: string): string[] => {
  const { sources, destination } = order
  // A path such as `.` keeps its last part, which decides the name of the copy.
  const paths = sources.flatMap((source) =>
    source.kind === 'stream' ? [] : [isAbsolute(source.path) ? source.path : `${directory}/${source.path}`],
  )
  const slash = destination.slash && destination.path !== '/' ? '/' : ''
  return [COPY_WORD, ...FLAGS.filter((flag) => options[flag]), '--', ...paths, `${destination.path}${slash}`]
}

/** Reverses `copyCommand`. Throws `bad_request` for any other command. */
export const readCopyCommand = (argv: readonly string[]): FleetCopy => {
  const dashes = argv.indexOf('--')
  const flags = argv.slice(1, dashes)
  if (!isCopyCommand(argv) || dashes < 1 || !flags.every((flag) => FLAGS.some((known) => known === flag)))
    throw usageError('the ledger is not one of this release of x0x cp')
  const [paths, path = ''] = [argv.slice(dashes + 1, -1), argv.at(-1)]
  const options = { recursive: flags.includes('recursive'), preserve: flags.includes('preserve') }
  const order = copyOrderOf([...paths, `ledger:${path}`], { recursive: options.recursive, json: false, fanout: true })
  if (order.direction !== 'upload') throw usageError('the ledger has no sources on this machine')
  return { order, options }
}

/** Throws for a source that no host can get, before any is asked. */
const checkSources = async ({ order, options }: FleetCopy): Promise<void> => {
  for (const source of order.sources) {
    if (source.kind === 'stream') continue
    const info = await atPath(source.path, async () => stat(source.path))
    if (info.isDirectory() && !options.recursive)
      throw new AppError('file_error', `${source.path}: is a directory (EISDIR)`, { data: { next: 'Try: x0x cp -r' } })
    if (!info.isDirectory() && !info.isFile()) throw new AppError('file_error', `${source.path}: is not a regular file`)
  }
}

const checkRetried = async ({ head: { argv } }: LedgerState, file: string): Promise<void> => {
  if (!isCopyCommand(argv)) throw usageError('the ledger is not one of x0x cp', `Try: ${retryLine(file, argv)}`)
  await checkSources(readCopyCommand(argv))
}

/** `x0x cp` to several hosts. `order` is null with `--retry`. Returns the exit status of a fan-out. */
export const runCopyFleet = async (
  { context, api }: { readonly context: CliContext; readonly api: LocalApi },
  line: CommandLine,
  order: UploadOrder | null,
): Promise<number> => {
  const limits = fleetLimits(line, MAX_COPY_PARALLEL)
  const file = namedFile(line, 'retry')
  const retry = file === null ? null : ({ file, which: 'unsuccessful' } as const)
  const make = async (): Promise<SourcedRequest | LedgerState> => {
    if (order === null) {
      const request = await repeatedRequest(retry!, async (state) => checkRetried(state, retry!.file))
      if (request instanceof LedgerState) return request
      return { request, source: new CopyFanout({ context, api }, { ...readCopyCommand(request.argv), limits }) }
    }
    const copy = { order, options: { recursive: line.has('recursive'), preserve: line.has('preserve') } }
    await checkSources(copy)
    const asked = { argv: copyCommand(copy, process.cwd()), stdin: null, ledger: limits.ledger }
    const request = await firstRequest(context, [order.host], asked)
    return { request, source: new CopyFanout({ context, api }, { ...copy, limits }) }
  }
  const display = { shape: context.json ? 'json' : 'prefix', raw: false, timed: false, bounds: limits.bounds, retry } as const
  return runFanout(context, display, make)
}
