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
import type { FleetLine, RetryOf } from './fleet-line.ts'
import { LedgerFile } from './ledger-file.ts'
import { type RequestedHost, LEDGER_VERSION, type LedgerState } from './ledger-state.ts'

/** The daemon's answer to which hosts the words mean. */
export const selectHosts = async <T>({ api }: CliContext, who: readonly string[]): Promise<T> =>
  api.json<T>({ method: 'GET', path: selectPath(who) })

/** The hosts that the words mean. */
export const selectedHosts = async (context: CliContext, who: readonly string[]): Promise<SelectedHosts['hosts']> =>
  (await selectHosts<SelectedHosts>(context, who)).hosts

/** The request, its hosts, and its ledger. */
export interface FleetRequest {
  readonly argv: readonly string[]
  readonly fanoutId: string
  /** Requested names by agent ID. Hosts keep them, even if a contact is renamed meanwhile. */
  readonly names: ReadonlyMap<string, string>
  /** The body of `POST /exec/fanout`. */
  readonly body: object
  readonly ledger: LedgerFile | null
}

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

const namesOf = (hosts: readonly RequestedHost[]): FleetRequest['names'] => new Map(hosts.map(({ host, agent_id }) => [agent_id, host]))

/** The hosts with new run IDs, so that the ledger has them before any host is asked. */
const selected = async (context: CliContext, who: readonly string[]): Promise<RequestedHost[]> =>
  (await selectedHosts(context, who)).map(({ host, agent_id }) => ({ host, agent_id, request_id: uuidv7() }))

const first = async (context: CliContext, line: FleetLine, stdin: Buffer | null): Promise<FleetRequest> => {
  const [argv, fanoutId] = [line.argv ?? [], uuidv7()]
  const hosts = await selected(context, line.who)
  const body = { ...bodyOf(line, argv, fanoutId, stdin), ...whom(hosts, line.ledger !== null) }
  const names = namesOf(hosts)
  if (line.ledger === null) return { argv, fanoutId, names, body, ledger: null }
  const at = new Date().toISOString()
  const of = { stdin_bytes: stdin?.length ?? 0, stdin_sha256: hashOf(stdin), asked: hosts.length }
  const ledger = await LedgerFile.create(line.ledger, { version: LEDGER_VERSION, fanout_id: fanoutId, at, argv, ...of }, hosts)
  await assertWritten(ledger)
  return { argv, fanoutId, names, body, ledger }
}

const assertWritten = async (ledger: LedgerFile): Promise<void> => {
  if (ledger.failure === null) return
  await ledger.close()
  throw new AppError('internal', `cannot write the ledger, so no host was asked: ${ledger.failure}`)
}

/** Throws if the command differs from the ledger's, because one file must not have two commands. */
const assertSame = ({ head }: LedgerState, line: FleetLine, stdin: Buffer | null): void => {
  if (line.argv !== null && (line.argv.length !== head.argv.length || line.argv.some((word, at) => word !== head.argv[at])))
    throw usageError(`the ledger has another command: ${shellWords(head.argv)}`, 'Remove the command: --retry repeats that of the ledger')
  if (hashOf(stdin) === head.stdin_sha256) return
  if (head.stdin_sha256 === null) throw usageError('the command of the ledger had no stdin', 'Remove --stdin-file')
  const given = stdin === null ? 'but the command line has none' : 'but the command line has another one'
  throw usageError(`the command of the ledger had ${head.stdin_bytes} bytes of stdin, ${given}`, 'Use --stdin-file with the same file')
}

const retried = async (line: FleetLine, { file, which }: RetryOf, stdin: Buffer | null): Promise<FleetRequest | LedgerState> => {
  const ledger = await LedgerFile.resume(file)
  try {
    const request = await askedAgain(ledger, which, line, stdin)
    if (request === null) await ledger.close()
    return request ?? ledger.state
  } catch (error) {
    await ledger.close()
    throw error
  }
}

/** Null if no host has to be asked again. */
const askedAgain = async (
  ledger: LedgerFile,
  which: RetryOf['which'],
  line: FleetLine,
  stdin: Buffer | null,
): Promise<FleetRequest | null> => {
  const { state } = ledger
  assertSame(state, line, stdin)
  const hosts = state.askedAgain(which, uuidv7)
  if (hosts.length === 0) return null
  const { argv } = state.head
  const fanoutId = uuidv7()
  const asked = hosts.map(({ host, request_id }) => ({ host, request_id }))
  ledger.add({ type: 'retry', which, fanout_id: fanoutId, at: new Date().toISOString(), hosts: asked })
  await ledger.flush()
  await assertWritten(ledger)
  const body = { ...bodyOf(line, argv, fanoutId, stdin), ...whom(hosts, true) }
  return { argv, fanoutId, names: namesOf(hosts), body, ledger }
}

/** The request of a line; if a ledger has no host to ask again, its state. */
export const fleetRequest = async (context: CliContext, line: FleetLine, signal: AbortSignal): Promise<FleetRequest | LedgerState> => {
  const stdin = line.stdinFile === null ? null : await stdinOf(context, line.stdinFile, signal)
  return line.retry === null ? first(context, line, stdin) : retried(line, line.retry, stdin)
}
