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

/** How long a server may take to stop: its programs are asked to end, and killed after five seconds. */
const STOP_MS = 15_000

/** Lines of the sections of a configuration file. */
export interface ConfigOptions {
  readonly server?: readonly string[]
  readonly limits?: readonly string[]
  readonly security?: readonly string[]
  /** In place of the one root directory. */
  readonly roots?: readonly string[]
  readonly audit?: readonly string[]
  /** Of `[tools.exec]`; then a desk that allows what the configuration does is there as well. */
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
/** Why there are no terminals; null: there are. */
export const NO_TERMINALS = hasTerminals ? null : '@lydell/node-pty is not installed'

/** What most tests need: a shell, terminals, two variables, and room for a session each. */
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

/** A directory of a server's own: its configuration, its journal, and the root that callers see. */
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

  /** Below the root, for a session of its own. */
  async newDirectory(): Promise<string> {
    const path = join(this.root, `s${++this.#directories}`)
    await mkdir(path)
    return path
  }

  /** But for what the journal says of itself. */
  async journal(): Promise<JournalLine[]> {
    const text = await readFile(this.journalFile, 'utf8').catch(() => '')
    return text
      .split('\n')
      .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as JournalLine]))
      .filter((line) => !isLifeEvent(line))
  }

  /** A line that a refusal left, which may come a moment after its answer. */
  async refusals(): Promise<JournalLine[]> {
    return (await this.journal()).filter(({ event }) => event === 'refused')
  }

  /** What was refused to a session, as method, code and detail. */
  async refusalsOf(sessionId: string): Promise<string[]> {
    const lines = (await this.refusals()).filter((line) => line['session_id'] === sessionId)
    return lines.map(({ method, code, detail }) => `${String(method)} ${String(code)}: ${String(detail)}`)
  }

  /** A shell program in a file of its own, that stands in a command line with this directory's name. */
  async program(name: string, text: string): Promise<string> {
    const path = join(this.dir, name)
    await writeFile(path, `#!/bin/sh\n${text}\n`, { mode: 0o755 })
    return path
  }

  async remove(): Promise<void> {
    await rm(this.dir, { recursive: true, force: true })
  }
}

/** One `rexd`, a process of its own. */
export class RexdProcess {
  readonly home: Home
  readonly child: ChildProcessWithoutNullStreams
  /** The exit status, or 128 + n. */
  readonly exited: Promise<number>
  #stderr = ''

  /** `through`: the words in front of its own that start it elsewhere. */
  constructor(
    home: Home,
    argv: readonly string[] = ['--stdio', '--config', home.configFile],
    { env = {}, through = [] }: { readonly env?: Readonly<Record<string, string>>; readonly through?: readonly string[] } = {},
  ) {
    this.home = home
    const [program, ...words] = [...through, ...rexdCommand(), ...argv]
    this.child = spawn(program!, words, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'pipe'] })
    // A server that has gone away is noticed by its exit.
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

  /** Asks it to end; what it was asked by is its status. */
  async stop(): Promise<void> {
    this.child.kill('SIGTERM')
    assert.equal(await this.exited, 128 + constants.signals.SIGTERM, this.#stderr)
  }

  /** Resident memory in bytes, the peak since its start where asked for. */
  memory(field: 'VmRSS' | 'VmHWM' = 'VmRSS'): number {
    const status = readFileSync(`/proc/${this.pid}/status`, 'utf8')
    return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) * 1024
  }
}

/** Ends it if it is still there, looks that nothing of it is left, and removes its directory. */
const cleanUp = async (home: Home, process: RexdProcess): Promise<void> => {
  try {
    // Killed at once it could not end what it runs, nor take its control group away.
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

/** What a server that chooses among hosts needs to find its desk. */
const deskEnvironment = async (t: Pick<TestContext, 'after'>, { tools }: ConfigOptions): Promise<Readonly<Record<string, string>>> => {
  if (tools === undefined) return {}
  const desk = await deskPlace(t, { security: 'full' })
  const human = await desk.human()
  // Whoever is asked allows it once he has seen it.
  await human.subscribe((news) => void (news.type === 'question' && decide(human, news, 'allow_once')))
  return { X0X_DATA_DIR: desk.paths.dir }
}

/** Starts `rexd --stdio` with a configuration in a directory that are both gone with the test. */
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

/** A `rexd --http`, where it is found and what lets one in. */
export interface WebRexd {
  readonly process: RexdProcess
  readonly url: string
  readonly token: string
}

/** As `startRexd`, on a free port of this machine. */
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

/** Runs `rexd` to its end with this as its standard input. */
export const runRexd = async (home: Home, argv?: readonly string[], stdin: string | Uint8Array = ''): Promise<Finished> => {
  const rexd = new RexdProcess(home, argv)
  let stdout = ''
  rexd.child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  rexd.child.stdin.end(stdin)
  await once(rexd.child, 'close')
  return { status: await rexd.exited, stdout, stderr: rexd.stderr }
}
