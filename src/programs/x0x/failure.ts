import { AppError, ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import type { CliIo } from './context.ts'
import { visibleJson } from '../../base/visible-text.ts'
import { problemText } from './print.ts'
import { write } from '../../supervision/program-output.ts'

/** A command line that makes no sense: exit status 2. */
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

interface Tried {
  readonly address?: unknown
  readonly reason?: unknown
  readonly error?: unknown
}

const triedText = (tried: unknown): string => {
  if (typeof tried === 'string') return tried
  const { address, reason, error } = (tried ?? {}) as Tried
  const why = typeof reason === 'string' ? reason : error
  return typeof why === 'string' ? `${String(address)}: ${why}` : String(address)
}

/** One line for each address that did not answer. */
const triedLines = (error: AppError): string[] => {
  const tried = error.code === 'peer_unreachable' && Array.isArray(error.data['addresses']) ? error.data['addresses'] : []
  return [...new Set(tried.map((item) => `  ${triedText(item)}`))]
}

const unreachableLines = (error: AppError): string[] => {
  const tried = triedLines(error)
  if (tried.length === 0)
    return ['no address of it is known; import its card (x0x contacts import LINK) or wait until a peer introduces it (x0x peers)']
  return [
    'tried:',
    ...tried,
    'does x0xd run there, and does a firewall let us in? who is connected here: x0x peers',
    'its addresses may be old: there x0x card, here x0x contacts import LINK',
  ]
}

/** What to do next, for people; empty where the message says it all. */
const nextLines = (error: AppError): string[] => {
  const { next } = error.data
  // Empty: the message says it already.
  if (typeof next === 'string') return next === '' ? [] : next.split('\n')
  switch (error.code) {
    case 'daemon_unreachable':
      return ['Try: x0xd --doctor']
    case 'unauthorized':
      return ['the token is api-token in the data directory of that daemon; check --name, --data-dir, --api and X0X_API_TOKEN']
    case 'ambiguous_agent':
      return [
        'it could be:',
        ...(Array.isArray(error.data['candidates']) ? error.data['candidates'] : []).map((item) => `  ${candidateText(item)}`),
      ]
    case 'unknown_agent':
      return ['an agent is a contact (x0x contacts list), a peer (x0x peers), or an id: all 64 characters or at least its first 6']
    case 'operator_proof_required':
      return ['run this as the user of the daemon: it needs operator.key in the data directory']
    case 'peer_unreachable':
      return unreachableLines(error)
    case 'peer_rejected':
      return [
        'the other side may have blocked or not pinned this agent or machine; there: x0x trust evaluate AGENT MACHINE (from x0x id here)',
      ]
    default:
      return []
  }
}

/** What happened, then what to do next. */
export const failureLines = (error: unknown): string[] => {
  // The message for programs names every address as well.
  const listed = isAppError(error) && triedLines(error).length > 0
  const said = listed ? [ERROR_TABLE[error.code].text] : errorText(error).split('\n')
  return isAppError(error) ? [...said, ...nextLines(error)] : said
}

export const exitStatusOf = (error: unknown): number => (isAppError(error) ? ERROR_TABLE[error.code].exit : ERROR_TABLE.internal.exit)

const failureJson = (error: unknown): object => ({
  ok: false,
  error: isAppError(error) ? error.code : 'internal',
  message: errorText(error),
  ...(isAppError(error) && Object.keys(error.data).length > 0 ? { data: error.data } : {}),
})

/** Tells people on stderr and, with `--json`, programs on stdout. */
export const reportFailure = async (io: Pick<CliIo, 'stdout' | 'stderr'>, json: boolean, error: unknown): Promise<void> => {
  if (json) await write(io.stdout, `${visibleJson(JSON.stringify(failureJson(error)))}\n`)
  await write(io.stderr, problemText(failureLines(error)))
}

/** Does one piece of work and answers the exit status, also of its failure. */
export const reported = async (io: Pick<CliIo, 'stdout' | 'stderr'>, json: boolean, work: () => Promise<number>): Promise<number> => {
  try {
    return await work()
  } catch (error) {
    await reportFailure(io, json, error)
    return exitStatusOf(error)
  }
}
