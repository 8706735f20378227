import { spawn } from 'node:child_process'
import { once } from 'node:events'

import { cleanEnvironment, cliCommand } from './mesh-of-daemons.ts'

/** A real command-line program that asks questions, and the input that the test types. */
export interface Talk {
  /** The exit status, and the text of standard output and standard error together. */
  readonly ended: Promise<{ readonly status: number | null; readonly text: string; readonly stdout: string }>
  /** Returns the first match after the previous one. */
  until(pattern: RegExp): Promise<string>
  type(line: string): Promise<void>
  interrupt(): void
}

export const talkTo = (argv: readonly string[]): Talk => talkWith([...cliCommand, ...argv], cleanEnvironment())

export const talkWith = ([program = '', ...argv]: readonly string[], env: Readonly<Record<string, string>>): Talk => {
  const child = spawn(program, argv, { env, stdio: 'pipe' })
  let [text, stdout, from] = ['', '', 0]
  let [over, changed] = [false, (): void => undefined]
  const take = (part: string): void => {
    text += part
    changed()
  }
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    stdout += part
    take(part)
  })
  child.stderr.setEncoding('utf8').on('data', take)
  child.stdin.on('error', () => undefined)
  const ended = once(child, 'close').then(() => {
    over = true
    changed()
    return { status: child.exitCode, text, stdout }
  })
  return {
    ended,
    until: async (pattern) => {
      for (;;) {
        const found = pattern.exec(text.slice(from))
        // Later output could extend a match at the very end.
        if (found !== null && (over || from + found.index + found[0].length < text.length)) {
          from += found.index + found[0].length
          return found[0]
        }
        if (over) throw new Error(`it ended without ${pattern}: ${text}`)
        await new Promise<void>((resolve) => (changed = resolve))
      }
    },
    type: async (line) => {
      child.stdin.write(`${line}\n`)
    },
    interrupt: () => void child.kill('SIGINT'),
  }
}
