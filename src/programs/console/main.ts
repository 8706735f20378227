import { aborted } from '../../base/abort.ts'
import { systemClock } from '../../base/clock.ts'
import { homeDirectory } from '../../base/home.ts'
import { createLogger } from '../../base/log.ts'
import type { Environment } from '../../base/runtime.ts'
import { shownLine } from '../../base/visible-text.ts'
import { logStopFailures, stopConditions } from '../../cli/exit.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { REXEC, colourOf, rexecLine } from '../../cli/rexec.ts'
import { runProgram } from '../../cli/program-line.ts'
import type { ConsoleControls } from '../../doors/console/screen.ts'
import type { OrderedScreen } from '../../doors/console/screen/console-screen.ts'
import { drawsAnew, openScreen } from '../../doors/console/screen/open-screen.ts'
import { silentScreen } from '../../doors/console/screen/silent-screen.ts'
import { startHost } from './compose.ts'
import { checkJournals, watchJournals } from './journal-runs.ts'

/** What the command line says of the host. */
export interface HostFlags {
  /** Shows no commands. */
  readonly silent: boolean
  /** Programs of the user's own directories are found by their names. */
  readonly addPath: boolean
  /** The transcript has the values of variables that clients give, too. */
  readonly recordEnv: boolean
  /** Nothing is drawn anew. */
  readonly plain: boolean
  /** Null: no flag says. */
  readonly colour: boolean | null
  /** Journals of other doors. */
  readonly journals: readonly string[]
  /** Null: the configuration does not choose among hosts. */
  readonly config: string | null
}

const hostFlags = (line: CommandLine): HostFlags => ({
  silent: line.has('silent'),
  addPath: !line.has('no-add-path'),
  recordEnv: line.has('record-env'),
  plain: line.has('plain'),
  colour: colourOf(line),
  journals: line.values('watch-journal'),
  config: line.value('config'),
})

const tell = (text: string): void => void process.stderr.write(`${text}\n`)

/** A write to a terminal waits for it unless told otherwise, and the host would with it: one that takes nothing would stop every agent. */
const neverWait = (stdout: NodeJS.WriteStream): void => {
  const { _handle: handle } = stdout as { _handle?: { setBlocking?(isBlocking: boolean): unknown } }
  handle?.setBlocking?.(false)
}

const fromHome = (path: string): string => (path.startsWith(`${homeDirectory()}/`) ? `~${path.slice(homeDirectory().length)}` : path)

/** A terminal that is gone ends the host by SIGHUP; to tell it so would be the next error. */
const outliveTerminal = (): void => {
  for (const stream of [process.stdin, process.stdout, process.stderr]) stream.on('error', () => {})
}

const serve = async (flags: HostFlags, env: Environment): Promise<number> => {
  const { silent, addPath, recordEnv, journals, config } = flags
  checkJournals(journals)
  outliveTerminal()
  const isDrawn = !silent && drawsAnew(process.stdout, env, flags.plain)
  let screen: OrderedScreen | null = null
  // On a screen that is drawn anew all lines are its own: another would stand in the midst of its lower rows.
  const say = (text: string): void => (isDrawn && screen?.isClosed === false ? screen.line(shownLine(text)) : tell(text))
  const log = createLogger({ name: 'rexec', ...(isDrawn ? { destination: { write: (line) => say(line.trimEnd()) } } : {}) })
  const stop = stopConditions(log, { untilEof: false })
  if (process.geteuid?.() === 0) tell('rexec: this host runs as root: whatever runs as root here can have it run anything')
  const open = (controls: ConsoleControls): OrderedScreen => {
    const { stdout, stdin } = process
    if (stdout.isTTY) neverWait(stdout)
    screen = openScreen({ stdout, stdin, env, clock: systemClock, controls, plain: !isDrawn, colour: flags.colour })
    return screen
  }
  const host = await startHost(env, { addPath, recordEnv, config, screen: silent ? () => silentScreen(tell) : open }, log)
  const ending = AbortSignal.any([stop.signal, host.stopped])
  if (!silent) {
    // The screen has it as a note; a drawn one and standard error may be the same terminal.
    if (host.warning !== null && !(isDrawn && process.stderr.isTTY)) tell(`rexec: ${host.warning}`)
    for (const socket of host.sockets) say(`rexec host listening on ${socket}`)
    say(`rexec transcript: ${fromHome(host.transcript)}`)
  }
  const watching = watchJournals(journals, { screen, signal: ending })
  await aborted(ending)
  await watching
  const failures = await host.stop()
  logStopFailures(log, failures)
  if (!silent) tell('rexec host: shutdown')
  // A signal is how it is ended.
  const status = stop.status()
  return failures.length > 0 || status === 1 ? 1 : 0
}

/** Runs the host of a console and answers the exit status: 0; 2 for flags; 1 for anything else, another host among it. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(REXEC, argv, async (line) => serve(hostFlags(line), env), { read: rexecLine })
