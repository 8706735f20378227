import { PassThrough } from 'node:stream'

import { main } from '../../src/programs/x0x/main.ts'

/** A command line that runs on a terminal in this process, with input that the test types. */
export interface TypedCli {
  readonly status: Promise<number>
  /** All terminal output so far. */
  text(): string
  type(keys: string): void
  /** Waits for a match in the output since the last call. */
  until(pattern: RegExp): Promise<string>
  interrupt(): void
  /** The last state that `setRawMode` received. */
  isRaw(): boolean
}

export const typedCli = (argv: readonly string[], env: Record<string, string> = {}): TypedCli => {
  let raw = false
  const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: (on: boolean) => (raw = on) })
  const stdout = Object.assign(new PassThrough(), { isTTY: true, columns: 100 })
  let [text, from] = ['', 0]
  let changed: () => void = () => undefined
  stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part
    changed()
  })
  let interrupt: (signal: NodeJS.Signals) => void = () => undefined
  const onSignal = (listener: (signal: NodeJS.Signals) => void) => {
    interrupt = listener
    return () => undefined
  }
  const status = main(argv, { NO_COLOR: '1', ...env }, { stdin, stdout, stderr: stdout, onSignal })
  return {
    status,
    text: () => text,
    type: (keys) => void stdin.write(keys),
    interrupt: () => interrupt('SIGINT'),
    isRaw: () => raw,
    until: async (pattern) => {
      for (;;) {
        const found = pattern.exec(text.slice(from))
        if (found !== null) {
          from += found.index + found[0].length
          return found[0]
        }
        await new Promise<void>((resolve) => (changed = resolve))
      }
    },
  }
}
