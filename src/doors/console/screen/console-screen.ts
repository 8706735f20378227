import { BoundedSet } from '../../../base/bounded-collections.ts'
import { type Clock, type Timer, within } from '../../../base/clock.ts'
import { errorText } from '../../../base/errors.ts'
import { Condition } from '../../../base/wait-queue.ts'
import { endText, firstWords, keptBanner, noteText, ownLine } from '../transcript-text.ts'
import type { ConsoleControls, ConsoleScreen, ShownEnd, ShownRun } from '../screen.ts'
import { type WrappedLine, type TextStyle, marksOf, styled } from './cells.ts'
import {
  type Bottom,
  type Display,
  LiveDisplay,
  PlainDisplay,
  type ScreenOutput,
  type ScreenState,
  barText,
  statusText,
} from './display.ts'
import { HELP, type KeyTargets, ConsoleKeys } from './keys.ts'
import { SharedByteBudget, PendingOutput } from './pending-output.ts'
import { RunView } from './run-view.ts'

/** Output of all commands that is not shown yet. */
const MAX_HELD_BYTES = 16 * 1024 * 1024
/** Commands not shown yet: more than can run at once. Above it, the earliest ended ones are left out. */
const MAX_HELD_RUNS = 500
/** Notes that wait for a slow terminal. */
const MAX_NOTES = 500
const MAX_AGENTS = 64
const BLOCK_BYTES = 4_096
const TICK_MS = 1_000
/** Pause between two blocks of a command that writes faster than a person can read. It leaves processor time to the commands. */
const PACE_MS = 20
/** Longest wait for a stuck terminal at the end. */
const CLOSE_MS = 1_500

interface PausedRun {
  /** Its `argv` is cut to the words that are shown. */
  readonly run: ShownRun
  readonly banner: string
  readonly output: PendingOutput
  readonly begun: number
  end: ShownEnd | null
}

export interface OrderedScreenInit {
  readonly output: ScreenOutput
  readonly clock: Clock
  readonly look: TextStyle
  readonly controls: ConsoleControls
  /** Prints lines only, without moving the cursor. */
  readonly plain: boolean
  /** Called when it is closed. */
  readonly closed?: () => void
}

/** Shows commands one after another, in order of arrival. Output of later commands waits, within bounds. */
export class OrderedScreen implements ConsoleScreen {
  readonly #init: OrderedScreenInit
  readonly #display: Display
  readonly #keys: ConsoleKeys
  readonly #runs: PausedRun[] = []
  readonly #held = new SharedByteBudget({ max: MAX_HELD_BYTES })
  readonly #agents = new BoundedSet<string>({ max: MAX_AGENTS })
  readonly #wake = new Condition()
  readonly #shown: Promise<void>
  readonly #notes: WrappedLine[] = []
  #notesLeftOut = 0
  #runsLeftOut = 0
  #view: RunView | null = null
  /** Rows of a prompt or a reply. The last one replaces the status row. */
  #promptRows: readonly string[] = []
  #isHelpShown = false
  #isClosing = false
  /** Set when closing gives up: the rest will not be shown. */
  #isAbandoned = false
  #tick: Timer | null = null

  constructor(init: OrderedScreenInit) {
    this.#init = init
    const { output, clock, controls, plain } = init
    this.#display = plain ? new PlainDisplay(output) : new LiveDisplay({ output, clock, bottom: (columns) => this.#bottom(columns) })
    this.#keys = new ConsoleKeys({
      clock,
      controls,
      targets: () => this.#targets(),
      ask: (rows) => this.#ask(rows),
      help: (isAsked) => this.#help(isAsked),
      record: (text) => this.record(text),
      repaint: () => this.#display.repaint(),
    })
    this.#shown = this.#show().catch((error: unknown) =>
      this.#display.print([this.#ownLine(noteText(`the screen stopped: ${errorText(error)}`))]),
    )
  }

  /** Whether new output is ignored. */
  get isClosed(): boolean {
    return this.#isClosing
  }

  get look(): TextStyle {
    return this.#init.look
  }

  start(run: ShownRun): void {
    this.#runs.push(this.#kept(run))
    if (this.#runs.length > MAX_HELD_RUNS) this.#leaveOutRun()
    this.#agents.delete(run.whoami)
    this.#agents.add(run.whoami)
    this.#changed()
    this.#startTicking()
  }

  output(n: number, data: Uint8Array): void {
    this.#runs.find(({ run }) => run.n === n)?.output.push(data)
    this.#changed()
  }

  end(n: number, end: ShownEnd): void {
    const held = this.#runs.find(({ run }) => run.n === n)
    if (held !== undefined) held.end = end
    this.#changed()
  }

  record(text: string): void {
    this.line(styled(this.#init.look, 'dim', noteText(text)))
  }

  /** A line of the console whose untrusted parts are already escaped. */
  line(text: string): void {
    if (this.#notes.length >= MAX_NOTES) this.#notesLeftOut += 1
    else this.#notes.push(this.#ownLine(text))
    this.#changed()
  }

  /** Receives typed characters. */
  press(typed: string): void {
    this.#keys.press(typed)
  }

  async close(): Promise<void> {
    this.#isClosing = true
    this.#changed()
    await within(this.#init.clock, CLOSE_MS, this.#shown)
    this.#isAbandoned = true
    this.#keys.close()
    this.#tick?.cancel()
    await within(this.#init.clock, CLOSE_MS, this.#display.close())
    this.#init.closed?.()
  }

  #kept(run: ShownRun): PausedRun {
    const { whoami, dir, argv: exec, timeout_ms, started_at: time } = run
    const banner = keptBanner({ whoami, dir, exec, timeout_ms, time }, this.#init.look)
    const begun = this.#init.clock.monotonic()
    return { run: { ...run, argv: firstWords(exec) }, banner, output: new PendingOutput(this.#held), begun, end: null }
  }

  #leaveOutRun(): void {
    const at = this.#runs.findIndex(({ end }, index) => index > 0 && end !== null)
    if (at === -1) return
    this.#runs.splice(at, 1)[0]!.output.drop()
    this.#runsLeftOut += 1
  }

  #changed(): void {
    this.#wake.notifyAll()
    this.#display.changed()
  }

  async #show(): Promise<void> {
    while (!this.#isAbandoned) {
      await this.#printNotes()
      const first = this.#runs[0]
      if (first !== undefined) {
        await this.#showRun(first)
        this.#runs.shift()
        this.#printRunsLeftOut()
      } else if (this.#isClosing && this.#notes.length === 0) return
      else if (this.#notes.length === 0) await this.#wake.wait()
    }
  }

  async #showRun(held: PausedRun): Promise<void> {
    const { look } = this.#init
    this.#display.print([this.#ownLine(held.banner)])
    this.#view = await this.#open(held)
    while (!this.#isAbandoned) {
      await this.#printNotes()
      const next = held.output.next(BLOCK_BYTES)
      if (next === null) {
        if (held.end !== null || this.#isClosing) break
        await this.#wake.wait()
      } else if ('data' in next) {
        this.#display.print(await this.#view.push(next.data))
        if (held.output.isBehind && held.end === null && !this.#isClosing) await this.#pause(PACE_MS)
      } else await this.#leaveOut(held, next.left_out)
    }
    await this.#endView()
    const ended = held.end === null ? `${marksOf(look).end}${styled(look, 'bad', 'its end is unknown')}` : endText(held.end, look)
    this.#display.print([...(ended === null ? [] : [this.#ownLine(ended)]), this.#ownLine('')])
  }

  async #pause(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#init.clock.setTimeout(resolve, ms))
  }

  async #open({ run }: PausedRun): Promise<RunView> {
    return RunView.open(run, this.#init.look, this.#init.plain)
  }

  async #endView(): Promise<void> {
    this.#display.print(await this.#view!.end())
    this.#view!.dispose()
    this.#view = null
  }

  async #leaveOut(held: PausedRun, bytes: number): Promise<void> {
    await this.#endView()
    this.#display.print([
      this.#ownLine(styled(this.#init.look, 'bad', noteText(`${bytes} bytes of output are not shown: the screen could not keep up`))),
    ])
    this.#view = await this.#open(held)
  }

  /** Position of the note about left-out commands: after the first command, which is being shown. */
  #printRunsLeftOut(): void {
    const leftOut = this.#runsLeftOut
    if (leftOut === 0) return
    this.#runsLeftOut = 0
    this.#display.print([
      this.#ownLine(noteText(`${leftOut} commands are not shown: too many at once; see the transcript`)),
      this.#ownLine(''),
    ])
  }

  async #printNotes(): Promise<void> {
    await this.#display.ready()
    const leftOut = this.#notesLeftOut
    this.#display.print(this.#notes.splice(0))
    this.#notesLeftOut = 0
    if (leftOut > 0) this.#display.print([this.#ownLine(noteText(`${leftOut} lines are not shown: the screen could not keep up`))])
  }

  #ownLine(text: string): WrappedLine {
    return ownLine(text, this.#init.look)
  }

  #targets(): KeyTargets {
    const first = this.#runs[0]
    return {
      current: first === undefined || first.end !== null ? null : first.run,
      running: this.#runs.filter(({ end }) => end === null).length,
      agents: [...this.#agents].reverse(),
    }
  }

  #state(): ScreenState {
    const [first, ...others] = this.#runs
    const elapsed_ms = first === undefined ? 0 : this.#init.clock.monotonic() - first.begun
    return {
      current: first === undefined ? null : { whoami: first.run.whoami, argv: first.run.argv, elapsed_ms, isOver: first.end !== null },
      running: others.filter(({ end }) => end === null).length,
      ended: others.filter(({ end }) => end !== null).length,
      paused: [...this.#init.controls.paused],
    }
  }

  #bottom(columns: number): Bottom {
    const { look } = this.#init
    const rows = this.#promptRows.map((row) => ` ${row}`)
    const status = rows.pop() ?? statusText(this.#state(), columns)
    const fixed = [...(this.#isHelpShown ? HELP : []), ...rows, barText(status, columns, look)]
    return { live: this.#view?.preview() ?? [], fixed }
  }

  #ask(rows: readonly string[]): void {
    if (this.#init.plain) for (const row of rows) this.record(row)
    this.#promptRows = rows
    this.#display.changed()
  }

  #help(isAsked: boolean): void {
    if (this.#init.plain && isAsked) for (const row of HELP) this.record(row)
    this.#isHelpShown = isAsked && !this.#isHelpShown
    this.#display.changed()
  }

  #startTicking(): void {
    if (this.#init.plain || this.#tick !== null || this.#isClosing) return
    this.#tick = this.#init.clock.setTimeout(
      () => {
        this.#tick = null
        this.#display.changed()
        if (this.#runs.length > 0) this.#startTicking()
      },
      TICK_MS,
      { unref: true },
    )
  }
}
