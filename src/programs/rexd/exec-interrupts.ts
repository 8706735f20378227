import { systemClock } from '../../base/clock.ts'
import { shownLine } from '../../base/visible-text.ts'
import { exitOfSignal, onStopSignal } from '../../cli/exit.ts'
import type { StartWaiting } from '../../sdk/commands.ts'
import type { ConnectionState } from '../../sdk/connection.ts'
import { RexdDisconnected } from '../../sdk/errors.ts'
import type { RemoteProcess, RemoteTerminal } from '../../sdk/remote-process.ts'
import { CountdownLine, clockText } from '../../supervision/countdown-line.ts'

/** Exit status if the command could not run, or its end or output is not completely known. */
export const EXIT_FAILED = 255

/** After this time, a start reports that an approver may be asked. */
const SLOW_START_MS = 1_500

/** Ctrl-C from a terminal in raw mode. */
const INTERRUPT = 0x03

/**
 * Handles signals to this process. The first one goes to the command. The second one ends the wait, and so does the first if the command
 * cannot be reached.
 */
export class Interrupts {
  #program: RemoteProcess | RemoteTerminal | null = null
  #starting = false
  #cutOff = false
  #first: NodeJS.Signals | null = null
  readonly #unbegun = new AbortController()
  #slow: NodeJS.Timeout | null = null
  #isSlow = false
  /** Whether the command may not have received the first signal. */
  #untold = false
  /** The target agent, as it was named. */
  readonly #node: string
  readonly #line = new CountdownLine({ stderr: process.stderr, clock: systemClock })
  readonly #unlisten = onStopSignal((name) => this.#hear(name))

  constructor(init: { readonly node: string }) {
    this.#node = init.node
  }

  /** Aborted by a signal while an approver is, or may be, asked about the start. */
  get unbegun(): AbortSignal {
    return this.#unbegun.signal
  }

  /** 128+n after a signal, otherwise EXIT_FAILED. */
  get failure(): number {
    return this.#first === null ? EXIT_FAILED : exitOfSignal(this.#first)
  }

  /** Stops listening to signals. */
  stop(): void {
    this.begunOrNot()
    this.#unlisten()
  }

  /** A command may exist from now on. `tells`: the server reports that an approver is asked. */
  starting(tells: boolean): void {
    this.#starting = true
    const why = tells ? '' : ' it may need approval first (x0x approvals pending);'
    this.#slow = setTimeout(() => {
      this.#isSlow = true
      process.stderr.write(`rexd: not begun yet;${why} Ctrl-C withdraws it\n`)
    }, SLOW_START_MS).unref()
  }

  /** Called when an approver is asked. */
  readonly waiting = ({ questionId, expiresInMs }: StartWaiting): void => {
    this.begunOrNot()
    this.#isSlow = true
    const whom = questionId === null ? `requested by ${this.#node}` : `an approver on its machine (${questionId})`
    const text = (left: number): string => shownLine(`rexd: waiting for approval: ${whom}; ${clockText(left)} left, Ctrl-C withdraws it`)
    void this.#line.show(text, expiresInMs)
  }

  follow(program: RemoteProcess | RemoteTerminal): void {
    this.begunOrNot()
    this.#program = program
    if (this.#first !== null) this.#emit(this.#first)
  }

  /** Called when the start was answered. */
  begunOrNot(): void {
    if (this.#slow !== null) clearTimeout(this.#slow)
    this.#slow = null
    void this.#line.end()
  }

  /** A started command goes on if the connection is restored. Otherwise the failed call reports its fate. */
  connection(state: ConnectionState): void {
    if (this.#program === null || (!state.connected && !state.again)) return
    this.#cutOff = !state.connected
    process.stderr.write(
      state.connected ? 'rexd: connected again\n' : `rexd: ${state.loss.message}; reconnecting for some minutes (Ctrl-C stops this)\n`,
    )
    if (state.connected && this.#untold && this.#first !== null) this.#emit(this.#first)
  }

  /** Ctrl-C from a terminal in raw mode belongs to the command, unless nothing reaches it. */
  typed(bytes: Uint8Array): void {
    if (this.#cutOff && bytes.includes(INTERRUPT)) this.#leave('SIGINT')
  }

  #hear(name: NodeJS.Signals): void {
    if (this.#first !== null || !this.#starting || this.#cutOff) this.#leave(name)
    this.#first = name
    if (this.#program === null && this.#isSlow) this.#unbegun.abort(new Error('withdrawn before it began'))
    else this.#emit(name)
  }

  #leave(name: NodeJS.Signals): never {
    if (this.#cutOff) process.stderr.write('rexd: stopped waiting; the server ends the command if no client returns within a minute\n')
    process.exit(exitOfSignal(name))
  }

  #emit(name: NodeJS.Signals): void {
    this.#untold = false
    this.#program?.kill(name).catch((error: unknown) => {
      this.#untold = error instanceof RexdDisconnected && error.sent
    })
  }
}
