import { closeSync, constants as files, openSync } from 'node:fs'
import type { Terminal, TerminalSize } from '../executor-api/local.ts'
import type { CLibrary } from './c-library.ts'
import { TerminalStream } from './terminal-stream.ts'

// Linux, x64 and arm64.
const TIOCSWINSZ = 0x5414
const TCSANOW = 0
/** More than `struct termios` (60 bytes) and the path of a terminal have here. */
const STRUCTURE_BYTES = 256
/** Indexes of the flags in `struct termios`. */
const [INPUT, OUTPUT, LOCAL] = [0, 1, 3] as const
/** Input flags of a usual terminal: BRKINT, ICRNL, IXON, IXANY, IMAXBEL and IUTF8 (termios(3)). */
const USUAL_INPUT = 0x6d02

/** Neither side becomes the terminal of this process, and no later child inherits it. The runtime adds O_CLOEXEC. */
const SIDE = files.O_RDWR | files.O_NOCTTY

/** Sets one descriptor of a program: to one of this process, or to a file that the program opens. */
export interface Assignment {
  readonly to: number
  readonly from: number | { readonly path: string; readonly flags: number }
}

/** A terminal of one program that this process holds itself. */
export class OwnTerminal {
  /** First standard descriptor of the program that is the terminal. The input of a program on a raw terminal is another file. */
  readonly firstDescriptor: 0 | 1
  readonly stream: TerminalStream
  readonly #c: CLibrary
  readonly #master: number
  /** Path of the program's side. */
  readonly #path: string

  /** Throws if the system has no terminal left. */
  constructor(c: CLibrary, { raw = false, cols, rows }: Terminal) {
    this.#c = c
    this.firstDescriptor = raw ? 1 : 0
    this.#master = openSync('/dev/ptmx', SIDE | files.O_NONBLOCK)
    const opened = [this.#master]
    try {
      c.call('unlockTerminal', this.#master)
      const name = Buffer.alloc(STRUCTURE_BYTES)
      c.check('terminalPath', [this.#master, name, name.length])
      this.#path = name.toString('latin1', 0, name.indexOf(0))
      const slave = openSync(this.#path, SIDE)
      opened.push(slave)
      this.#setModes(slave, raw)
      this.#setSize({ cols, rows })
      this.stream = new TerminalStream({ master: this.#master, slave })
    } catch (error) {
      for (const descriptor of opened) closeSync(descriptor)
      throw error
    }
  }

  /** The program leads its session, so the first terminal that it opens becomes the session's (tty_ioctl(4)). */
  get assignments(): readonly Assignment[] {
    const first = this.firstDescriptor
    const opened = { to: first, from: { path: this.#path, flags: files.O_RDWR } }
    return [opened, ...[1, 2].filter((to) => to > first).map((to) => ({ to, from: first }))]
  }

  /** The program receives SIGWINCH. Has no effect after the terminal was closed. */
  resize(size: TerminalSize): void {
    if (this.stream.isOpen) this.#setSize(size)
  }

  #setSize({ cols, rows }: TerminalSize): void {
    this.#c.call('ioctl', this.#master, TIOCSWINSZ, 'void *', Uint16Array.of(rows, cols, 0, 0))
  }

  /** Raw means that bytes pass unchanged. Otherwise the system's defaults are completed. */
  #setModes(slave: number, raw: boolean): void {
    const modes = new Uint32Array(STRUCTURE_BYTES / 4)
    this.#c.call('getModes', slave, modes)
    modes[INPUT] = raw ? 0 : USUAL_INPUT
    if (raw) for (const flags of [OUTPUT, LOCAL]) modes[flags] = 0
    this.#c.call('setModes', slave, TCSANOW, modes)
  }
}
