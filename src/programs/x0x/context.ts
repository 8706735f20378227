import { fstatSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { isatty } from 'node:tty'
import { systemClock } from '../../base/clock.ts'
import { attempt } from '../../base/errors.ts'
import type { GivenOptions } from '../../base/hint.ts'
import type { Environment } from '../../base/runtime.ts'
import { onStopSignal } from '../../cli/exit.ts'
import type { Output } from '../../cli/output.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { type ApiCall, LocalApi, type LocalApiInit } from '../../clients/daemon.ts'
import { type InstanceChoice, instanceChoice } from '../../clients/paths.ts'
import { Progress } from './progress.ts'

/** The process's streams and signals; tests replace them. */
export interface CliIo {
  /** Opened at the first access. */
  readonly stdin: Readable & { readonly isTTY?: boolean }
  /** Whether `stdin` is that of this process. */
  readonly ownsStdin?: boolean
  readonly stdout: Output
  readonly stderr: Output
  /** Calls `listener` for SIGINT, SIGTERM and SIGHUP until the returned function is called. */
  onSignal(listener: (signal: NodeJS.Signals) => void): () => void
  /**
   * If the terminal is gone, ends this process by SIGHUP like other programs. At a normal exit, Node sets the terminal's modes and aborts
   * because it cannot.
   */
  endWhereHungUp?(): void
}

/** Everything that commands use. */
export interface CliContext extends CliIo {
  readonly env: Environment
  readonly instance: InstanceChoice
  /** For hints. */
  readonly given: GivenOptions
  /** `--json`: one object on stdout, nothing else. */
  readonly json: boolean
  /** `--quiet`: only results and failures. */
  readonly quiet: boolean
  readonly progress: Progress
  readonly api: LocalApi
}

/** Shows a progress line while the daemon does not answer. */
class WatchedApi extends LocalApi {
  readonly #progress: Progress

  constructor(components: { readonly progress: Progress }, init: LocalApiInit) {
    super(init)
    this.#progress = components.progress
  }

  override async json<T>(call: ApiCall): Promise<T> {
    const answered = this.#progress.start('waiting for the daemon')
    try {
      return await super.json<T>(call)
    } finally {
      answered()
    }
  }
}

/** Throws `bad_config` for an invalid name of a daemon. */
export const contextOf = (io: CliIo, env: Environment, line: CommandLine): CliContext => {
  const instance = instanceChoice({ name: line.value('name'), dataDir: line.value('data-dir') }, env)
  const { stdout, stderr } = io
  const quiet = line.has('quiet')
  const progress = new Progress({ stderr, clock: systemClock }, { off: quiet || env['TERM'] === 'dumb' })
  const api = new WatchedApi({ progress }, { instance, url: line.value('api') ?? env['X0X_API'] ?? null, env })
  return {
    get stdin() {
      return io.stdin
    },
    ownsStdin: io.ownsStdin === true,
    stdout,
    stderr,
    onSignal: (listener) => io.onSignal(listener),
    env,
    instance,
    given: line.given,
    json: line.has('json'),
    quiet,
    progress,
    api,
  }
}

/** Whether a descriptor was a terminal and is none any more. */
const hungUp = (fd: number): boolean => attempt(() => fstatSync(fd).isCharacterDevice()) === true && !isatty(fd)

/** The real streams and signals of this process. */
export const processIo = (): CliIo => {
  const { stdout, stderr } = process
  const terminals = [0, 1, 2].filter((fd) => isatty(fd))
  return {
    get stdin() {
      return process.stdin
    },
    ownsStdin: true,
    stdout,
    stderr,
    onSignal: onStopSignal,
    endWhereHungUp: () => {
      if (!terminals.some(hungUp)) return
      process.removeAllListeners('SIGHUP')
      process.kill(process.pid, 'SIGHUP')
    },
  }
}
