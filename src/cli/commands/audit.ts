import { AppError } from '../../base/errors.ts'
import { tailJournal } from '../../audit/tail.ts'
import { verifyJournal } from '../../audit/verify.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { painter, printJson, printLine, shellWords, write } from '../print.ts'
import { shownLine } from '../terminal-text.ts'

/** The journal that the running daemon writes. */
const runningJournal = async (context: CliContext): Promise<string> => {
  const { journal } = await context.api.json<{ journal?: { path?: string | null } | null }>({ method: 'GET', path: '/diagnostics/exec' })
  if (typeof journal?.path === 'string') return journal.path
  throw new AppError('not_found', 'this daemon keeps no journal: exec is not configured', {
    data: { next: 'name the file: x0x audit tail FILE' },
  })
}

export interface TailOptions {
  readonly file: string | null
  /** As typed. */
  readonly lines: string
  readonly follow: boolean
}

interface TailLine {
  readonly ts?: unknown
  readonly event?: unknown
  readonly request_id?: unknown
  readonly argv?: unknown
  readonly [key: string]: unknown
}

/** Fields that say where a line stands in its chain, not what happened. */
const CHAIN_FIELDS = new Set(['ts', 'event', 'chain', 'n', 'prev', 'request_id', 'argv'])

const short = (value: unknown): string =>
  typeof value === 'string' && /^[0-9a-f]{64}$/.test(value) ? value.slice(0, 12) : JSON.stringify(value)

const rendered = (text: string): string => {
  let line: TailLine
  try {
    line = JSON.parse(text) as TailLine
  } catch {
    return shownLine(text)
  }
  const rest = Object.entries(line).filter(([key, value]) => !CHAIN_FIELDS.has(key) && value !== null)
  const argv = Array.isArray(line.argv) ? [shellWords(line.argv.map(String))] : []
  const parts = [
    String(line.ts),
    String(line.event).padEnd(7),
    String(line.request_id),
    ...argv,
    ...rest.map(([key, value]) => `${key}=${short(value)}`),
  ]
  return shownLine(parts.join('  '))
}

/** `x0x audit tail`. */
export const runAuditTail = async (context: CliContext, options: TailOptions): Promise<number> => {
  if (!/^[0-9]{1,7}$/.test(options.lines)) throw usageError(`--lines: ${JSON.stringify(options.lines)} is not a count`)
  const path = options.file ?? (await runningJournal(context))
  const ending = new AbortController()
  const stop = context.onSignal(() => ending.abort())
  const gone = (): void => ending.abort()
  context.stdout.on('error', gone)
  try {
    for await (const line of tailJournal(path, { lines: Number(options.lines), follow: options.follow }, ending.signal)) {
      if (!(await write(context.stdout, `${context.json ? line : rendered(line)}\n`))) break
    }
    return 0
  } finally {
    stop()
    ending.abort()
    context.stdout.off('error', gone)
  }
}

/** `x0x audit verify`: 0 when whole and unaltered, 1 when not. */
export const runAuditVerify = async (context: CliContext, files: readonly string[]): Promise<number> => {
  const paths = files.length > 0 ? files : [await runningJournal(context)]
  const report = await verifyJournal(paths)
  if (context.json) {
    await printJson(context, report)
    return report.ok ? 0 : 1
  }
  const paint = painter(context.stdout, context.env)
  for (const problem of report.problems)
    await printLine(context, `${paint('red', 'problem')}  ${shownLine(typeof problem === 'string' ? problem : JSON.stringify(problem))}`)
  const counts = `${report.lines} lines, ${report.chains} ${report.chains === 1 ? 'chain' : 'chains'}`
  await printLine(
    context,
    report.ok ? `${paint('green', 'ok')}       ${counts}, whole and unaltered` : `${paint('red', 'altered')}  ${counts}`,
  )
  return report.ok ? 0 : 1
}
