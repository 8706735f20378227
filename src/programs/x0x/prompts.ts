import { type Interface, createInterface } from 'node:readline'
import { AppError } from '../../base/errors.ts'
import { write } from '../../cli/output.ts'
import type { CliContext } from './context.ts'

/** Whether a user can answer questions. */
export const isAtTerminal = ({ stdin, stdout }: CliContext): boolean => stdin.isTTY === true && stdout.isTTY === true

/** Asks a question at a terminal. Only `y` or `yes` confirms. The end of input does not. */
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

/** Asks a user, or a program, for lines. Questions go to standard error, so that standard output has the result only. */
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

  /** Throws `conflict` at the end of input and at Ctrl-C. */
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
