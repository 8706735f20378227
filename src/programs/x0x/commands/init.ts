import { existsSync } from 'node:fs'
import { isAppError } from '../../../base/errors.ts'
import { shellWord } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { instanceFlags } from '../../../clients/paths.ts'
import { SETTINGS } from '../../../config/config.ts'
import { type FirstFilesOptions, makeFirstFiles } from '../../../config/first-files.ts'
import { loadPrimitives } from '../../../identity/primitives.ts'
import { restartCommand } from '../../../supervision/restart-command.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printAnswer, printDone, printLine, printNotice, printTable } from '../print.ts'
import { Dialogue, isAtTerminal } from '../prompts.ts'

interface InitOptions {
  /** The agent's name, or null if not given. */
  readonly as: string | null
  /** Whether others may connect, or null if not given. */
  readonly reachable: boolean | null
  /** Whether the system's service manager runs it, or null if not given. */
  readonly service: boolean | null
}

interface FirstFilesChoice extends Omit<FirstFilesOptions, 'name'> {
  readonly service: boolean
}

const checkName = (name: string): string => {
  const parsed = SETTINGS.display_name.parse(name)
  if ('problem' in parsed) throw usageError(`--as: ${parsed.problem}`)
  return parsed.value
}

const choiceOf = async (context: CliContext, { as, reachable, service }: InitOptions): Promise<FirstFilesChoice> => {
  const said = { displayName: as === null ? null : checkName(as), reachable: reachable ?? true, service: service ?? false }
  if (existsSync(context.api.paths.config)) {
    if (as !== null || reachable !== null)
      await printNotice(context, `${context.api.paths.config} exists and stays unchanged: edit the file to change it`)
    return said
  }
  if (!isAtTerminal(context) || context.json) return said
  const dialogue = new Dialogue(context)
  const yes = async (question: string): Promise<boolean> => /^y(es)?$/i.test(await dialogue.ask(question))
  try {
    const name = as ?? (await dialogue.ask('Name of this agent (empty: host name): '))
    return {
      displayName: name === '' ? null : checkName(name),
      reachable: reachable ?? !(await yes('Only send requests, and never run commands for others? y/N ')),
      service: service ?? (await yes('Run as a system service instead of as this user? y/N ')),
    }
  } finally {
    dialogue.close()
  }
}

/** Timeout for the daemon, so that `init` does not hang with it. */
const ANSWER_MS = 2_000

const isServed = async (context: CliContext): Promise<boolean> => {
  if (!context.api.isOwn) return false
  try {
    await context.api.json({ method: 'GET', path: '/health', signal: AbortSignal.timeout(ANSWER_MS) })
    return true
  } catch (error) {
    // A daemon that answers with an error, or not in time, is also running.
    return !isAppError(error, 'daemon_unreachable') || error.data['asked'] !== false
  }
}

/** The command to type next. A running daemon must be restarted to read new files; if nothing was made, an invitation comes next. */
const nextFor = async (context: CliContext, flags: readonly string[], isNew: boolean): Promise<string> => {
  const words = (...argv: readonly string[]): string => argv.map(shellWord).join(' ')
  if (!(await isServed(context))) return `${words('x0xd', ...flags)} &`
  return isNew
    ? `${await restartCommand(context.instance, context.api.paths)}   (the running daemon does not have the new files)`
    : `${words('x0x', ...flags, 'invite')}   (the daemon runs)`
}

/** `x0x init`: makes what is missing in the data directory and changes no existing file. */
export const runInit = async (context: CliContext, line: CommandLine): Promise<number> => {
  const either = (yes: string, no: string): boolean | null => (line.has(yes) ? true : line.has(no) ? false : null)
  const said = { as: line.value('as'), reachable: either('reachable', 'only-asks'), service: either('service', 'user') }
  const { service, ...wishes } = await choiceOf(context, said)
  const dryRun = line.has('dry-run')
  await loadPrimitives()
  const { paths } = context.api
  const { name } = context.instance
  const files = await makeFirstFiles(paths, { ...wishes, name }, { dryRun })
  const flags = instanceFlags(context.instance)
  const start = service
    ? `sudo systemctl enable --now x0xd   (deploy/x0xd.service; its files are in /etc/x0x and /var/lib/x0x)`
    : await nextFor(
        context,
        flags,
        files.some(({ state }) => state === 'made'),
      )
  const print = dryRun ? printAnswer : printDone
  return print(context, { ok: true, files, next: start }, async () => {
    await printTable(
      context,
      ['FILE', 'WHAT', 'STATE'],
      files.map(({ path, what, state }) => [path, what, state]),
    )
    await printLine(context, shownLine(`next: ${start}`))
  })
}
