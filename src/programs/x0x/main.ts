import { isAppError } from '../../base/errors.ts'
import type { Environment } from '../../base/runtime.ts'
import { OutputWatch } from '../../cli/output.ts'
import { type CommandLine, parseQuietly } from '../../cli/parse.ts'
import { MANY_HOSTS, PLAIN_X0X, SEND_STDIN } from '../../cli/plain-exec.ts'
import { withoutStdin } from '../../cli/unsent-stdin.ts'
import { runExec } from './commands/exec.ts'
import { type CliIo, contextOf, processIo } from './context.ts'
import { usageError } from './failure.ts'

/** Runs a command line (the words after the program's name) and returns the exit status. Never throws. */
export const main = async (argv: readonly string[], env: Environment, io: CliIo = processIo()): Promise<number> => {
  const watch = new OutputWatch('x0x', io)
  const status = await watch.finish(await runLine(argv, env, io))
  io.endWhereHungUp?.()
  return status
}

/** A plain `x0x exec` does not load the other commands, which are a bundle of their own. */
const runLine = async (argv: readonly string[], env: Environment, io: CliIo): Promise<number> => {
  const line = plainExec(argv)
  if (line === null) return (await import('./other-commands.ts')).runOther(io, env, argv)
  try {
    const [timeout, stdinFile] = [line.value('timeout'), line.value('stdin-file')]
    const session = line.value('session')
    const options = { agent: line.words[0]!, argv: line.behindDashes!, timeout, session, stdinFile, raw: line.has('raw') }
    const context = contextOf(io, env, line)
    const run = async (): Promise<number> => runExec(context, options)
    if (stdinFile !== null || io.ownsStdin !== true) return await run()
    const { stderr, quiet } = context
    return await withoutStdin({ program: 'x0x', argv, send: SEND_STDIN, stderr, quiet }, run)
  } catch (error) {
    const { exitStatusOf, reportFailure } = await import('./other-commands.ts')
    await reportFailure({ stdout: io.stdout, stderr: io.stderr, given: line.given, json: line.has('json') }, error)
    return exitStatusOf(error)
  }
}

/** The line of a plain `exec`: one agent, a command, and no other options. Null for any other line, also an invalid one. */
const plainExec = (argv: readonly string[]): CommandLine | null => {
  try {
    const parsed = parseQuietly(PLAIN_X0X, argv, usageError)
    if (parsed.kind !== 'line') return null
    const { line } = parsed
    const [who = '', ...others] = line.words
    const isPlain = line.command === 'exec' && !line.has('cancel') && others.length === 0 && who !== '' && !MANY_HOSTS.test(who)
    return isPlain && (line.behindDashes ?? []).length > 0 ? line : null
  } catch (error) {
    if (isAppError(error, 'bad_request')) return null
    throw error
  }
}
