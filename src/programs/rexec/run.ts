import { AppError } from '../../base/errors.ts'
import { readUpTo } from '../../base/read-up-to.ts'
import type { Environment } from '../../base/runtime.ts'
import { exitOfSignal, onStopSignal } from '../../cli/exit.ts'
import { write } from '../../cli/output.ts'
import { type ConsoleLink, openConsole, replyOn } from '../../clients/console.ts'
import { type ConsoleReply, MAX_CONSOLE_LINE, MAX_CONSOLE_STDIN } from '../../protocol/console/messages.ts'
import { leftBehindText } from '../../protocol/reasons.ts'
import { utf8Text } from '../../protocol/text.ts'
import type { RunFlags } from './run-flags.ts'
import { EXIT_NO_HOST, noHost, tell } from './messages.ts'

/** Timeout for the reply to an abort: twice the grace period. */
const ABORT_MS = 2_000

const readInput = async (): Promise<string> => {
  const bytes = await readUpTo(process.stdin as AsyncIterable<Buffer>, MAX_CONSOLE_STDIN)
  if (bytes === null) throw new AppError('bad_request', `--read-stdin: at most ${MAX_CONSOLE_STDIN} bytes; give the command a file`)
  const text = utf8Text(bytes)
  if (text === null) throw new AppError('bad_request', '--read-stdin: it is no UTF-8; give the command a file')
  return text
}

const showReply = async (reply: ConsoleReply, { argv0, timeout }: RunFlags): Promise<number> => {
  const { exit, output, error, message, descendants_ended: left } = reply
  await write(process.stdout, output)
  if (typeof left === 'number') tell(`rexec: ${leftBehindText(left)}`)
  if (error === 'not_found') tell(`${argv0}: not found`)
  else if (error === 'timeout') tell(`rexec: ended after ${timeout} s (--timeout)`)
  else if (error === 'aborted') tell('rexec: aborted')
  else if (error !== undefined) tell(`rexec: ${String(error)}${message === undefined ? '' : `: ${String(message)}`}`)
  return exit >= 0 && exit <= 255 ? exit : EXIT_NO_HOST
}

/** Runs a command through the host and returns its exit status. */
export const runCommand = async (flags: RunFlags, env: Environment): Promise<number> => {
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
