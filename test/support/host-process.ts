import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

/** The runtime compiles what hosts load once for all of their processes. */
const ENVIRONMENT = { ...process.env, NODE_COMPILE_CACHE: fileURLToPath(new URL('../../node_modules/.cache/compile', import.meta.url)) }

/** A process of its own for many hosts, which is told what they are and answers questions: a line of JSON each. */
export class HostProcess {
  readonly #child: ChildProcess
  readonly #answers: AsyncIterator<string>

  /** `program` calls `answerQuestions`. */
  constructor(program: URL, init: unknown) {
    const words = [fileURLToPath(program), JSON.stringify(init)]
    this.#child = spawn(process.execPath, words, { stdio: ['pipe', 'pipe', 'inherit'], env: ENVIRONMENT })
    // One that has ended is told by the answer that does not come.
    this.#child.stdin!.on('error', () => undefined)
    this.#answers = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]()
  }

  /** One at a time. */
  async ask<Answer>(question: unknown): Promise<Answer> {
    this.#child.stdin!.write(`${JSON.stringify(question)}\n`)
    const answer = await this.#answers.next()
    if (answer.done === true) throw new Error('the process of hosts has ended: see its standard error')
    return JSON.parse(answer.value) as Answer
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const exited = once(this.#child, 'exit')
    this.#child.stdin!.end()
    await exited
  }
}

/** In the process of hosts: its init, and what answers until nobody asks any more. What throws ends it. */
export const answerQuestions = async <Init, Question>(
  begin: (init: Init) => Promise<{ answer(question: Question): Promise<unknown>; stop(): Promise<void> }>,
): Promise<void> => {
  const { answer, stop } = await begin(JSON.parse(process.argv[2] ?? '') as Init)
  for await (const line of createInterface({ input: process.stdin }))
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line) as Question))}\n`)
  await stop()
}
