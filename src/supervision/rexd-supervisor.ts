import type { Readable } from 'node:stream'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { DataPaths } from '../clients/paths.ts'
import { loadHttpRexdConfig } from '../config/rexd-config.ts'
import { REXD_START_MS, REXD_STOP_MS } from '../protocol/limits/daemon.ts'
import { type OwnProcess, ownProgram, programArguments, startOwnProcess } from './own-process.ts'
import { type SupervisedChild, Supervisor } from './supervisor.ts'

export interface RexdSupervisorInit {
  readonly config: string
  readonly paths: DataPaths
}

/** Its only line on standard output. */
const READY = /^rexd \S+ ready: (.+), token in .+\n/

/** Runs `rexd --http` beside the daemon, which also works without it. */
export class RexdSupervisor implements Startable {
  readonly #init: RexdSupervisorInit
  readonly #supervisor: Supervisor
  #url: string | null = null
  #child: OwnProcess | null = null
  #reloadAsked = false

  constructor(components: { clock: Clock; log: Logger }, init: RexdSupervisorInit) {
    this.#init = init
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

  async #start(): Promise<SupervisedChild> {
    const { config, paths } = this.#init
    // Read before each start, so that mistakes in the configuration appear in this log and its variables are passed on.
    const { policy } = await loadHttpRexdConfig(config, process.env)
    const child = startOwnProcess({
      argv: [...programArguments(ownProgram('rexd')), '--http', '--exit-on-eof', '--config', config],
      env: { ...policy.env, X0X_DATA_DIR: paths.dir },
      // Nothing is written to its stdin. Closing it tells REXD that this process ended (`--exit-on-eof`).
      stdio: ['pipe', 'pipe', 2],
      user: null,
    })
    this.#child = child
    const { pid, ended } = child
    const ready = this.#listens(child.stdio[1] as Readable, ended)
    return { pid, ended, ready, askToStop: () => child.kill('SIGTERM'), kill: () => child.kill('SIGKILL') }
  }

  async #listens(stdout: Readable, ended: Promise<string>): Promise<void> {
    this.#url = null
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    let text = ''
    const listen = (part: string): void => {
      text += part
      const url = READY.exec(text)?.[1]
      if (url === undefined) return
      resolve(url)
      // Further output is not expected and is drained.
      stdout.off('data', listen).resume()
    }
    stdout.setEncoding('utf8').on('data', listen)
    const remedy = `see the line before this one; rexd --check --config ${this.#init.config} checks its configuration`
    void ended.then((how) => reject(new AppError('internal', `it ended before it listened (${how}): ${remedy}`)))
    this.#url = await promise
    if (this.#reloadAsked) this.reload()
    this.#reloadAsked = false
  }
}
