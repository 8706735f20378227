import type { ConsoleScreen } from '../screen.ts'

/** Shows no commands; notes are told. */
export class SilentScreen implements ConsoleScreen {
  readonly #tell: (text: string) => void

  constructor(init: { readonly tell: (text: string) => void }) {
    this.#tell = init.tell
  }

  begin(): void {}

  output(): void {}

  end(): void {}

  note(text: string): void {
    this.#tell(text)
  }

  async close(): Promise<void> {}
}
