import type { Clock, Timer } from '../../../base/clock.ts'
import { nameText, wordsText } from '../transcript-text.ts'
import type { ConsoleControls } from '../screen.ts'

/** Characters of one typed line, far more than any command needs. */
const MAX_LINE = 512
const ESCAPE = '\u001b'
const ERASE = ['\u007f', '\b']
const CLEAR = '\u0015'
const CTRL_C = '\u0003'

/** The state of a line after a key. */
export type Typed = 'goes_on' | 'done' | 'left'

export class TypedLine {
  #text = ''

  get text(): string {
    return this.#text
  }

  /** Special keys and Ctrl-C cancel the line. Characters that are not visible are ignored. */
  take(typed: string): Typed {
    if (typed.startsWith(ESCAPE) || typed.includes(CTRL_C)) return 'left'
    for (const character of typed) {
      if (character === '\r' || character === '\n') return 'done'
      if (ERASE.includes(character)) this.#text = this.#text.slice(0, -1)
      else if (character === CLEAR) this.#text = ''
      else if (/^[\x20-\x7e]$/.test(character) && this.#text.length < MAX_LINE) this.#text += character
    }
    return this.#text === '' ? 'left' : 'goes_on'
  }
}

/** How long a confirmation waits. A later key means something else. */
const ASKED_MS = 5_000
/** How long an unfinished line stays. */
const LINE_MS = 60_000
const CTRL_L = '\u000c'
const MAX_LISTED = 9

/** Command and agents that the keys can act on. */
export interface KeyTargets {
  /** The command whose output is shown, while it runs. */
  readonly current: { readonly n: number; readonly whoami: string; readonly argv: readonly string[] } | null
  readonly running: number
  /** Agents that have run commands, the latest first. */
  readonly agents: readonly string[]
}

export interface ConsoleKeysInit {
  readonly clock: Clock
  readonly controls: ConsoleControls
  readonly targets: () => KeyTargets
  /** Shows the rows of a prompt or a reply. An empty list removes them. */
  readonly ask: (rows: readonly string[]) => void
  /** Shows or hides the help. An unknown key only hides it. */
  readonly help: (isAsked: boolean) => void
  readonly record: (text: string) => void
  readonly repaint: () => void
}

export const HELP = [
  'x   stop the command that is shown; x again confirms',
  'p   pause an AI agent, or let it continue',
  '^C  stop the console and all commands; ^C again confirms',
  '/   set modes: /exec host=… security=… ask=…, /elevated on|ask|full|off',
  '^L  redraw the screen',
  '?   show or hide the keys',
] as const

type KeyPrompt =
  | { readonly about: 'abort'; readonly n: number }
  | { readonly about: 'pause'; readonly agents: readonly string[] }
  | { readonly about: 'stop' }

interface BegunLine {
  readonly typed: TypedLine
  readonly whoami: string
}

/**
 * Handles keys. Aborting asks first, because a key may be pressed in the wrong window. The answer applies only to the command that the
 * prompt named. Several characters at once are a paste or a special key, and are ignored.
 */
export class ConsoleKeys {
  readonly #init: ConsoleKeysInit
  #question: KeyPrompt | null = null
  #timer: Timer | null = null
  /** A line in progress, for the agent that was the latest when it began. */
  #line: BegunLine | null = null

  constructor(init: ConsoleKeysInit) {
    this.#init = init
  }

  press(typed: string): void {
    if (this.#line !== null) return this.#resume(this.#line, typed)
    if (typed.startsWith('/')) return this.#start(typed)
    // In line mode, the terminal sends the key with the line end.
    const key = typed.length > 1 ? typed.replace(/[\r\n]+$/, '') : typed
    if (key !== '' && key.replaceAll(CTRL_C, '') === '') for (const _one of key) this.#stop()
    else if (key.length === 1) this.#key(key)
  }

  #key(key: string): void {
    const question = this.#question
    this.#settle()
    if (question?.about === 'abort' && key === 'x') return this.#init.controls.abort(question.n)
    if (question?.about === 'pause') {
      const whoami = question.agents[Number(key) - 1]
      if (whoami !== undefined) return this.#toggle(whoami)
    }
    if (key === 'x') this.#askAbort()
    else if (key === 'p') this.#askPause()
    else if (key === CTRL_L) this.#init.repaint()
    else this.#init.help(key === '?')
  }

  #stop(): void {
    const isAsked = this.#question?.about === 'stop'
    const { running } = this.#init.targets()
    this.#settle()
    if (isAsked || running === 0) return this.#init.controls.stop()
    const runs = running === 1 ? '1 command runs' : `${running} commands run`
    this.#ask({ about: 'stop' }, `${runs}: ^C again stops the console and aborts ${running === 1 ? 'it' : 'them'}`)
  }

  #askAbort(): void {
    const { current } = this.#init.targets()
    if (current === null) this.#ask(null, 'no command is running')
    else this.#ask({ about: 'abort', n: current.n }, `x again aborts ${nameText(current.whoami)}: ${wordsText(current.argv)}`)
  }

  #start(typed: string): void {
    const [whoami] = this.#init.targets().agents
    if (whoami === undefined) return this.#ask(null, 'no AI agent has run a command yet')
    this.#line = { typed: new TypedLine(), whoami }
    this.#resume(this.#line, typed)
  }

  #resume(line: BegunLine, input: string): void {
    const became = line.typed.take(input)
    this.#settle()
    if (became === 'done') return this.#set(line)
    if (became === 'left') return
    this.#line = line
    this.#ask(null, `for ${nameText(line.whoami)}: ${line.typed.text}_   Enter applies it, Esc cancels`)
    this.#timer?.cancel()
    this.#timer = this.#init.clock.setTimeout(() => this.#settle(), LINE_MS, { unref: true })
  }

  #set({ typed, whoami }: BegunLine): void {
    const { controls, record: note } = this.#init
    const told = controls.setModes?.(whoami, typed.text) ?? Promise.resolve('this console cannot set modes')
    void told.then((text) => note(`${nameText(whoami)}: ${text}`))
  }

  #askPause(): void {
    const { paused } = this.#init.controls
    const { agents } = this.#init.targets()
    // Paused agents are always listed, so that they can be resumed however many agents follow.
    const first = new Set([...new Set([...paused, ...agents])].slice(0, MAX_LISTED))
    const listed = [...new Set([...agents, ...paused])].filter((whoami) => first.has(whoami))
    if (listed.length === 0) return this.#ask(null, 'no AI agent has run a command yet')
    const names = listed.map((whoami, at) => `${at + 1} ${paused.has(whoami) ? 'resume' : 'pause'} ${nameText(whoami)}`)
    this.#ask({ about: 'pause', agents: listed }, ...names, "press an AI agent's digit to pause or resume it")
  }

  #toggle(whoami: string): void {
    const { controls, record: note } = this.#init
    if (controls.paused.has(whoami)) controls.resume(whoami)
    else controls.pause(whoami)
    note(`${whoami} ${controls.paused.has(whoami) ? 'is paused: its next commands wait' : 'continues'}`)
  }

  /** `question` is null for a reply. */
  #ask(question: KeyPrompt | null, ...rows: readonly string[]): void {
    this.#question = question
    this.#init.ask(rows)
    this.#timer = this.#init.clock.setTimeout(() => this.#settle(), ASKED_MS, { unref: true })
  }

  #settle(): void {
    this.#timer?.cancel()
    this.#timer = null
    this.#question = null
    this.#line = null
    this.#init.ask([])
  }

  close(): void {
    this.#timer?.cancel()
  }
}
