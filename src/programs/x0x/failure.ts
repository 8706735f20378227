import { AppError, ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import { shellWord, shellWords } from '../../base/format.ts'
import { pasteable } from '../../base/hint.ts'
import { shownLine, visibleJson } from '../../base/visible-text.ts'
import { write } from '../../cli/output.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { type Tried, rejectionText, triedText } from '../../protocol/denial-text.ts'
import type { CliContext } from './context.ts'
import { EXIT_NOT_RUN } from './outcome.ts'

/** The error for an invalid command line, with exit status 2. */
export const usageError = (message: string, next?: string): AppError =>
  new AppError('bad_request', message, next === undefined ? {} : { data: { next } })

interface Candidate {
  readonly name?: unknown
  readonly agent_id?: unknown
}

const candidateText = (candidate: unknown): string => {
  if (typeof candidate === 'string') return candidate
  const { name, agent_id } = (candidate ?? {}) as Candidate
  return [name, agent_id].filter((part) => typeof part === 'string' && part !== '').join('  ')
}

const addressesOf = (error: AppError): readonly unknown[] =>
  error.code === 'peer_unreachable' && Array.isArray(error.data['addresses']) ? error.data['addresses'] : []

/** One line for each address that failed. */
const triedLines = (error: AppError): string[] => [...new Set(addressesOf(error).map((item) => `  ${triedText(item)}`))]

/** The target as the user typed it. */
const hostOf = (error: AppError): string => (typeof error.data['agent'] === 'string' ? error.data['agent'] : 'the agent')

const unreachableLines = (error: AppError): string[] => {
  const ports = new Set(addressesOf(error).flatMap((item) => /\/tcp\/([0-9]+)/.exec(String((item as Tried | null)?.address))?.[1] ?? []))
  const open = ports.size === 0 ? '' : ` and port ${[...ports].join(', ')} is open`
  const lines = [`Try: on ${hostOf(error)}, check that x0xd is running${open}`]
  if (ports.size > 0) return [...lines, 'Try: if its addresses are old, import its card again (x0x contacts import LINK)']
  return ['  none of its addresses is known', 'Try: x0x contacts import LINK   (LINK: x0x card on its machine)', ...lines]
}

/** Adds the target's name as the user typed it. */
export const withAgent = (error: unknown, agent: string): unknown =>
  isAppError(error, 'peer_unreachable') || isAppError(error, 'peer_rejected')
    ? new AppError(error.code, error.message, { cause: error, data: { ...error.data, agent } })
    : error

/** The text for a link that this side refused. */
const rejectedHere = (error: AppError): { what: string; next: string } | null => {
  const { decision, agent, machine_id } = error.data
  if (error.code !== 'peer_rejected' || typeof decision !== 'string' || typeof agent !== 'string') return null
  return rejectionText(decision, agent, agent, String(machine_id))
}

/** The next steps for the user. */
const nextLines = (error: AppError): string[] => {
  const rejected = rejectedHere(error)
  if (rejected !== null) return [rejected.next]
  const { next } = error.data
  // Empty if the message already says it.
  if (typeof next === 'string') return next === '' ? [] : next.split('\n')
  switch (error.code) {
    case 'daemon_unreachable':
      return ['Try: x0xd --doctor']
    case 'unauthorized':
      return ['Try: set X0X_API_TOKEN to the content of DATA_DIR/api-token']
    case 'ambiguous_agent':
      return [
        'It could be:',
        ...(Array.isArray(error.data['candidates']) ? error.data['candidates'] : []).map((item) => `  ${candidateText(item)}`),
      ]
    case 'unknown_agent':
      return ['Use a contact name (x0x contacts list) or at least 6 characters of an agent ID (x0x peers)']
    case 'operator_proof_required':
      return ['Try: run this as the user of the daemon, who can read operator.key in the data directory']
    case 'peer_unreachable':
      return unreachableLines(error)
    case 'peer_rejected':
      return ['Try, on the target, with the IDs of x0x id: x0x trust evaluate AGENT MACHINE']
    default:
      return []
  }
}

/** The failure, followed by the next steps. */
export const failureLines = (error: unknown): string[] => {
  const rejected = isAppError(error) ? rejectedHere(error) : null
  // The message for programs also has every address.
  const tried = isAppError(error) ? triedLines(error) : []
  const said =
    rejected !== null
      ? [rejected.what]
      : tried.length > 0
        ? [`cannot connect to ${hostOf(error as AppError)} (peer_unreachable)`, ...tried]
        : errorText(error).split('\n')
  return isAppError(error) ? [...said, ...nextLines(error)] : said
}

export const exitStatusOf = (error: unknown): number => (isAppError(error) ? ERROR_TABLE[error.code].exit : ERROR_TABLE.internal.exit)

const failureJson = (error: unknown): object => ({
  ok: false,
  error: isAppError(error) ? error.code : 'internal',
  message: errorText(error),
  ...(isAppError(error) && Object.keys(error.data).length > 0 ? { data: error.data } : {}),
})

/** Prints lines on standard error, with the given options in hints. */
export const printProblem = async ({ stderr, given }: Pick<CliContext, 'stderr' | 'given'>, lines: readonly string[]): Promise<boolean> =>
  write(stderr, lines.map((line, at) => `${at === 0 ? 'x0x: ' : '     '}${shownLine(pasteable(line, given))}\n`).join(''))

/** Prints the failure on stderr and, with `--json`, also on stdout. */
export const reportFailure = async (
  { json, ...context }: Pick<CliContext, 'stdout' | 'stderr' | 'given' | 'json'>,
  error: unknown,
): Promise<void> => {
  if (json) await write(context.stdout, `${visibleJson(JSON.stringify(failureJson(error)))}\n`)
  await printProblem(context, failureLines(error))
}

const exampleLine = ([host = 'bob', ...command]: readonly string[]): string =>
  `Try: x0x exec ${shellWord(host)} -- ${command.length === 0 ? 'uptime' : shellWords(command)}`

/** The command for another host, after `--`; `own` words come before it. */
export const carriedCommand = ({ command, words, behindDashes }: CommandLine, own: number): readonly string[] => {
  if (behindDashes === null || behindDashes.length === 0)
    throw usageError('no command given. Put it after "--"', command === 'exec' ? exampleLine(words) : undefined)
  if (words.length > own)
    throw usageError(`${JSON.stringify(words[own])} is before "--", so it is not part of the command`, 'Put the whole command after "--"')
  return behindDashes
}

/**
 * Runs work whose result is the exit status of a command. Failures become 255, because any other status may be the command's. Throws
 * `bad_request`.
 */
export const statusAsExec = async (context: CliContext, work: () => Promise<number>): Promise<number> => {
  try {
    return await work()
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    await reportFailure(context, error)
    return EXIT_NOT_RUN
  }
}
