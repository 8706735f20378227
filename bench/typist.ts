import { setTimeout as sleep } from 'node:timers/promises'

import { posixSpawn } from '../src/process/posix-spawn.ts'
import type { TerminalStream } from '../src/process/terminal-stream.ts'

const SIZE = { cols: 80, rows: 24 }
/** Interval between checks whether the program has ended. */
const REAP_MS = 20

/** A program on a terminal of this process. The bench types its input. */
export class Typist {
  readonly #stream: TerminalStream
  readonly #reap: () => boolean
  #shown = ''
  #onShown: () => void = () => undefined

  private constructor(stream: TerminalStream, reap: () => boolean) {
    this.#stream = stream
    this.#reap = reap
    stream.setEncoding('latin1').on('data', (text: string) => {
      this.#shown += text
      this.#onShown()
    })
  }

  static start(file: string, words: readonly string[]): Typist {
    const spawner = posixSpawn()
    if ('problem' in spawner) throw new Error(spawner.problem)
    const env = { ...(process.env as Record<string, string>), TERM: 'xterm-256color' }
    const argv = [file, ...words]
    const { pid, terminal } = spawner.start({ file, argv, env, cwd: '/', descriptors: 3, stdin: true, terminal: SIZE })
    return new Typist(terminal!.stream, () => spawner.reap(pid) !== null)
  }

  /** Waits until the text appears. */
  async shows(text: string): Promise<void> {
    while (!this.#shown.includes(text)) {
      if (this.#reap()) throw new Error(`it ended and showed ${JSON.stringify(this.#shown)}`)
      await new Promise<void>((resolve) => (this.#onShown = resolve))
    }
    this.#shown = ''
  }

  /** Types one key and waits until it appears. */
  async key(key: string): Promise<void> {
    const shown = this.shows(key)
    this.#stream.write(key)
    await shown
  }

  /** Types the end of file and waits for the end of the program. */
  async end(): Promise<void> {
    // Only at the start of a line does this character end the input.
    this.#stream.write('\r\u0004')
    while (!this.#reap()) await sleep(REAP_MS)
    await this.#stream.finish()
  }
}
