import type { Clock } from '../../base/clock.ts'
import { TerminalFilter } from '../../base/terminal-filter.ts'
import { type RecordedOutput, TranscriptOutput } from '../../protocol/transcript-output.ts'

/** What is kept of a run's output, which is bounded: for its agent without what a terminal obeys, and as it came. */
export class RunOutput {
  readonly #clock: Clock
  readonly #began: number
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  readonly #filter = new TerminalFilter()
  readonly #plain = new TranscriptOutput()
  readonly #raw = new TranscriptOutput()

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
    this.#began = this.#clock.monotonic()
  }

  push(data: Uint8Array): void {
    const text = this.#decoder.decode(data, { stream: true })
    this.#add(text, this.#filter.push(text))
  }

  /** Nothing more comes. */
  end(): void {
    const text = this.#decoder.decode()
    this.#add(text, this.#filter.push(text) + this.#filter.end())
  }

  /** Without what a terminal obeys. */
  plain(): RecordedOutput {
    return this.#plain.recorded()
  }

  /** As the program wrote it. */
  raw(): RecordedOutput {
    return this.#raw.recorded()
  }

  #add(raw: string, plain: string): void {
    const ms = this.#clock.monotonic() - this.#began
    this.#raw.push(raw, ms)
    this.#plain.push(plain, ms)
  }
}
