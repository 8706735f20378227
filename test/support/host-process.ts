import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

/** All host processes share one compile cache. */
const ENVIRONMENT = { ...process.env, NODE_COMPILE_CACHE: fileURLToPath(new URL('../../node_modules/.cache/compile', import.meta.url)) }

/** A process that simulates many hosts. It receives their description and answers questions, as one line of JSON each. */
export class HostProcess {
  readonly #child: ChildProcess
  readonly #answers: AsyncIterator<string>

  /** `program` calls `answerQuestions`. */
  constructor(program: URL, init: unknown) {
    const words = [fileURLToPath(program), JSON.stringify(init)]
    this.#child = spawn(process.execPath, words, { stdio: ['pipe', 'pipe', 'inherit'], env: ENVIRONMENT })
    // If the process has ended, the missing answer reports it.
    this.#child.stdin!.on('error', () => undefined)
    this.#answers = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]()
  }

  /** Only one question may be open at a time. */
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

/** Runs in the process of hosts: reads its init, then answers questions until stdin ends. An exception ends the process. */
export const answerQuestions = async <Init, Question>(
  begin: (init: Init) => Promise<{ answer(question: Question): Promise<unknown>; stop(): Promise<void> }>,
): Promise<void> => {
  const { answer, stop } = await begin(JSON.parse(process.argv[2] ?? '') as Init)
  for await (const line of createInterface({ input: process.stdin }))
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line) as Question))}\n`)
  await stop()
}
