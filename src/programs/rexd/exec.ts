import { readFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { errnoOf, errorText, textWithNext } from '../../base/errors.ts'
import { unreadable } from '../../base/files.ts'
import { assertOwnSocket } from '../../base/unix-sockets.ts'
import { shownLine } from '../../base/visible-text.ts'
import { exitOfSignal } from '../../cli/exit.ts'
import { type CommandLine, millisecondsOf } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { REXD_EXEC } from '../../cli/rexd.ts'
import { withoutStdin } from '../../cli/unsent-stdin.ts'
import { DEFAULT_REXD_CONFIG } from '../../clients/paths.ts'
import { ASKS, HOSTS, SECURITIES } from '../../protocol/desk/approval-request.ts'
import { leftBehindText } from '../../protocol/reasons.ts'
import { stdio } from '../../sdk/byte-transport.ts'
import { connect } from '../../sdk/client.ts'
import type { PlaceOptions } from '../../sdk/commands.ts'
import type { ConnectionState } from '../../sdk/connection.ts'
import { RexdDisconnected, RexdError } from '../../sdk/errors.ts'
import { present } from '../../sdk/fields.ts'
import type { RemoteProcess, RemoteTerminal } from '../../sdk/remote-process.ts'
import type { RexdSession } from '../../sdk/session.ts'
import type { TransportFactory } from '../../sdk/transport.ts'
import { ownProgram, programArguments } from '../../supervision/own-process.ts'
import { EXIT_FAILED, Interrupts } from './exec-interrupts.ts'

/** The failure, and any next step from the server. Foreign controls are escaped, and no line imitates a line of rexd. */
export const failureText = (error: unknown): string => {
  const next = error instanceof RexdError ? error.data['next'] : null
  const lines = [errorText(error), ...(typeof next === 'string' && next !== '' ? [next] : [])].flatMap((text) => text.split('\n'))
  return lines.map((line, at) => `${at === 0 ? 'rexd: ' : '      '}${shownLine(line)}\n`).join('')
}

/** A command to run through a rexd, and how to reach that. */
export interface RexdExecFlags {
  /** Null means that a rexd of this host is started, unless there is a `url`. */
  readonly ssh: string | null
  readonly url: string | null
  readonly tokenFile: string | null
  readonly config: string
  readonly target: string | null
  readonly cwd: string | null
  /** Host and approvers of the command. */
  readonly place: PlaceOptions
  /** Milliseconds, or null for the server's default. */
  readonly timeoutMs: number | null
  readonly stdin: boolean
  readonly tty: boolean
  readonly argv: readonly string[]
}

const usage = (text: string) => badFlags(text, REXD_EXEC.name)

const seconds = (text: string | null): number | null => {
  if (text === null) return null
  const ms = millisecondsOf(text)
  if (ms === null) throw usage(`--timeout must be a positive number of seconds, not ${JSON.stringify(text)}`)
  return ms
}

const oneOf = <T extends string>(flag: string, text: string | null, choices: readonly T[]): T | undefined => {
  const found = choices.find((choice) => choice === text)
  if (text === null || found !== undefined) return found
  throw usage(`--${flag}: ${JSON.stringify(text)} is not one of ${choices.join(', ')}`)
}

/** Throws `bad_config` with the wrong flag. */
export const rexdExecFlags = (line: CommandLine): RexdExecFlags => {
  if (line.has('url') !== line.has('token-file')) throw usage('--url and --token-file belong together')
  return {
    ssh: line.value('ssh'),
    url: line.value('url'),
    tokenFile: line.value('token-file'),
    config: line.value('config') ?? DEFAULT_REXD_CONFIG,
    target: line.value('target'),
    cwd: line.value('cwd'),
    place: present<PlaceOptions>({
      host: oneOf('host', line.value('host'), HOSTS),
      node: line.value('node') ?? undefined,
      security: oneOf('security', line.value('security'), SECURITIES),
      ask: oneOf('ask', line.value('ask'), ASKS),
    }),
    timeoutMs: seconds(line.value('timeout')),
    stdin: line.has('stdin'),
    tty: line.has('tty'),
    argv: line.words,
  }
}

/** The status that a shell reports for a program whose output has no reader. */
const EXIT_NOT_READ = exitOfSignal('SIGPIPE')

/** Limit on typed bytes in transit. */
const MAX_TYPED = 64 * 1024

const CLIENT_NAME = 'rexd exec'

/** Prefix of the URL of a local socket. */
const UNIX = 'unix:'

const readToken = async (file: string): Promise<string> => {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new Error(textWithNext(unreadable('bad_config', file, error, `--token-file: ${file}`)), { cause: error })
  })
  const token = text.trim()
  // Any other character is invalid in a header value (RFC 9110, 5.5).
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Error(`--token-file: ${file} holds no token; take a copy of the server's token_file`)
  return token
}

const transportOf = async ({ ssh, url, tokenFile, config }: RexdExecFlags): Promise<TransportFactory> => {
  if (url !== null && tokenFile !== null) {
    // The WebSocket client is not loaded for standard input and output.
    if (url.startsWith(UNIX)) await assertOwnSocket(url.slice(UNIX.length))
    const { webSocket } = await import('../../sdk/web-socket.ts')
    return webSocket({ url, token: async () => readToken(tokenFile) })
  }
  if (ssh !== null) return stdio({ command: ['ssh', '-T', '--', ssh, 'rexd', '--stdio'] })
  const program = ownProgram('rexd')
  return stdio({ command: [process.execPath, ...programArguments(program), '--stdio', '--config', config], detached: true })
}

/** Resolves when the stream has taken the bytes. */
const write = async (to: NodeJS.WriteStream, bytes: Uint8Array): Promise<void> =>
  new Promise((resolve, reject) => {
    to.write(bytes, (error) => (error ? reject(error) : resolve()))
  })

/** Returns the number of bytes. */
const copyOutput = async (program: RemoteProcess | RemoteTerminal): Promise<number> => {
  let copied = 0
  const copy = async (to: NodeJS.WriteStream, data: Uint8Array): Promise<void> => {
    await write(to, data)
    copied += data.length
  }
  if ('stdout' in program)
    for await (const { stream, data } of program) await copy(stream === 'stdout' ? process.stdout : process.stderr, data)
  else for await (const data of program) await copy(process.stdout, data)
  return copied
}

const onConnection = (state: ConnectionState, interrupts: Interrupts, { tty }: RexdExecFlags): void => {
  interrupts.connection(state)
  // Reading continues, so that Ctrl-C is seen after any amount of typed input.
  if (tty && process.stdin.isTTY && !state.connected) process.stdin.resume()
}

const onPipes = async (
  session: RexdSession,
  { argv, cwd, timeoutMs, stdin, target, place }: RexdExecFlags,
  interrupts: Interrupts,
): Promise<RemoteProcess> => {
  const options = {
    ...place,
    signal: interrupts.unbegun,
    onWaiting: interrupts.waiting,
    ...(cwd === null ? {} : { cwd }),
    ...(timeoutMs === null ? {} : { timeoutMs }),
    // The mesh needs all of stdin with the request.
    ...(stdin ? { stdin: target === null ? process.stdin : Buffer.concat(await process.stdin.toArray()) } : {}),
  }
  return session.exec(argv, options)
}

const sizeOf = ({ columns, rows }: { columns?: number; rows?: number }): { cols: number; rows: number } => ({
  // A terminal without a size reports 0.
  cols: columns || 80,
  rows: rows || 24,
})

/** Connects this terminal to the remote one, with the same size. */
const onTerminal = async (
  session: RexdSession,
  { argv, cwd, timeoutMs, place }: RexdExecFlags,
  interrupts: Interrupts,
): Promise<RemoteTerminal> => {
  const options = {
    ...place,
    signal: interrupts.unbegun,
    onWaiting: interrupts.waiting,
    ...sizeOf(process.stdout),
    ...(cwd === null ? {} : { cwd }),
    ...(timeoutMs === null ? {} : { timeoutMs }),
  }
  const terminal = await session.openTerminal(argv, options)
  process.stdout.on('resize', () => void terminal.resize(sizeOf(process.stdout)).catch(() => undefined))
  if (process.stdin.isTTY) process.stdin.setRawMode(true)
  let untaken = 0
  process.stdin.on('data', (bytes: Buffer) => {
    if (process.stdin.isTTY) interrupts.typed(bytes)
    untaken += bytes.length
    // Pausing leaves input that the program does not read with the terminal.
    if (untaken >= MAX_TYPED) process.stdin.pause()
    const settled = (): void => {
      untaken -= bytes.length
      process.stdin.resume()
    }
    terminal.write(bytes).then(settled, settled)
  })
  return terminal
}

/** A sent request without an answer may have been performed. */
const unknownStart = (error: unknown): never => {
  if (!(error instanceof RexdDisconnected) || !error.sent) throw error
  throw new Error(`${error.message}; whether the command was started is not known`, { cause: error })
}

/** Reports preferences that were cut. Users who chose the host know it. */
const tellPlace = ({ cutWishes }: RemoteProcess | RemoteTerminal): void => {
  for (const { key, asked, got } of cutWishes)
    process.stderr.write(shownLine(`rexd: --${key} ${asked} is more than the server allows; it runs with ${got}`) + '\n')
}

const follow = async (program: RemoteProcess | RemoteTerminal, readsStdin: boolean): Promise<number> => {
  try {
    const copied = await copyOutput(program)
    const { exitCode, signal, timedOut, truncated, bytesStdout, bytesStderr, descendantsEnded = 0 } = await program.exited
    const missing = bytesStdout + bytesStderr - copied
    if (missing > 0) process.stderr.write(`rexd: its output was cut off: the last ${missing} bytes are missing (limits.max_output_bytes)\n`)
    if (descendantsEnded > 0) process.stderr.write(`rexd: ${leftBehindText(descendantsEnded)}\n`)
    if (timedOut) process.stderr.write('rexd: its time limit was reached; set another with --timeout, up to limits.hard_timeout_ms\n')
    if (truncated && missing === 0 && !timedOut) {
      process.stderr.write('rexd: the end of its output was lost: a process that it started was still writing after it ended\n')
      return EXIT_FAILED
    }
    return exitCode ?? 128 + (constants.signals[signal as NodeJS.Signals] ?? 0)
  } finally {
    if (readsStdin && process.stdin.isTTY) process.stdin.setRawMode(false)
    // Unread input must not keep this process alive.
    if (readsStdin) process.stdin.destroy()
  }
}

const readsStdin = ({ stdin, tty }: RexdExecFlags): boolean => stdin || tty

/** Runs `rexd exec` and returns the exit status of the command, 128+n, or 255. Throws `bad_request` if stdin would be lost. */
export const rexdExec = async (line: CommandLine): Promise<number> => {
  const flags = rexdExecFlags(line)
  const run = async (): Promise<number> => execute(flags)
  const init = { program: 'rexd', argv: process.argv.slice(2), send: ['--stdin'], stderr: process.stderr, quiet: true }
  return readsStdin(flags) ? run() : withoutStdin(init, run)
}

const execute = async (flags: RexdExecFlags): Promise<number> => {
  const interrupts = new Interrupts({ node: flags.target ?? flags.place.node ?? 'its node' })
  // A reader such as `head` may stop early. The failed write then ends the copy silently.
  for (const output of [process.stdout, process.stderr]) output.on('error', () => undefined)
  try {
    const { target, url } = flags
    const client = await connect({ transport: await transportOf(flags), onConnection: (state) => onConnection(state, interrupts, flags) })
    try {
      const session = await client.open({ clientName: CLIENT_NAME, ...(target === null ? {} : { target }), resumable: url !== null })
      interrupts.starting(session.tellsWaiting)
      const program = await (flags.tty ? onTerminal(session, flags, interrupts) : onPipes(session, flags, interrupts)).catch(unknownStart)
      interrupts.follow(program)
      tellPlace(program)
      return await follow(program, readsStdin(flags))
    } finally {
      await client.close()
    }
  } catch (error) {
    if (errnoOf(error) === 'EPIPE') return EXIT_NOT_READ
    interrupts.begunOrNot()
    process.stderr.write(failureText(error))
    return interrupts.failure
  } finally {
    interrupts.stop()
  }
}
