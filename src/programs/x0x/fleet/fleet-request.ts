import { createHash } from 'node:crypto'
import { v7 as uuidv7 } from 'uuid'
import { AppError, isAppError } from '../../../base/errors.ts'
import { shellWords } from '../../../base/format.ts'
import { selectPath } from '../../../clients/daemon.ts'
import type { SelectedHosts } from '../../../protocol/api-answers.ts'
import { MAX_STDIN_SPOOL } from '../../../protocol/limits/wire.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { openStdin } from '../stdin-source.ts'
import { DaemonFanout, type FanoutSource, type FleetRequest } from './fanout-source.ts'
import { type FleetLine, type RetryOf, retryLine } from './fleet-line.ts'
import { LedgerFile } from './ledger-file.ts'
import { type RequestedHost, LEDGER_VERSION, LedgerState, isCopyCommand } from './ledger-state.ts'

/** The daemon's answer to which hosts the words mean. */
export const selectHosts = async <T>({ api }: CliContext, who: readonly string[]): Promise<T> =>
  api.json<T>({ method: 'GET', path: selectPath(who) })

/** The hosts that the words mean. */
export const selectedHosts = async (context: CliContext, who: readonly string[]): Promise<SelectedHosts['hosts']> =>
  (await selectHosts<SelectedHosts>(context, who)).hosts

/** Stdin is sent in one piece with the request. */
const tooLong = (): AppError =>
  new AppError('too_large', `stdin for a fan-out has more than ${MAX_STDIN_SPOOL} bytes`, {
    data: { next: 'For one host, a file can be larger: x0x exec HOST --stdin-file FILE -- COMMAND' },
  })

const stdinOf = async (context: CliContext, path: string, signal: AbortSignal): Promise<Buffer> => {
  const stdin = await openStdin(path, context.stdin, signal)
  signal.addEventListener('abort', () => stdin.destroy())
  const parts: Uint8Array[] = []
  let length = 0
  try {
    for await (const part of stdin.chunks()) {
      length += part.length
      if (length > MAX_STDIN_SPOOL) throw tooLong()
      parts.push(part)
    }
  } catch (error) {
    // The error of a pipe suggests what helps for a single host.
    throw isAppError(error, 'too_large') ? tooLong() : error
  } finally {
    stdin.destroy()
  }
  return Buffer.concat(parts)
}

const hashOf = (stdin: Buffer | null): string | null => (stdin === null ? null : createHash('sha256').update(stdin).digest('hex'))

/** The request without its hosts. */
const bodyOf = (line: FleetLine, argv: readonly string[], fanoutId: string, stdin: Buffer | null): object => ({
  argv,
  clamp: true,
  fanout_id: fanoutId,
  ...(stdin !== null && { stdin_b64: stdin.toString('base64') }),
  ...(line.timeoutMs !== null && { timeout_ms: line.timeoutMs }),
  ...(line.deadlineMs !== null && { deadline_ms: line.deadlineMs }),
  ...(line.parallel !== null && { parallel: line.parallel }),
  ...(line.canary !== null && { canary: line.canary }),
  ...(line.maxFailures !== null && { max_failures: line.maxFailures }),
  ...(line.session !== null && { session: line.session }),
})

/** Names the hosts by ID, because a name may change meanwhile and an operator proves each ID. `chosen` adds the run IDs. */
const whom = (hosts: readonly RequestedHost[], chosen: boolean): object => ({
  hosts: hosts.map(({ agent_id }) => agent_id),
  ...(chosen && { request_ids: Object.fromEntries(hosts.map(({ agent_id, request_id }) => [agent_id, request_id])) }),
})

/** The hosts with new run IDs, so that the ledger has them before any host is asked. */
const selected = async (context: CliContext, who: readonly string[]): Promise<RequestedHost[]> =>
  (await selectedHosts(context, who)).map(({ host, agent_id }) => ({ host, agent_id, request_id: uuidv7() }))

interface FirstRequest {
  readonly argv: readonly string[]
  readonly stdin: Buffer | null
  /** Path of a new ledger, or null. */
  readonly ledger: string | null
}

/** Selects the hosts, and writes them to a new ledger before any is asked. */
export const firstRequest = async (
  context: CliContext,
  who: readonly string[],
  { argv, stdin, ledger: path }: FirstRequest,
): Promise<FleetRequest> => {
  const fanoutId = uuidv7()
  const hosts = await selected(context, who)
  if (path === null) return { argv, fanoutId, hosts, ledger: null }
  const at = new Date().toISOString()
  const of = { stdin_bytes: stdin?.length ?? 0, stdin_sha256: hashOf(stdin), asked: hosts.length }
  const ledger = await LedgerFile.create(path, { version: LEDGER_VERSION, fanout_id: fanoutId, at, argv, ...of }, hosts)
  await assertWritten(ledger)
  return { argv, fanoutId, hosts, ledger }
}

const assertWritten = async (ledger: LedgerFile): Promise<void> => {
  if (ledger.failure === null) return
  await ledger.close()
  throw new AppError('internal', `cannot write the ledger, so no host was asked: ${ledger.failure}`)
}

/** Throws if the command differs from the ledger's, because one file must not have two commands. */
const assertSame = ({ head }: LedgerState, line: FleetLine, stdin: Buffer | null): void => {
  if (isCopyCommand(head.argv))
    throw usageError('the ledger is one of x0x cp', line.retry === null ? undefined : `Try: ${retryLine(line.retry.file, head.argv)}`)
  if (line.argv !== null && (line.argv.length !== head.argv.length || line.argv.some((word, at) => word !== head.argv[at])))
    throw usageError(`the ledger has another command: ${shellWords(head.argv)}`, 'Remove the command: --retry repeats that of the ledger')
  if (hashOf(stdin) === head.stdin_sha256) return
  if (head.stdin_sha256 === null) throw usageError('the command of the ledger had no stdin', 'Remove --stdin-file')
  const given = stdin === null ? 'but the command line has none' : 'but the command line has another one'
  throw usageError(`the command of the ledger had ${head.stdin_bytes} bytes of stdin, ${given}`, 'Use --stdin-file with the same file')
}

/** Continues a ledger that `check` accepts. Returns its state if no host has to be asked again. */
export const repeatedRequest = async (
  { file, which }: RetryOf,
  check: (state: LedgerState) => void | Promise<void>,
): Promise<FleetRequest | LedgerState> => {
  const ledger = await LedgerFile.resume(file)
  try {
    await check(ledger.state)
    const request = await askedAgain(ledger, which)
    if (request === null) await ledger.close()
    return request ?? ledger.state
  } catch (error) {
    await ledger.close()
    throw error
  }
}

/** Null if no host has to be asked again. */
const askedAgain = async (ledger: LedgerFile, which: RetryOf['which']): Promise<FleetRequest | null> => {
  const { state } = ledger
  const hosts = state.askedAgain(which, uuidv7)
  if (hosts.length === 0) return null
  const fanoutId = uuidv7()
  const asked = hosts.map(({ host, request_id }) => ({ host, request_id }))
  ledger.add({ type: 'retry', which, fanout_id: fanoutId, at: new Date().toISOString(), hosts: asked })
  await ledger.flush()
  await assertWritten(ledger)
  return { argv: state.head.argv, fanoutId, hosts, ledger }
}

/** A request, and what does its work. */
export interface SourcedRequest {
  readonly request: FleetRequest
  readonly source: FanoutSource
}

/** The request of a line; if a ledger has no host to ask again, its state. */
export const fleetRequest = async (context: CliContext, line: FleetLine, signal: AbortSignal): Promise<SourcedRequest | LedgerState> => {
  const stdin = line.stdinFile === null ? null : await stdinOf(context, line.stdinFile, signal)
  const { who, argv, ledger, retry } = line
  const request =
    retry === null
      ? await firstRequest(context, who, { argv: argv ?? [], stdin, ledger })
      : await repeatedRequest(retry, (state) => assertSame(state, line, stdin))
  if (request instanceof LedgerState) return request
  const body = { ...bodyOf(line, request.argv, request.fanoutId, stdin), ...whom(request.hosts, request.ledger !== null) }
  return { request, source: new DaemonFanout({ context }, { body }) }
}
