import assert from 'node:assert/strict'
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { deskPlace } from '../../test/support/desk-place.ts'
import { decide } from '../../test/support/desk-watcher.ts'
import { isLifeEvent } from '../../test/support/journal.ts'
import { processesNaming, until } from '../../test/support/mesh-of-daemons.ts'
import { rexdCommand } from '../../test/support/rexd-command.ts'

/** Maximum time for a server to stop. It kills its programs after five seconds. */
const STOP_MS = 15_000

/** Lines of the sections of a configuration file. */
export interface ConfigOptions {
  readonly server?: readonly string[]
  readonly limits?: readonly string[]
  readonly security?: readonly string[]
  /** Roots instead of the default one. */
  readonly roots?: readonly string[]
  readonly audit?: readonly string[]
  /** Lines of `[tools.exec]`. The server then also gets an approval service and an approver that allows everything. */
  readonly tools?: readonly string[]
}

const hasTerminals = ((): boolean => {
  try {
    createRequire(import.meta.url).resolve('@lydell/node-pty')
    return true
  } catch {
    return false
  }
})()
/** Reason why there are no terminals, or null. */
export const NO_TERMINALS = hasTerminals ? null : '@lydell/node-pty is not installed'

/** Configuration for most tests: a shell, terminals, two variables, and enough sessions for all tests. */
export const COMMON: ConfigOptions = {
  limits: ['max_concurrent_sessions = 500'],
  security: ['allow_shell = true', `allow_pty = ${hasTerminals}`, 'allow_env = ["LC_TIME", "CI"]'],
}

export interface JournalLine {
  readonly event: string
  readonly [key: string]: unknown
}

const section = (name: string, lines: readonly string[] | undefined): string =>
  lines === undefined ? '' : `[${name}]\n${lines.join('\n')}\n`

/** Directory of one server: its configuration, its journal, and the root that clients see. */
export class Home {
  readonly dir: string
  readonly root: string
  readonly configFile: string
  readonly journalFile: string
  readonly tokenFile: string
  #directories = 0

  private constructor(dir: string) {
    this.dir = dir
    this.root = join(dir, 'root')
    this.configFile = join(dir, 'config.toml')
    this.journalFile = join(dir, 'audit.jsonl')
    this.tokenFile = join(dir, 'secret', 'token')
  }

  static async create(): Promise<Home> {
    const home = new Home(await mkdtemp(join(tmpdir(), 'x0x-rexd-')))
    await mkdir(home.root)
    return home
  }

  async configure(options: ConfigOptions): Promise<void> {
    const { server, limits, security, roots = [this.root], audit = [`path = ${JSON.stringify(this.journalFile)}`] } = options
    const tables = roots.map((path) => `[[security.allowed_roots]]\npath = ${JSON.stringify(path)}\n`)
    const text = [
      section('server', server),
      section('limits', limits),
      section('audit', audit),
      section('security', security ?? []),
      ...tables,
    ]
    text.push(section('tools.exec', options.tools))
    await writeFile(this.configFile, text.join('\n'), { mode: 0o600 })
  }

  /** Creates a directory below the root for a session. */
  async newDirectory(): Promise<string> {
    const path = join(this.root, `s${++this.#directories}`)
    await mkdir(path)
    return path
  }

  /** Lines of the journal, without those about the journal itself. */
  async journal(): Promise<JournalLine[]> {
    const text = await readFile(this.journalFile, 'utf8').catch(() => '')
    return text
      .split('\n')
      .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as JournalLine]))
      .filter((line) => !isLifeEvent(line))
  }

  /** Lines about refusals. A line may be written a moment after the answer. */
  async refusals(): Promise<JournalLine[]> {
    return (await this.journal()).filter(({ event }) => event === 'refused')
  }

  /** Refusals of a session, as method, code and detail. */
  async refusalsOf(sessionId: string): Promise<string[]> {
    const lines = (await this.refusals()).filter((line) => line['session_id'] === sessionId)
    return lines.map(({ method, code, detail }) => `${String(method)} ${String(code)}: ${String(detail)}`)
  }

  /** Writes a shell program to a file. Its path contains the name of this directory, so its processes can be found. */
  async program(name: string, text: string): Promise<string> {
    const path = join(this.dir, name)
    await writeFile(path, `#!/bin/sh\n${text}\n`, { mode: 0o755 })
    return path
  }

  async remove(): Promise<void> {
    await rm(this.dir, { recursive: true, force: true })
  }
}

/** One `rexd` process. */
export class RexdProcess {
  readonly home: Home
  readonly child: ChildProcessWithoutNullStreams
  /** Exit status, or 128 + n for a signal. */
  readonly exited: Promise<number>
  #stderr = ''

  /** `through` are words before the command that start it elsewhere. */
  constructor(
    home: Home,
    argv: readonly string[] = ['--stdio', '--config', home.configFile],
    { env = {}, through = [] }: { readonly env?: Readonly<Record<string, string>>; readonly through?: readonly string[] } = {},
  ) {
    this.home = home
    const [program, ...words] = [...through, ...rexdCommand(), ...argv]
    this.child = spawn(program!, words, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'pipe'] })
    // The exit event reports a server that is gone.
    this.child.stdin.on('error', () => undefined)
    this.child.stderr.setEncoding('utf8').on('data', (text: string) => (this.#stderr += text))
    this.exited = once(this.child, 'exit').then(([code, signal]: (number | NodeJS.Signals | null)[]) =>
      typeof code === 'number' ? code : 128 + constants.signals[signal as NodeJS.Signals],
    )
  }

  get pid(): number {
    assert.ok(this.child.pid, 'rexd was not started')
    return this.child.pid
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  get stderr(): string {
    return this.#stderr
  }

  /** Stops the server with SIGTERM and checks its exit status. */
  async stop(): Promise<void> {
    this.child.kill('SIGTERM')
    assert.equal(await this.exited, 128 + constants.signals.SIGTERM, this.#stderr)
  }

  /** Resident memory in bytes, or its peak since the start. */
  memory(field: 'VmRSS' | 'VmHWM' = 'VmRSS'): number {
    const status = readFileSync(`/proc/${this.pid}/status`, 'utf8')
    return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) * 1024
  }
}

/** Ends the server if it still runs, checks that none of its processes is left, and removes its directory. */
const cleanUp = async (home: Home, process: RexdProcess): Promise<void> => {
  try {
    // With SIGKILL the server could neither end its programs nor remove its control group.
    if (process.running) process.child.kill('SIGTERM')
    await Promise.race([process.exited, sleep(STOP_MS, null, { ref: false })])
    if (process.running) process.child.kill('SIGKILL')
    await process.exited
    await until('no process of this test is left', async () => (await processesNaming(home.dir)).length === 0)
  } finally {
    for (const pid of await processesNaming(home.dir)) globalThis.process.kill(pid, 'SIGKILL')
    await home.remove()
  }
}

/** Environment with which a server finds its approval service. */
const deskEnvironment = async (t: Pick<TestContext, 'after'>, { tools }: ConfigOptions): Promise<Readonly<Record<string, string>>> => {
  if (tools === undefined) return {}
  const desk = await deskPlace(t, { security: 'full' })
  const human = await desk.human()
  // The approver allows each request.
  await human.subscribe((news) => void (news.type === 'question' && decide(human, news, 'allow_once')))
  return { X0X_DATA_DIR: desk.paths.dir }
}

/** Starts `rexd --stdio` with a configuration. The server and its directory are removed after the test. */
export const startRexd = async (
  t: Pick<TestContext, 'after'>,
  options: ConfigOptions = COMMON,
  env: Readonly<Record<string, string>> = {},
  through: readonly string[] = [],
): Promise<RexdProcess> => {
  const home = await Home.create()
  await home.configure(options)
  const process = new RexdProcess(home, undefined, { env: { ...(await deskEnvironment(t, options)), ...env }, through })
  t.after(async () => cleanUp(home, process))
  return process
}

/** A `rexd --http` with its address and its token. */
export interface WebRexd {
  readonly process: RexdProcess
  readonly url: string
  readonly token: string
}

/** Like `startRexd`, on a free port of this machine. */
export const startWebRexd = async (
  t: Pick<TestContext, 'after'>,
  options: ConfigOptions = COMMON,
  env: Readonly<Record<string, string>> = {},
): Promise<WebRexd> => {
  const home = await Home.create()
  const http = ['http_listen = "127.0.0.1:0"', `token_file = ${JSON.stringify(home.tokenFile)}`]
  await home.configure({ ...options, server: [...(options.server ?? []), ...http] })
  const process = new RexdProcess(home, ['--http', '--config', home.configFile], {
    env: { ...(await deskEnvironment(t, options)), ...env },
  })
  t.after(async () => cleanUp(home, process))
  let said = ''
  process.child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text))
  const url = await until('rexd listens', () => {
    assert.ok(process.running, `rexd did not start: ${process.stderr}`)
    return /^rexd \S+ ready: (http:\S+),.*\n/.exec(said)?.[1] ?? null
  })
  return { process, url, token: (await readFile(home.tokenFile, 'latin1')).trim() }
}

export interface Finished {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs `rexd` to its end with this standard input. */
export const runRexd = async (home: Home, argv?: readonly string[], stdin: string | Uint8Array = ''): Promise<Finished> => {
  const rexd = new RexdProcess(home, argv)
  let stdout = ''
  rexd.child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  rexd.child.stdin.end(stdin)
  await once(rexd.child, 'close')
  return { status: await rexd.exited, stdout, stderr: rexd.stderr }
}
