import { createInterface } from 'node:readline'
import { write } from '../../supervision/program-output.ts'
import type { CliContext } from './context.ts'

/** A human is there: what is asked is read, and what is typed was meant. */
export const isAtTerminal = ({ stdin, stdout }: CliContext): boolean => stdin.isTTY === true && stdout.isTTY === true

/** Asks at a terminal. Only `y` or `yes` is one; the end of input is none. */
export const confirmed = async (context: CliContext, question: string): Promise<boolean> => {
  await write(context.stdout, `${question} y/N `)
  const lines = createInterface({ input: context.stdin, terminal: false })
  const stop = context.onSignal(() => lines.close())
  try {
    const answer = await new Promise<string>((resolve) => {
      lines.once('line', resolve)
      lines.once('close', () => resolve(''))
    })
    return /^y(es)?$/i.test(answer.trim())
  } finally {
    stop()
    lines.close()
  }
}
