import type { AppError } from '../../base/errors.ts'
import { absolutePath } from '../../base/home.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { REXEC } from '../../cli/rexec.ts'
import { readConsoleLine, whoamiProblem } from '../../protocol/console/messages.ts'

/** A request to the host, without stdin. */
export interface RunFlags {
  readonly request: Readonly<Record<string, unknown>>
  readonly readStdin: boolean
  readonly argv0: string
  /** Seconds; 0 for none. */
  readonly timeout: number
}

const usage = (text: string): AppError => badFlags(text, REXEC.name)

const variable = (text: string): [name: string, value: string] => {
  const at = text.indexOf('=')
  if (at < 1) throw usage(`--env: ${JSON.stringify(text)} is no VARIABLE=VALUE`)
  return [text.slice(0, at), text.slice(at + 1)]
}

const seconds = (text: string | null): number => {
  if (text === null) return 0
  if (!/^[0-9]{1,9}(?:\.[0-9]{1,3})?$/.test(text))
    throw usage(`--timeout: ${JSON.stringify(text)} is no number of seconds, such as 30 or 2.5`)
  return Number(text)
}

/** Throws `bad_config` naming what is missing or wrong. */
export const runFlagsOf = (line: CommandLine): RunFlags => {
  const [whoami, dir, command] = [line.value('whoami'), line.value('dir'), line.behindDashes]
  if (whoami === null) throw usage('--whoami NAME is missing: who asks')
  const problem = whoamiProblem(whoami)
  if (problem !== null) throw usage(`--${problem}`)
  if (dir === null) throw usage('--dir DIR is missing: where the command runs')
  if (command === null || command[0] === undefined || command.length !== line.words.length)
    throw usage('the command stands behind two dashes, such as: -- ls -l')
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
