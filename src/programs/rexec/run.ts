import { readUpTo } from '../../base/buffers.ts'
import { AppError } from '../../base/errors.ts'
import { absolutePath } from '../../base/home.ts'
import type { Environment } from '../../base/runtime.ts'
import { consoleSockets, foreignSocket, onlyOwn } from '../../base/unix-sockets.ts'
import { exitOfSignal, onStopSignal } from '../../cli/exit.ts'
import { write } from '../../cli/output.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { REXEC } from '../../cli/rexec.ts'
import { withoutStdin } from '../../cli/unsent-stdin.ts'
import { type ConsoleLink, openConsole, replyOn } from '../../clients/console.ts'
import { type ConsoleReply, MAX_CONSOLE_LINE, MAX_CONSOLE_STDIN, readConsoleLine, whoamiProblem } from '../../protocol/console/messages.ts'
import { leftBehindText } from '../../protocol/reasons.ts'
import { utf8Text } from '../../protocol/text.ts'
import { EXIT_NO_HOST, noHost, tell } from './messages.ts'

/** A request to the host, without stdin. */
export interface RunFlags {
  readonly request: Readonly<Record<string, unknown>>
  readonly readStdin: boolean
  readonly argv0: string
  /** Seconds, or 0. */
  readonly timeout: number
}

const usage = (text: string): AppError => badFlags(text, REXEC.name)

const variable = (text: string): [name: string, value: string] => {
  const at = text.indexOf('=')
  if (at < 1) throw usage(`--env: ${JSON.stringify(text)} is not VARIABLE=VALUE`)
  return [text.slice(0, at), text.slice(at + 1)]
}

const seconds = (text: string | null): number => {
  if (text === null) return 0
  if (!/^[0-9]{1,9}(?:\.[0-9]{1,3})?$/.test(text))
    throw usage(`--timeout must be a number of seconds (30 or 2.5), not ${JSON.stringify(text)}`)
  return Number(text)
}

/** Throws `bad_config` naming what is missing or wrong. */
export const runFlagsOf = (line: CommandLine): RunFlags => {
  const [whoami, dir, command] = [line.value('whoami'), line.value('dir'), line.behindDashes]
  if (whoami === null) throw usage('--whoami NAME is missing: the name of the AI agent')
  const problem = whoamiProblem(whoami)
  if (problem !== null) throw usage(`--${problem}`)
  if (dir === null) throw usage('--dir DIR is missing: where the command runs')
  if (command === null || command[0] === undefined || command.length !== line.words.length)
    throw usage('put the command after "--", such as: -- ls -l')
  const timeout = seconds(line.value('timeout'))
  const request = {
    whoami,
    dir: absolutePath('--dir', dir),
    envs: Object.fromEntries(line.values('env').map(variable)),
    exec: command,
    ...(timeout === 0 ? {} : { timeout }),
    ...(line.has('clear-env') ? { clear_env: true } : {}),
  }
  const read = readConsoleLine(Buffer.from(JSON.stringify(request)))
  if (read.kind === 'bad') throw usage(read.problem)
  return { request, readStdin: line.has('read-stdin'), argv0: command[0], timeout }
}

/** Prints whether a host listens. A host that accepts a connection counts, even if it knows no ping. */
export const checkHost = async (env: Environment): Promise<number> => {
  const link = await openConsole(env)
  link?.close()
  const { shared } = consoleSockets(env, process.geteuid?.() ?? 0)
  const taken = shared === null ? null : foreignSocket(shared, process.geteuid?.() ?? 0)
  if (link !== null && typeof taken === 'string') tell(`rexec: ${onlyOwn(taken)}`)
  await write(process.stdout, link === null ? 'HOST NOT FOUND\n' : 'HOST RUNNING\n')
  return link === null ? EXIT_NO_HOST : 0
}

/** Timeout for the reply to an abort: twice the grace period. */
const ABORT_MS = 2_000

const readInput = async (): Promise<string> => {
  const bytes = await readUpTo(process.stdin as AsyncIterable<Buffer>, MAX_CONSOLE_STDIN)
  if (bytes === null) throw new AppError('bad_request', `--read-stdin: at most ${MAX_CONSOLE_STDIN} bytes; give the command a file`)
  const text = utf8Text(bytes)
  if (text === null) throw new AppError('bad_request', '--read-stdin: it is not UTF-8; let the command read a file')
  return text
}

const showReply = async (reply: ConsoleReply, { argv0, timeout }: RunFlags): Promise<number> => {
  const { exit, output, error, message, descendants_ended: left } = reply
  await write(process.stdout, output)
  if (typeof left === 'number') tell(`rexec: ${leftBehindText(left)}`)
  if (error === 'not_found') tell(`${argv0}: not found`)
  else if (error === 'timeout') tell(`rexec: stopped after ${timeout} s (--timeout)`)
  else if (error === 'aborted') tell('rexec: aborted')
  else if (error !== undefined) tell(`rexec: ${String(error)}${message === undefined ? '' : `: ${String(message)}`}`)
  return exit >= 0 && exit <= 255 ? exit : EXIT_NO_HOST
}

/** Runs a command through the host and returns its exit status. Throws `bad_request` if stdin would be lost. */
export const runCommand = async (flags: RunFlags, env: Environment): Promise<number> => {
  const run = async (): Promise<number> => runOnHost(flags, env)
  const init = { program: REXEC.name, argv: process.argv.slice(2), send: ['--read-stdin'], stderr: process.stderr, quiet: true }
  return flags.readStdin ? run() : withoutStdin(init, run)
}

const runOnHost = async (flags: RunFlags, env: Environment): Promise<number> => {
  const stdin = flags.readStdin ? { stdin: await readInput() } : {}
  const request = { ...flags.request, ...stdin }
  if (Buffer.byteLength(JSON.stringify(request)) > MAX_CONSOLE_LINE)
    throw new AppError('bad_request', `command, variables and stdin have at most ${MAX_CONSOLE_LINE} bytes as JSON`)
  let told: NodeJS.Signals | null = null
  let link: ConsoleLink | null = null
  const stop = onStopSignal((name) => {
    if (told !== null || link === null) process.exit(exitOfSignal(name))
    told = name
    link.send({ action: 'abort' })
    setTimeout(() => process.exit(exitOfSignal(name)), ABORT_MS)
  })
  try {
    link = await openConsole(env)
    if (link === null) return noHost(env)
    const reply = await replyOn(link, request)
    if (reply === null) tell('rexec: the host ended before it replied; whether the command ran is not known')
    const status = reply === null ? EXIT_NO_HOST : await showReply(reply, flags)
    return told === null ? status : exitOfSignal(told)
  } finally {
    stop()
    link?.close()
  }
}
