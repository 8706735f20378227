import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

import { cliCommand, until, type TestDaemon } from './mesh-of-daemons.ts'

/** `x0x exec -tt` with open standard input. */
export class Typed {
  readonly child: ChildProcess
  readonly status: Promise<number>
  stdout = ''
  stderr = ''

  constructor(daemon: TestDaemon, words: readonly string[]) {
    const [file, ...own] = cliCommand
    this.child = spawn(file, [...own, ...daemon.selector, 'exec', '-tt', 'bob', ...words], {
      env: { ...process.env, TERM: 'xterm-256color' },
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    this.child.stdin?.on('error', () => undefined)
    this.child.stdout?.setEncoding('latin1').on('data', (text: string) => (this.stdout += text))
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr += text))
    this.status = once(this.child, 'close').then(([code]) => Number(code))
  }

  type(text: string | Uint8Array): void {
    this.child.stdin?.write(text)
  }

  async shows(text: string): Promise<void> {
    await until(`it shows ${JSON.stringify(text)}, not ${JSON.stringify(this.stdout.slice(-300))} ${this.stderr}`, () =>
      this.stdout.includes(text),
    )
  }
}
