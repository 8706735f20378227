import { mkdir, realpath } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { AppError } from '../../base/errors.ts'
import { writeFileAtomic } from '../../base/files.ts'
import type { Environment } from '../../base/runtime.ts'
import { isVisible } from '../../base/visible-text.ts'
import { onStopSignal, printFailure } from '../../cli/exit.ts'
import { untilEnded, write } from '../../cli/output.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { REXEC, colourOf } from '../../cli/rexec.ts'
import { type ConsoleLink, openConsole } from '../../clients/console.ts'
import { configHome } from '../../clients/paths.ts'
import { type Page, entryText, pageOf, transcriptLineText } from '../../doors/console/transcript-text.ts'
import { type TranscriptEntry, parseEntry } from '../../protocol/console/transcript.ts'
import { followTranscript, listTranscripts } from '../../transcripts/browse.ts'
import { transcriptsDir } from '../../transcripts/directory.ts'
import { readTranscript } from '../../transcripts/read.ts'
import { EXIT_NO_HOST, noHost, tell } from './messages.ts'

/** Loaded for colours only, because it contains a terminal emulator. */
const coloured = async (entry: TranscriptEntry, page: Page): Promise<AsyncGenerator<string>> =>
  (await import('../../doors/console/render-entry.ts')).renderEntry(entry, page)

/** Entries from the host until it ends or the signal is aborted. */
async function* entries(link: ConsoleLink, page: Page, signal: AbortSignal): AsyncGenerator<string> {
  signal.addEventListener('abort', () => link.close(), { once: true })
  for (let line = await link.next(); line !== null; line = await link.next()) {
    if (line['event'] !== 'transcript') continue
    const parsed = parseEntry(Buffer.from(JSON.stringify(line['entry'])))
    if ('entry' in parsed) yield* page.look.colour ? await coloured(parsed.entry, page) : [entryText(parsed.entry, page)]
    else tell(`rexec: an entry of the host is not valid: ${parsed.problem}`)
  }
}

/** Prints commands as they end on the host, until it ends or Ctrl-C. `colour` is null if no flag decides. */
export const attach = async (env: Environment, { colour }: { readonly colour: boolean | null }): Promise<number> => {
  const link = await openConsole(env)
  if (link === null) return noHost(env)
  const page = pageOf(process.stdout, env, colour)
  link.send({ action: 'attach', ansi: page.look.colour })
  return untilEnded({ stdout: process.stdout, onSignal: onStopSignal }, async (signal) => {
    for await (const text of entries(link, page, signal)) if (!(await write(process.stdout, text))) break
  }).finally(() => link.close())
}

/** `--list [N]`, newest first. */
export const printList = async (line: CommandLine): Promise<number> => {
  const count = line.value('list') ?? ''
  if (!/^[0-9]{1,6}$/.test(count)) throw badFlags(`--list: ${JSON.stringify(count)} is not a count`, REXEC.name)
  for (const { name, commands } of await listTranscripts(transcriptsDir(), Number(count)))
    await write(process.stdout, `${name} commands=${commands}\n`)
  return 0
}

/** `--print [--follow] NAME`, in the console's form. */
export const printTranscript = async (line: CommandLine, env: Environment): Promise<number> => {
  const [name, ...more] = line.words
  if (name === undefined || more.length > 0)
    throw badFlags('--print takes the name of one transcript; rexec --list 10 names them', REXEC.name)
  const page = pageOf(process.stdout, env, null)
  return untilEnded({ stdout: process.stdout, onSignal: onStopSignal }, async (signal) => {
    const lines = (line.has('follow') ? followTranscript : readTranscript)(transcriptsDir(), name, signal)
    for await (const one of lines) if (!(await write(process.stdout, transcriptLineText(one, page)))) break
  })
}

/** A word of a command in a unit (systemd.service(5), systemd.syntax(7)). Throws `bad_config` for a word that no unit can contain. */
const unitWord = (word: string): string => {
  if (!isVisible(word))
    throw new AppError('bad_config', `--install: a path with characters that do not show themselves: ${JSON.stringify(word)}`)
  return `"${word
    .replaceAll(/["\\]/g, (one) => `\\${one}`)
    .replaceAll('%', '%%')
    .replaceAll('$', '$$$$')}"`
}

/** The unit of a silent host. */
export const unitText = (command: readonly string[]): string => `[Unit]
Description=Host of commands of AI agents (rexec)

[Service]
ExecStart=${command.map(unitWord).join(' ')}
Restart=on-failure

[Install]
WantedBy=default.target
`

/** Writes the user's unit and prints how to start it. */
export const installUnit = async (env: Environment): Promise<number> => {
  const program = await realpath(process.argv[1] ?? '')
  const path = join(configHome(env), 'systemd', 'user', 'rexec.service')
  const text = unitText([process.execPath, program, '--start-host', '--silent'])
  await mkdir(dirname(path), { recursive: true })
  await writeFileAtomic(path, text, 0o644)
  await write(
    process.stdout,
    `written: ${path}\nstart it with: systemctl --user daemon-reload && systemctl --user enable --now rexec\nwatch it with: rexec --attach\n`,
  )
  return 0
}

/** Runs a line without a command. This bundle reports its errors itself, because the error class of another bundle differs. */
export const runMaintenanceCommand = async (line: CommandLine, env: Environment): Promise<number> => {
  try {
    if (line.has('list')) return await printList(line)
    if (line.has('print')) return await printTranscript(line, env)
    if (line.has('install')) return await installUnit(env)
    return await attach(env, { colour: colourOf(line) })
  } catch (error) {
    return printFailure('rexec', error, EXIT_NO_HOST, line.given)
  }
}
