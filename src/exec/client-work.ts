import type { Clock, Timer } from '../base/clock.ts'
import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import { isFileCommand } from '../protocol/file-command.ts'
import { NO_WORK, type Work, type WorkList, shortArgv, workListOf } from '../protocol/handover.ts'
import { DRAIN_POLL_MS } from '../protocol/limits/daemon.ts'
import type { ExecClient } from './client.ts'
import type { FileClient } from './files/file-client.ts'
import type { Fanouts } from './fleet/fanouts.ts'

interface ClientWorkDeps {
  readonly clock: Clock
  readonly executor: Pick<ExecutorClient, 'clientWork' | 'isDraining' | 'onDrain'>
  readonly fanouts: Pick<Fanouts, 'sessions' | 'isDraining'>
  readonly files: Pick<FileClient, 'underWay'>
  readonly runner: Pick<ExecClient, 'sessions' | 'drain'>
}

/** During a drain, refuses new requests of local clients and reports to the executor what the others wait for. */
export class ClientWork implements Startable {
  readonly #deps: ClientWorkDeps
  #timer: Timer | null = null
  #told = ''
  #stopListening: () => void = () => undefined

  constructor(deps: ClientWorkDeps) {
    this.#deps = deps
  }

  start(): void {
    const { executor } = this.#deps
    this.#stopListening = executor.onDrain((isDraining) => this.#turn(isDraining))
    this.#turn(executor.isDraining)
  }

  stop(): void {
    this.#stopListening()
    this.#timer?.cancel()
  }

  #turn(isDraining: boolean): void {
    const { fanouts, runner } = this.#deps
    runner.drain(isDraining)
    fanouts.isDraining = isDraining
    this.#timer?.cancel()
    this.#told = ''
    if (isDraining) this.#report()
  }

  #report(): void {
    const { clock, executor } = this.#deps
    const work = this.#work
    const text = JSON.stringify(work)
    if (text !== this.#told) executor.clientWork(work)
    this.#told = text
    this.#timer = clock.setTimeout(() => this.#report(), DRAIN_POLL_MS, { unref: true })
  }

  get #work(): WorkList {
    const { fanouts, files, runner } = this.#deps
    const runs = runner.sessions().filter(({ fanout_id, argv }) => fanout_id === undefined && !isFileCommand(argv))
    const all: readonly Work[] = [
      ...fanouts.sessions().map(({ fanout_id, argv }) => ({ kind: 'fanout' as const, id: fanout_id, who: null, argv: shortArgv(argv) })),
      ...runs.map(({ request_id, agent_id, argv }) => ({
        kind: 'requested' as const,
        id: request_id,
        who: agent_id,
        argv: shortArgv(argv),
      })),
      ...files.underWay.map(({ target, path }) => ({ kind: 'copy' as const, id: null, who: target.host, argv: shortArgv([path]) })),
    ]
    return all.length === 0 ? NO_WORK : workListOf(all)
  }
}
