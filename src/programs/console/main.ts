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
import { canRedraw, openScreen } from '../../doors/console/screen/open-screen.ts'
import { silentScreen } from '../../doors/console/screen/silent-screen.ts'
import { startHost } from './compose.ts'
import { checkJournals, watchJournals } from './journal-runs.ts'

/** The flags of the host. */
export interface HostFlags {
  readonly silent: boolean
  /** Find programs in the user's own directories. */
  readonly addPath: boolean
  /** Record the values of variables that clients set, not only their names. */
  readonly recordEnv: boolean
  /** Never redraw the screen. */
  readonly plain: boolean
  /** Null if no flag decides. */
  readonly colour: boolean | null
  /** Journals of other interfaces. */
  readonly journals: readonly string[]
  /** Null if the configuration does not choose among hosts. */
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

/** Makes writes to the terminal non-blocking. Otherwise a stopped terminal would block the host and every agent. */
const neverWait = (stdout: NodeJS.WriteStream): void => {
  const { _handle: handle } = stdout as { _handle?: { setBlocking?(isBlocking: boolean): unknown } }
  handle?.setBlocking?.(false)
}

const fromHome = (path: string): string => (path.startsWith(`${homeDirectory()}/`) ? `~${path.slice(homeDirectory().length)}` : path)

/** The loss of the terminal ends the host by SIGHUP. Reporting it would be another error. */
const outliveTerminal = (): void => {
  for (const stream of [process.stdin, process.stdout, process.stderr]) stream.on('error', () => {})
}

const serve = async (flags: HostFlags, env: Environment): Promise<number> => {
  const { silent, addPath, recordEnv, journals, config } = flags
  checkJournals(journals)
  outliveTerminal()
  const isDrawn = !silent && canRedraw(process.stdout, env, flags.plain)
  let screen: OrderedScreen | null = null
  // A drawn screen must write all lines itself, because others would land between its rows.
  const say = (text: string): void => (isDrawn && screen?.isClosed === false ? screen.line(shownLine(text)) : tell(text))
  const log = createLogger({ name: 'rexec', ...(isDrawn ? { destination: { write: (line) => say(line.trimEnd()) } } : {}) })
  const stop = stopConditions(log, { untilEof: false })
  if (process.geteuid?.() === 0) tell('rexec: this host runs as root: every program of root on this machine can run commands through it')
  const open = (controls: ConsoleControls): OrderedScreen => {
    const { stdout, stdin } = process
    if (stdout.isTTY) neverWait(stdout)
    screen = openScreen({ stdout, stdin, env, clock: systemClock, controls, plain: !isDrawn, colour: flags.colour })
    return screen
  }
  const host = await startHost(env, { addPath, recordEnv, config, screen: silent ? () => silentScreen(tell) : open }, log)
  const ending = AbortSignal.any([stop.signal, host.stopped])
  if (!silent) {
    // The screen shows the warning as a note. A drawn screen and standard error may be the same terminal.
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
  // A signal is the normal end.
  const status = stop.status()
  return failures.length > 0 || status === 1 ? 1 : 0
}

/** Runs the host of a console and returns the exit status: 0; 2 for flags; 1 for anything else, such as a second host. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(REXEC, argv, async (line) => serve(hostFlags(line), env), { read: rexecLine })
