import { systemClock } from '../../base/clock.ts'
import { shownLine } from '../../base/visible-text.ts'
import { exitOfSignal, onStopSignal } from '../../cli/exit.ts'
import type { StartWaiting } from '../../sdk/commands.ts'
import type { ConnectionState } from '../../sdk/connection.ts'
import { RexdDisconnected } from '../../sdk/errors.ts'
import type { RemoteProcess, RemoteTerminal } from '../../sdk/remote-process.ts'
import { CountdownLine, clockText } from '../../supervision/countdown-line.ts'

/** It could not be run, or what came of it is not known, or not all of it came. */
export const EXIT_FAILED = 255

/** How long a start may take before it is said that a human may be asked. */
const SLOW_START_MS = 1_500

/** Ctrl-C, as a terminal in raw mode says it. */
const INTERRUPT = 0x03

/** What asks us to end: the first is for the command, the second does not wait for it, and nor does the first while the command cannot be told. */
export class Interrupts {
  #program: RemoteProcess | RemoteTerminal | null = null
  #starting = false
  #cutOff = false
  #first: NodeJS.Signals | null = null
  readonly #unbegun = new AbortController()
  #slow: NodeJS.Timeout | null = null
  #isSlow = false
  /** Nobody knows whether the command was told of the first. */
  #untold = false
  /** The agent that it is to run on, as it was named. */
  readonly #node: string
  readonly #line = new CountdownLine({ stderr: process.stderr, clock: systemClock })
  readonly #unlisten = onStopSignal((name) => this.#hear(name))

  constructor(init: { readonly node: string }) {
    this.#node = init.node
  }

  /** Aborted where we are told to end while a human is, or may be, asked whether it may begin. */
  get unbegun(): AbortSignal {
    return this.#unbegun.signal
  }

  /** 128+n where we were told to end; else what cannot be run has a status of its own. */
  get failure(): number {
    return this.#first === null ? EXIT_FAILED : exitOfSignal(this.#first)
  }

  /** Hears no more signals. */
  stop(): void {
    this.begunOrNot()
    this.#unlisten()
  }

  /** From now on there may be a command. `tells`: the server says so where a human is asked. */
  starting(tells: boolean): void {
    this.#starting = true
    const why = tells ? '' : ' a human there may be asked first (x0x approvals pending);'
    this.#slow = setTimeout(() => {
      this.#isSlow = true
      process.stderr.write(`rexd: not begun yet;${why} Ctrl-C withdraws it\n`)
    }, SLOW_START_MS).unref()
  }

  /** A human is asked. */
  readonly waiting = ({ questionId, expiresInMs }: StartWaiting): void => {
    this.begunOrNot()
    this.#isSlow = true
    const whom = questionId === null ? `asked by ${this.#node}` : `a human there is asked (${questionId})`
    const text = (left: number): string => shownLine(`rexd: waiting for approval: ${whom}; ${clockText(left)} left, Ctrl-C withdraws it`)
    void this.#line.show(text, expiresInMs)
  }

  follow(program: RemoteProcess | RemoteTerminal): void {
    this.begunOrNot()
    this.#program = program
    if (this.#first !== null) this.#emit(this.#first)
  }

  /** The start was answered. */
  begunOrNot(): void {
    if (this.#slow !== null) clearTimeout(this.#slow)
    this.#slow = null
    void this.#line.end()
  }

  /** Once there is a command it goes on where the connection is made again; else what was asked tells what became of it. */
  connection(state: ConnectionState): void {
    if (this.#program === null || (!state.connected && !state.again)) return
    this.#cutOff = !state.connected
    process.stderr.write(
      state.connected
        ? 'rexd: connected again\n'
        : `rexd: ${state.loss.message}; trying to come back, for some minutes (Ctrl-C gives up)\n`,
    )
    if (state.connected && this.#untold && this.#first !== null) this.#emit(this.#first)
  }

  /** A terminal in raw mode says Ctrl-C like any other key: it is for the command, unless nothing gets there. */
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
    if (this.#cutOff) process.stderr.write('rexd: given up; the server ends the command when nobody has come back for a minute\n')
    process.exit(exitOfSignal(name))
  }

  #emit(name: NodeJS.Signals): void {
    this.#untold = false
    this.#program?.kill(name).catch((error: unknown) => {
      this.#untold = error instanceof RexdDisconnected && error.sent
    })
  }
}
