import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, realpath, rm } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import type { TranscriptEntry } from '../../src/protocol/console/transcript.ts'
import { until } from './processes.ts'

const PROGRAM = fileURLToPath(new URL('../../deploy/bin/rexec.cjs', import.meta.url))
const X0X = fileURLToPath(new URL('../../deploy/bin/x0x.cjs', import.meta.url))

export interface Ended {
  readonly status: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** A running program and all its output. */
export class Watched {
  readonly child: ChildProcess
  readonly ended: Promise<Ended>
  stdout = ''
  stderr = ''
  readonly #looks = new Set<() => void>()

  constructor(child: ChildProcess) {
    this.child = child
    for (const name of ['stdout', 'stderr'] as const)
      child[name]?.setEncoding('utf8').on('data', (text: string) => {
        this[name] += text
        for (const look of this.#looks) look()
      })
    this.ended = once(child, 'close').then(([status, signal]) => {
      for (const look of this.#looks) look()
      return { status: status as number | null, signal: signal as NodeJS.Signals | null, stdout: this.stdout, stderr: this.stderr }
    })
  }

  get pid(): number {
    return this.child.pid ?? 0
  }

  /** Waits until either stream has printed a match, and returns the match. */
  async printed(wanted: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const found = wanted.exec(this.stdout) ?? wanted.exec(this.stderr)
      if (found !== null) return found
      assert.ok(this.child.exitCode === null && this.child.signalCode === null, `it ended: ${this.stdout}${this.stderr}`)
      await new Promise<void>((resolve) => {
        const look = (): void => {
          this.#looks.delete(look)
          resolve()
        }
        this.#looks.add(look)
      })
    }
  }
}

/** A connection to a console host, read line by line. */
export class RawClient {
  readonly socket: Socket
  readonly #lines: AsyncIterator<string>

  constructor(path: string) {
    this.socket = connect(path)
    this.socket.on('error', () => undefined)
    this.#lines = createInterface({ input: this.socket, crlfDelay: Infinity })[Symbol.asyncIterator]()
  }

  send(message: object | string): void {
    this.socket.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`)
  }

  /** Returns null if the host has closed the connection. */
  async next(): Promise<Record<string, unknown> | null> {
    const { done, value } = await this.#lines.next()
    return done === true ? null : (JSON.parse(value) as Record<string, unknown>)
  }
}

/** A temporary home and socket, so that the tests touch no console host of the user. */
export class ConsolePlace {
  readonly dir: string
  readonly socket: string
  readonly env: Record<string, string>
  readonly #children: Watched[] = []

  private constructor(dir: string) {
    this.dir = dir
    this.socket = join(dir, 'run', 'c.sock')
    this.env = { PATH: process.env['PATH'] ?? '', HOME: join(dir, 'home'), REXEC_SOCKET: this.socket }
  }

  static async make(t: TestContext): Promise<ConsolePlace> {
    const place = new ConsolePlace(await mkdtemp(join(await realpath(tmpdir()), 'x0x-console-')))
    await mkdir(join(place.dir, 'home'), { mode: 0o700 })
    t.after(async () => {
      for (const { child } of place.#children) if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM')
      await Promise.all(place.#children.map(async ({ ended }) => ended))
      await rm(place.dir, { recursive: true, force: true, maxRetries: 10 })
    })
    return place
  }

  /** Starts `rexec`, or `program`, with these words. `stdout` replaces the captured stdout. `through` is a command prefix. */
  begin(
    words: readonly string[],
    {
      env = {},
      program = 'rexec',
      stdout = 'pipe',
      through = [],
    }: { env?: Record<string, string>; program?: 'rexec' | 'x0x'; stdout?: 'pipe' | number; through?: readonly string[] } = {},
  ): Watched {
    const file = program === 'rexec' ? PROGRAM : X0X
    const [command = '', ...rest] = [...through, process.execPath, file, ...words]
    const child = spawn(command, rest, {
      env: { ...this.env, ...env },
      cwd: this.dir,
      stdio: ['pipe', stdout, 'pipe'],
    })
    child.stdin?.on('error', () => undefined)
    const watched = new Watched(child)
    this.#children.push(watched)
    return watched
  }

  /** Starts a host that listens. */
  async host(words: readonly string[] = ['--start-host'], options: Parameters<ConsolePlace['begin']>[1] = {}): Promise<Watched> {
    const host = this.begin(words, options)
    await host.printed(/rexec transcript: /)
    return host
  }

  async rexec(
    words: readonly string[],
    { stdin = '', env = {} }: { stdin?: string | Buffer; env?: Record<string, string> } = {},
  ): Promise<Ended> {
    const client = this.begin(words, { env })
    client.child.stdin?.end(stdin)
    return client.ended
  }

  /** Runs one command as the client Codex in the directory of this test. */
  async run(argv: readonly string[], words: readonly string[] = [], stdin: string | Buffer = ''): Promise<Ended> {
    return this.rexec(['--whoami', 'Codex', '--dir', this.dir, ...words, '--', ...argv], { stdin })
  }

  /** A request as a client sends it. */
  request(exec: readonly string[], more: object = {}): object {
    return { whoami: 'Codex', dir: this.dir, envs: {}, exec, ...more }
  }

  client(): RawClient {
    return new RawClient(this.socket)
  }

  /** Waits for this number of entries in all transcripts, and returns them oldest first. A reply can arrive before its entry. */
  async entries(count: number): Promise<TranscriptEntry[]> {
    let found = await this.#entries()
    await until(async () => {
      found = await this.#entries()
      return found.length >= count
    })
    assert.equal(found.length, count)
    return found
  }

  async #entries(): Promise<TranscriptEntry[]> {
    const directory = join(this.dir, 'home', '.rexec')
    const files = (await readdir(directory)).filter((name) => name.endsWith('.jsonl')).sort()
    const texts = await Promise.all(files.map((name) => readFile(join(directory, name), 'utf8')))
    return texts.flatMap((text) => text.split('\n').filter(Boolean)).map((line) => JSON.parse(line) as TranscriptEntry)
  }
}
