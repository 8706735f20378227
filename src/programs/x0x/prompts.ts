import { type Interface, createInterface } from 'node:readline'
import { AppError } from '../../base/errors.ts'
import { write } from '../../cli/output.ts'
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

/** Lines that are asked of whoever types them, or of a program that does; what is said goes to standard error, so that standard output is the result alone. */
export class Dialogue {
  readonly #context: CliContext
  readonly #lines: Interface
  readonly #typed: AsyncIterator<string>
  readonly #stop: () => void

  constructor(context: CliContext) {
    this.#context = context
    this.#lines = createInterface({ input: context.stdin, terminal: false })
    this.#typed = this.#lines[Symbol.asyncIterator]()
    this.#stop = context.onSignal(() => this.close())
  }

  async say(text: string): Promise<void> {
    await write(this.#context.stderr, `${text}\n`)
  }

  /** Throws `conflict` at the end of the input and at Ctrl-C. */
  async ask(question: string): Promise<string> {
    await write(this.#context.stderr, question)
    const { done, value } = await this.#typed.next()
    if (done !== true) return value.trim()
    throw new AppError('conflict', 'given up: nothing was changed')
  }

  close(): void {
    this.#stop()
    this.#lines.close()
  }
}
