import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { loadOrCreateAgentKey } from '../../src/identity/agent-key.ts'
import { decodeCardLink, encodeCardLink, signCard } from '../../src/identity/card.ts'
import { LocalApi } from '../../src/clients/daemon.ts'
import { operate } from '../../src/clients/operator.ts'
import { CARD_DOMAIN, cardBody } from '../../src/protocol/wire/card.ts'
import { wholeLines, isLifeEvent } from './journal.ts'
import { ownPort } from './own-port.ts'
import { patient } from './wait-limits.ts'

/** The bundles that `npm run build` makes, which users run. */
export const DIST = fileURLToPath(new URL('../../dist', import.meta.url))
export const CLI = join(DIST, 'x0x.cjs')
/** The path of another CLI to test, from X0X_TEST_CLI. Default: the built CLI. */
const OTHER_CLI = process.env['X0X_TEST_CLI']
/** The program and the arguments that start the CLI. */
export const cliCommand: readonly [string, ...string[]] = OTHER_CLI === undefined ? [process.execPath, CLI] : [OTHER_CLI]
const DAEMON = join(DIST, 'x0xd.mjs')

/** Long enough for a loaded machine. Successful tests never wait this long. */
const PATIENCE_MS = patient(30_000)

/** Polls until the answer is neither null nor false. Used for states without events, such as files and processes. */
export const until = async <T>(
  what: string,
  ask: () => Promise<T | null | false> | T | null | false,
  patienceMs = PATIENCE_MS,
): Promise<T> => {
  const deadline = performance.now() + patienceMs
  for (;;) {
    const answer = await ask()
    if (answer !== null && answer !== false) return answer
    if (performance.now() > deadline) throw new Error(`${what}: not within ${patienceMs} ms`)
    await sleep(20)
  }
}

export interface CliResult {
  /** The exit status, or 128 + n after signal n. */
  readonly status: number
  readonly stdout: Buffer
  readonly stderr: string
  readonly ms: number
}

export interface RunningCli {
  readonly child: ChildProcess
  readonly finished: Promise<CliResult>
  /** Resolves when stdout contains this text. */
  printed(text: string): Promise<void>
  /** Resolves when stderr contains this text. */
  said(text: string): Promise<void>
}

export interface CliOptions {
  readonly stdin?: Uint8Array
  readonly env?: Readonly<Record<string, string>>
  /** Leave stdout unread. */
  readonly unread?: boolean
  /** The directory of another release's bundles, whose CLI runs instead. */
  readonly release?: string | null
}

const SIGNAL_NUMBERS: Readonly<Record<string, number>> = { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 }

/** Starts the real command line. */
export const startCli = (argv: readonly string[], options: CliOptions = {}): RunningCli => {
  const began = performance.now()
  const { release = null } = options
  const [file, ...words] = release === null ? cliCommand : [process.execPath, join(release, 'x0x.cjs')]
  const child = spawn(file, [...words, ...argv], {
    env: { ...cleanEnvironment(), ...options.env },
    stdio: [options.stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  })
  const chunks: Buffer[] = []
  const listeners = new Set<() => void>()
  let stderr = ''
  if (options.unread !== true) {
    child.stdout?.on('data', (chunk: Buffer) => {
      chunks.push(chunk)
      for (const listener of listeners) listener()
    })
  }
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
    for (const listener of listeners) listener()
  })
  if (options.stdin !== undefined) {
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(options.stdin)
  }
  const finished = once(child, options.unread === true ? 'exit' : 'close').then(([code, signal]: (number | string | null)[]) => ({
    status: typeof code === 'number' ? code : 128 + (SIGNAL_NUMBERS[String(signal)] ?? 0),
    stdout: Buffer.concat(chunks),
    stderr,
    ms: performance.now() - began,
  }))
  const shown = async (text: string, output: () => { includes(text: string): boolean }): Promise<void> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        if (!output().includes(text)) return
        listeners.delete(look)
        resolve()
      }
      listeners.add(look)
      look()
      void finished.then((result) => reject(new Error(`ended with ${result.status} before it printed ${text}: ${result.stderr}`)))
    })
  const printed = async (text: string): Promise<void> => shown(text, () => Buffer.concat(chunks))
  const said = async (text: string): Promise<void> => shown(text, () => stderr)
  return { child, finished, printed, said }
}

/** The environment without variables that choose another daemon. */
export const cleanEnvironment = (): Record<string, string> => ({
  ...Object.fromEntries(
    Object.entries(process.env).flatMap(([key, value]) => (key.startsWith('X0X_') || value === undefined ? [] : [[key, value]])),
  ),
  // A child of the daemon sees this HOME, so that both find the same ~/.x0x-NAME.
  HOME: userInfo().homedir,
})

const daemonEnvironment = (): Record<string, string> => ({ ...cleanEnvironment(), X0X_MDNS: 'false' })

/** Runs `x0xd` to its end, for calls that must exit. A process that does not exit is killed and has the status null. */
export const runDaemonCommand = async (
  argv: readonly string[],
  daemon = DAEMON,
): Promise<{ status: number | null; stdout: string; stderr: string }> => {
  const child = spawn(process.execPath, [daemon, ...argv], {
    env: daemonEnvironment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.stderr += text))
  const timer = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS)
  await once(child, 'close')
  clearTimeout(timer)
  return { status: child.exitCode, ...output }
}

export interface AclEntry {
  readonly description?: string
  readonly agent: Pick<TestDaemon, 'agentId' | 'machineId'> & { readonly name?: string }
  readonly commands: readonly (readonly string[])[]
  /** Lines of the ACL entry. */
  readonly keys?: string
  /** Its commands may run on a terminal. */
  readonly terminals?: boolean
  /** Lines of each of its commands. */
  readonly commandKeys?: string
}

export interface DaemonOptions {
  /** Further flags, after those of every daemon. */
  readonly flags?: readonly string[]
  /** Use `--name` instead of `--data-dir`. */
  readonly instance?: string
  /** Keeps running when this process ends. */
  readonly detached?: boolean
  /** Another daemon program, with the arguments that start it. */
  readonly program?: readonly [string, ...string[]]
  /** Further environment variables, after those of every daemon. */
  readonly env?: Readonly<Record<string, string>>
}

const toml = (value: unknown): string => JSON.stringify(value)

/** A real daemon with its own process, directory and mesh port. The system chooses the API port. */
export class TestDaemon {
  readonly name: string
  readonly dir: string
  readonly options: DaemonOptions
  /** The directory of the release that its next start uses. Null: this release. */
  release: string | null = null
  agentId = ''
  machineId = ''
  apiPort = 0
  /** Its line on standard output. */
  ready = ''
  #child: ChildProcess | null = null
  #meshPort = 0
  #exited: Promise<unknown> = Promise.resolve()

  constructor(name: string, dir: string, options: DaemonOptions = {}) {
    this.name = name
    this.dir = dir
    this.options = options
  }

  get pid(): number {
    assert.ok(this.#child?.pid, `${this.name} does not run`)
    return this.#child.pid
  }

  get running(): boolean {
    return this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null
  }

  get aclFile(): string {
    return join(this.dir, 'exec-acl.toml')
  }

  get journalFile(): string {
    return join(this.dir, 'exec.log')
  }

  get logFile(): string {
    return join(this.dir, 'x0xd.log')
  }

  /** Its standard error since the last start. */
  async log(): Promise<string> {
    return readFile(this.logFile, 'utf8')
  }

  /** The options that select this daemon on a command line. */
  get selector(): readonly string[] {
    return this.options.instance === undefined ? ['--data-dir', this.dir] : ['--name', this.options.instance]
  }

  get multiaddr(): string {
    return `/ip4/127.0.0.1/tcp/${this.#meshPort}`
  }

  /** Chooses the port for all starts, before the first start. */
  async keepPort(): Promise<void> {
    if (this.#meshPort === 0) this.#meshPort = await ownPort()
  }

  /** Starts the daemon and waits until it is ready. It keeps its ports. */
  async start(): Promise<void> {
    assert.ok(existsSync(DAEMON) && existsSync(CLI), 'dist/ is missing: npm run build')
    await this.keepPort()
    await mkdir(this.dir, { recursive: true, mode: 0o700 })
    const acl = existsSync(this.aclFile) ? ['--exec-acl', this.aclFile] : []
    const flags = ['--api-port', '0', '--listen', this.multiaddr, ...acl, ...(this.options.flags ?? [])]
    const log = await open(this.logFile, 'w', 0o600)
    const here = this.options.program ?? ([process.execPath, DAEMON] as const)
    const [file, ...words] = this.release === null ? here : [process.execPath, join(this.release, 'x0xd.mjs')]
    const child = spawn(file, [...words, ...this.selector, ...flags], {
      env: { ...daemonEnvironment(), X0X_DISPLAY_NAME: this.name, ...this.options.env },
      stdio: ['ignore', 'pipe', log.fd],
      detached: this.options.detached ?? false,
    })
    await log.close()
    this.#child = child
    this.#exited = once(child, 'exit')
    this.ready = await this.#readyLine(child)
    const [, agentId = '', machineId = '', apiPort = ''] = /agent (\w+), machine (\w+), api 127\.0\.0\.1:(\d+),/.exec(this.ready) ?? []
    Object.assign(this, { agentId, machineId, apiPort: Number(apiPort) })
  }

  async #readyLine(child: ChildProcess): Promise<string> {
    let text = ''
    for await (const part of child.stdout ?? []) {
      text += String(part)
      if (text.includes('\n')) return text
    }
    await this.#exited
    throw new Error(`${this.name} did not start: ${await this.log()}`)
  }

  /** Stops it and waits. Returns the exit status, or 128 + n after signal n. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number> {
    const child = this.#child
    if (child === null) return 0
    if (this.running) child.kill(signal)
    await this.#exited
    this.#child = null
    return child.exitCode ?? 128 + (SIGNAL_NUMBERS[child.signalCode ?? ''] ?? 0)
  }

  /** Runs `x0x` against this daemon to its end. */
  async cli(argv: readonly string[], options: CliOptions = {}): Promise<CliResult> {
    return this.startCli(argv, options).finished
  }

  startCli(argv: readonly string[], options: CliOptions = {}): RunningCli {
    return startCli([...this.selector, ...argv], { release: this.release, ...options })
  }

  /** Runs `x0x exec AGENT -- ARGV`. */
  async exec(
    agent: TestDaemon | string,
    argv: readonly string[],
    flags: readonly string[] = [],
    options: CliOptions = {},
  ): Promise<CliResult> {
    return this.cli(['exec', typeof agent === 'string' ? agent : agent.name, ...flags, '--', ...argv], options)
  }

  /** Runs a command on another agent through the API, and returns its exit code. */
  async run(agent: TestDaemon, argv: readonly string[]): Promise<number | null> {
    const body = { agent: agent.name, argv }
    return (await this.api.json<{ code: number | null }>({ method: 'POST', path: '/exec/run', body })).code
  }

  /** The object that a command prints with `--json`. */
  async json<T>(...argv: readonly string[]): Promise<T> {
    const result = await this.cli(['--json', ...argv])
    assert.equal(result.status, 0, `x0x ${argv.join(' ')}: ${result.stderr}`)
    return JSON.parse(result.stdout.toString()) as T
  }

  async ok(...argv: readonly string[]): Promise<string> {
    const result = await this.cli(argv)
    assert.equal(result.status, 0, `x0x ${argv.join(' ')}: ${result.stderr}`)
    return result.stdout.toString()
  }

  /** Its API. One CLI process takes the time of fifty API calls, so tests that poll use the API. */
  get api(): LocalApi {
    return new LocalApi({ instance: { name: null, dataDir: this.dir }, url: null, env: {} })
  }

  async get<T>(path: string): Promise<T> {
    return this.api.json({ method: 'GET', path })
  }

  async #card(): Promise<{ link: string }> {
    return this.get('/agent/card')
  }

  async #agent(): Promise<{ addresses: string[] }> {
    return this.get('/agent')
  }

  /** True if its API answers. */
  async answers(): Promise<boolean> {
    return this.#agent().then(
      () => true,
      () => false,
    )
  }

  async diagnostics(): Promise<ExecDiagnosticsJson> {
    return this.get('/diagnostics/exec')
  }

  /** Imports the card of another daemon. If requested, trusts it and pins its machine. */
  async meet(other: TestDaemon, trust: 'trusted' | 'known' | 'unknown' = 'unknown'): Promise<void> {
    const { link } = await other.#card()
    await this.take(link, other.name, trust)
    if (trust === 'trusted') await operate(this, '/contacts/pin', { contact: other.name, machine_id: other.machineId })
  }

  /** Imports a card under this name. If requested, trusts the agent. */
  async take(card: string, name: string, trust: 'trusted' | 'known' | 'unknown' = 'unknown'): Promise<void> {
    await operate(this, '/agent/card/import', { card, name })
    if (trust !== 'unknown') await operate(this, '/contacts/trust', { contact: name, level: trust })
  }

  /** A card of this agent with these addresses, which are the only ones that its holder can dial. */
  async cardVia(addresses: readonly string[]): Promise<string> {
    const body = cardBody.decode(decodeCardLink((await this.#card()).link).body)
    const signer = await loadOrCreateAgentKey(this.dir)
    return encodeCardLink(await signCard(signer, { ...body, addresses: [...addresses] }, CARD_DOMAIN))
  }

  /** The `/p2p/…` suffix of this machine. */
  async peerSuffix(): Promise<string> {
    const { addresses } = await this.#agent()
    return addresses[0]?.slice(addresses[0].indexOf('/p2p/')) ?? ''
  }

  /** Writes the ACL, which the daemon reads at its next start. */
  async writeAcl(entries: readonly AclEntry[], keys = ''): Promise<void> {
    const head = `[exec]\nenabled = true\naudit_log_path = ${toml(this.journalFile)}\ndefault_cwd = "/"\n${keys}\n`
    const blocks = entries.map(({ agent, commands, description = agent.name ?? '', keys: own = '', terminals = false, commandKeys = '' }) =>
      [
        `[[exec.allow]]\ndescription = ${toml(description)}\nagent_id = ${toml(agent.agentId)}\nmachine_id = ${toml(agent.machineId)}\n${own}`,
        ...commands.map(
          (argv) => `[[exec.allow.commands]]\nargv = [${argv.map(toml).join(', ')}]${terminals ? '\nterminal = true' : ''}\n${commandKeys}`,
        ),
      ].join('\n'),
    )
    await mkdir(this.dir, { recursive: true, mode: 0o700 })
    await writeFile(this.aclFile, `${head}${blocks.join('\n\n')}\n`, { mode: 0o600 })
  }

  async restart(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    await this.stop(signal)
    await this.start()
  }

  /** The audit log without the lines about the log itself. */
  async journal(): Promise<JournalLineJson[]> {
    const text = await readFile(this.journalFile, 'utf8').catch(() => '')
    return wholeLines(text)
      .map((line) => JSON.parse(line) as JournalLineJson)
      .filter((line) => !isLifeEvent(line))
  }

  /** The PID of the first started program. Its line can appear after its output. */
  async startedPid(): Promise<number> {
    return until('its start is in the journal', async () => {
      const started = (await this.journal()).find(({ event }) => event === 'started')
      return started !== undefined && Number(started['pid'])
    })
  }

  /** The PID of its network process. `pid` is the executor process. */
  async networkPid(): Promise<number> {
    return Number((await readFile(join(this.dir, 'network.pid'), 'utf8')).split(' ')[0])
  }

  /** Resident memory of both processes in bytes. */
  async memory(): Promise<number> {
    return (await residentOf(this.pid)) + (await residentOf(await this.networkPid()))
  }
}

export interface ExecDiagnosticsJson {
  readonly enabled: boolean
  readonly active_sessions: number
  readonly totals: Readonly<Record<string, number>> & {
    readonly denial_breakdown: Readonly<Record<string, number>>
    readonly cap_breaches: Readonly<Record<string, number>>
    readonly cap_warnings: Readonly<Record<string, number>>
  }
  readonly acl_summary: Readonly<Record<string, unknown>>
}

export interface JournalLineJson {
  readonly event: string
  readonly request_id: string
  readonly [key: string]: unknown
}

/** Daemons that share a temporary directory. `stop` checks that no process remains. */
export class MeshOfDaemons {
  readonly root: string
  readonly daemons: TestDaemon[] = []

  constructor(root: string) {
    this.root = root
  }

  static async create(prefix = 'x0x-e2e-'): Promise<MeshOfDaemons> {
    return new MeshOfDaemons(await mkdtemp(join(tmpdir(), prefix)))
  }

  /** Adds a daemon without starting it. */
  add(name: string, options: DaemonOptions = {}): TestDaemon {
    const daemon = new TestDaemon(name, join(this.root, name), options)
    this.daemons.push(daemon)
    return daemon
  }

  /** A shell program in a separate file, because policy forbids metacharacters in arguments. */
  async program(name: string, text: string): Promise<string> {
    const path = join(this.root, name)
    await writeFile(path, `#!/bin/sh\n${text}\n`, { mode: 0o755 })
    return path
  }

  /** Stops everything. Throws if a process of this mesh remains. */
  async stop(): Promise<void> {
    try {
      const statuses = await Promise.all(this.daemons.map(async (daemon) => (daemon.running ? daemon.stop() : 0)))
      await until('no process of the mesh is left', async () => (await processesNaming(this.root)).length === 0)
      assert.deepEqual(
        statuses,
        statuses.map(() => 0),
        'every daemon ends with 0',
      )
    } finally {
      for (const daemon of this.daemons) if (daemon.running) await daemon.stop('SIGKILL')
      for (const pid of await processesNaming(this.root)) process.kill(pid, 'SIGKILL')
      await rm(this.root, { recursive: true, force: true, maxRetries: 10 })
    }
  }
}

/** The PIDs of processes whose command line contains this text. */
export const processesNaming = async (text: string): Promise<number[]> => {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const lines = await Promise.all(pids.map(async (pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
  return pids.filter((pid, i) => pid !== process.pid && lines[i]?.includes(text) === true)
}

/** Resident memory of a process in bytes. */
export const residentOf = async (pid: number): Promise<number> => {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024
}

/** Also false for a zombie. */
export const isRunning = (pid: number): boolean => {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

/** Alice may run commands on bob. Bob trusts and pins alice and charlie, and his ACL lists only alice. Charlie knows bob. */
export const aliceBobCharlie = async (
  mesh: MeshOfDaemons,
  commands: AclEntry['commands'],
  aclKeys = '',
  asked: AclEntry['commands'] = [],
) => {
  const [alice, bob, charlie] = [mesh.add('alice'), mesh.add('bob'), mesh.add('charlie')]
  await Promise.all([alice.start(), charlie.start()])
  const askedEntry = { agent: alice, commands: asked, description: 'asked', keys: 'ask = "always"\n' }
  await bob.writeAcl([{ agent: alice, commands }, ...(asked.length === 0 ? [] : [askedEntry])], aclKeys)
  await bob.start()
  await Promise.all([alice.meet(bob, 'known'), charlie.meet(bob, 'known')])
  await bob.meet(alice, 'trusted')
  await bob.meet(charlie, 'trusted')
  return { alice, bob, charlie }
}

/** Announces only an unroutable documentation address, and so no loopback address. The only route is the one that the test cuts. */
export const announceNowhere = async ({ dir }: Pick<TestDaemon, 'dir'>): Promise<void> => {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  await writeFile(join(dir, 'config.toml'), 'announce = ["/ip4/192.0.2.1/tcp/9"]\n', { mode: 0o600 })
}
