import { shellWord } from '../../base/shell-word.ts'
import { TerminalFilter } from '../../base/terminal-filter.ts'
import { replaceInvisible } from '../../base/visible-text.ts'

/** A run as its host shows it. `n`: its place in the order of arrival, from 1. */
export interface ShownRun {
  readonly n: number
  readonly whoami: string
  readonly dir: string
  readonly argv: readonly string[]
  /** Milliseconds; null: none. */
  readonly timeout_ms: number | null
  /** ISO 8601. */
  readonly started_at: string
}

export interface ShownEnd {
  /** As the client is told: 128+N where signal N ended it. */
  readonly exit: number
  /** `not_found`, `spawn_failed`, `aborted` or `timeout`; null: it ended by itself. */
  readonly error: string | null
  readonly duration_ms: number
}

/** What the host says to its screen, which never holds up a run: nothing here waits, and what the screen keeps of output is its own to bound. */
export interface ConsoleScreen {
  begin(run: ShownRun): void
  /** Bytes of the run's terminal as they came; nothing after its `end`. */
  output(n: number, data: Uint8Array): void
  end(n: number, end: ShownEnd): void
  /** A line of the host's own. */
  note(text: string): void
  /** Settles when everything that was given is shown. */
  close(): Promise<void>
}

/** What a human at the screen asks of the host. */
export interface ConsoleControls {
  /** Does nothing where the run is over. */
  abort(n: number): void
  /** New commands of that agent wait. */
  pause(whoami: string): void
  resume(whoami: string): void
  /** Ends the host and its runs. */
  stop(): void
}

/** What is kept of a run that waits for its turn on the screen, in bytes. */
const MAX_WAITING = 256 * 1024

/** One run on the screen, or before its turn. */
interface Shown {
  readonly filter: TerminalFilter
  readonly decoder: InstanceType<typeof TextDecoder>
  /** What waits for its turn. */
  text: string
  left: number
  over: boolean
}

/** As `[TIME] WHOAMI:DIR $ ARGV`, every character of it visible. */
const banner = ({ started_at, whoami, dir, argv, timeout_ms }: ShownRun): string => {
  const limit = timeout_ms === null ? '' : ` TO=${timeout_ms / 1000}`
  const line = `[${started_at}]${limit} ${whoami}:${dir} $ ${argv.map(shellWord).join(' ')}`
  return `${replaceInvisible(line, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`)}\n`
}

/** Each run in the order of arrival: a banner, its output without what a terminal obeys, and a blank line. */
export class PlainScreen implements ConsoleScreen {
  readonly #write: (text: string) => void
  /** The first is on the screen. */
  readonly #runs = new Map<number, Shown>()

  constructor(init: { readonly write: (text: string) => void }) {
    this.#write = init.write
  }

  begin(run: ShownRun): void {
    this.#runs.set(run.n, { filter: new TerminalFilter(), decoder: new TextDecoder(), text: banner(run), left: MAX_WAITING, over: false })
    this.#showFirst()
  }

  output(n: number, data: Uint8Array): void {
    const run = this.#runs.get(n)
    if (run === undefined || run.over) return
    this.#add(run, run.filter.push(run.decoder.decode(data, { stream: true })))
    this.#showFirst()
  }

  end(n: number): void {
    const run = this.#runs.get(n)
    if (run === undefined) return
    run.text += `${run.filter.push(run.decoder.decode())}${run.filter.end()}${run.left === 0 ? '\n[left out here: it waited for its turn]\n' : ''}\n`
    run.over = true
    this.#showFirst()
  }

  note(text: string): void {
    this.#write(`x0x console: ${replaceInvisible(text, () => '?')}\n`)
  }

  async close(): Promise<void> {}

  #add(run: Shown, text: string): void {
    const taken = text.slice(0, run.left)
    run.text += taken
    run.left -= taken.length
  }

  #showFirst(): void {
    for (const [n, run] of this.#runs) {
      this.#write(run.text)
      run.text = ''
      run.left = MAX_WAITING
      if (!run.over) return
      this.#runs.delete(n)
    }
  }
}
