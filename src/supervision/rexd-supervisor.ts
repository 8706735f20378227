import type { Readable, Writable } from 'node:stream'
import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { DataPaths } from '../clients/paths.ts'
import { loadHttpRexdConfig } from '../config/rexd-config.ts'
import { NO_WORK, type WorkList } from '../protocol/handover.ts'
import { REXD_START_MS, REXD_STOP_MS } from '../protocol/limits/daemon.ts'
import { LineSplitter } from '../protocol/lines.ts'
import { type OwnProcess, ownProgram, programArguments, startOwnProcess } from './own-process.ts'
import { MAX_REXD_LINE, type RexdWord, workIn } from './rexd-drain.ts'
import { type SupervisedChild, Supervisor } from './supervisor.ts'

export interface RexdSupervisorInit {
  readonly config: string
  readonly paths: DataPaths
}

/** Its first line on standard output. During a drain, lines of `rexd-drain.ts` follow. */
const READY = /^rexd \S+ ready: (.+), token in /

/** Runs `rexd --http` beside the daemon, which also works without it. */
export class RexdSupervisor implements Startable {
  readonly #init: RexdSupervisorInit
  readonly #supervisor: Supervisor
  readonly #log: Logger
  #url: string | null = null
  #child: OwnProcess | null = null
  #reloadAsked = false
  #isDraining = false
  #work: WorkList | null = null

  constructor(components: { clock: Clock; log: Logger }, init: RexdSupervisorInit) {
    this.#init = init
    this.#log = components.log
    this.#supervisor = new Supervisor(components, {
      name: 'rexd',
      pidFile: init.paths.rexdPid,
      stopMs: REXD_STOP_MS,
      patienceMs: REXD_START_MS,
      begin: async () => this.#start(),
    })
  }

  get where(): string {
    return this.#url ?? 'not running'
  }

  /** Resolves even if it cannot be started. The start is retried. */
  async start(): Promise<void> {
    await this.#supervisor.start()
  }

  /** Makes it read its certificates again once it listens. An earlier signal could arrive before its handler is installed. */
  reload(): void {
    if (this.#url === null) this.#reloadAsked = true
    else this.#child?.kill('SIGHUP')
  }

  /** Asks it to end its programs and exit, without waiting. */
  askToStop(): void {
    this.#supervisor.askToStop()
  }

  async stop(): Promise<void> {
    await this.#supervisor.stop()
  }

  /** Makes it refuse new sessions and commands, or accept them again. */
  drain(isDraining: boolean): void {
    this.#isDraining = isDraining
    this.#work = null
    if (this.#url !== null) this.#say(isDraining ? 'drain' : 'serve')
  }

  /** Its programs during a drain, or null while it has not reported them. Without a process there are none. */
  get work(): WorkList | null {
    return this.#url === null ? NO_WORK : this.#work
  }

  #say(word: RexdWord): void {
    const stdin = this.#child?.stdio[0] as Writable | undefined
    stdin?.write(`${word}\n`)
  }

  #take(line: string, resolve: (url: string) => void): void {
    const url = READY.exec(line)?.[1]
    if (url !== undefined) return resolve(url)
    try {
      this.#work = workIn(line) ?? this.#work
    } catch (error) {
      this.#log.warn({ err: errorText(error) }, 'a line of rexd was not understood')
    }
  }

  async #start(): Promise<SupervisedChild> {
    const { config, paths } = this.#init
    // Read before each start, so that mistakes in the configuration appear in this log and its variables are passed on.
    const { policy } = await loadHttpRexdConfig(config, process.env)
    const child = startOwnProcess({
      argv: [...programArguments(ownProgram('rexd')), '--http', '--exit-on-eof', '--config', config],
      env: { ...policy.env, X0X_DATA_DIR: paths.dir },
      // Closing its stdin tells REXD that this process ended (`--exit-on-eof`).
      stdio: ['pipe', 'pipe', 2],
      user: null,
    })
    this.#child = child
    // A word to a process that has just ended is lost.
    child.stdio[0]?.on('error', () => undefined)
    const { pid, ended } = child
    const ready = this.#listens(child.stdio[1] as Readable, ended)
    return { pid, ended, ready, askToStop: () => child.kill('SIGTERM'), kill: () => child.kill('SIGKILL') }
  }

  async #listens(stdout: Readable, ended: Promise<string>): Promise<void> {
    this.#url = null
    this.#work = null
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    const lines = new LineSplitter({ max: MAX_REXD_LINE })
    stdout.on('data', (chunk: Buffer) => {
      for (const line of lines.push(chunk)) this.#take(line.toString(), resolve)
    })
    const remedy = `see the line before this one; rexd --check --config ${this.#init.config} checks its configuration`
    void ended.then((how) => reject(new AppError('internal', `it ended before it listened (${how}): ${remedy}`)))
    this.#url = await promise
    if (this.#isDraining) this.#say('drain')
    if (this.#reloadAsked) this.reload()
    this.#reloadAsked = false
  }
}
