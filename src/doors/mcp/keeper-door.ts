import { createServer, type Socket } from 'node:net'

import { aborted } from '../../base/abortable.ts'
import { within, type Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { listenAt } from '../../base/private-socket.ts'
import { Waiters } from '../../base/waiters.ts'
import type { LocalExecutor } from '../../executor/port/local-executor.ts'
import { lifecycleEvent, type LifecycleFacts } from '../../protocol/lifecycle.ts'
import {
  KEEPER_IDLE_MS,
  KEEPER_STOP_MS,
  LAST_ANSWERS_MS,
  MAX_ANSWER_WITHIN_MS,
  MAX_KEEPER_CONNECTIONS,
} from '../../protocol/tool-limits.ts'
import { ExecutorSessions } from '../executor-sessions.ts'
import { ToolRuns } from '../tools/tool-runs.ts'
import { execCapture, execCommand, execStatus, execWithInput } from './exec-tools.ts'
import { LineTransport } from './line-transport.ts'
import { execKill, execList, execOutput, execWait } from './run-tools.ts'
import { serveTools, type ServeMcpInit } from './serve-mcp.ts'
import { ASK_ANOTHER, KEPT_EVENT } from './staying-tools.ts'
import type { Tool } from './tool.ts'

export interface KeeperDoorComponents {
  readonly executor: LocalExecutor
  readonly clock: Clock
  readonly log: Logger
}

export interface KeeperDoorInit {
  readonly caller: ServeMcpInit['caller']
  /** Why nothing new may begin; null: it may. Asked before each command. */
  outdated(): Promise<string | null>
}

interface Connection {
  readonly transport: LineTransport
  end(): Promise<void>
}

/** Holds commands that outlive the servers which asked for them, and lets servers of the same caller go on with them. */
export class KeeperDoor {
  readonly #components: KeeperDoorComponents
  readonly #init: KeeperDoorInit
  readonly #sessions: ExecutorSessions
  readonly #runs: ToolRuns
  readonly #server = createServer((socket) => this.#accept(socket))
  readonly #connections = new Set<Connection>()
  readonly #changed = new Waiters()
  /** Counts connections that came and went. */
  #changes = 0
  /** Events that were told. */
  #events = 0
  /** Nothing new may begin, and nothing runs. */
  #isOver = false

  constructor(components: KeeperDoorComponents, init: KeeperDoorInit) {
    const { executor, clock } = components
    const { caller } = init
    this.#components = components
    this.#init = init
    const opening = (target: string | null) => ({ ...caller, target, told: (facts: LifecycleFacts) => this.#tell(facts) })
    this.#sessions = new ExecutorSessions({ executor }, { opening, maxIdle: 0, limit: 'max_detached_processes' })
    const ready = async (): Promise<void> => undefined
    this.#runs = new ToolRuns({ executor, sessions: this.#sessions, clock }, { caller: caller.client_name, ready, stay: true })
  }

  /** Throws `conflict`, `loose_permissions`, `bad_config`. */
  async start(path: string): Promise<void> {
    await listenAt(this.#server, { kind: 'unix', path }, `${path}: another keeper listens there`)
  }

  /** Resolves when nothing has run and nobody was connected for KEEPER_IDLE_MS, when nothing new may begin and nothing runs, or at the signal. */
  async ended(signal: AbortSignal): Promise<void> {
    const { clock } = this.#components
    while (!signal.aborted && !this.#isOver) {
      const going = this.#going
      if (going.length > 0) {
        await Promise.race([Promise.all(going.map(({ ended }) => ended)), aborted(signal)])
        continue
      }
      const before = this.#changes
      await this.#changed.wait({ clock, timeoutMs: KEEPER_IDLE_MS, signal })
      if (this.#changes === before && this.#connections.size === 0 && this.#going.length === 0) return
    }
  }

  /** Ends all that runs, and tells those who wait for it how. */
  async close(): Promise<void> {
    const { clock } = this.#components
    const closed = new Promise((resolve) => this.#server.close(resolve))
    await this.#runs.close()
    await within(clock, KEEPER_STOP_MS, Promise.all(this.#runs.all.map(({ ended }) => ended)))
    const ending = [...this.#connections].map(async ({ transport, end }) => {
      await within(clock, LAST_ANSWERS_MS, transport.settled())
      await end()
    })
    await Promise.all(ending)
    await closed
  }

  get #going() {
    return this.#runs.all.filter(({ over }) => !over)
  }

  #change(): void {
    this.#changes += 1
    this.#changed.wake()
  }

  /** To every server of its caller; those that read nothing miss it. */
  #tell(facts: LifecycleFacts): void {
    const event = lifecycleEvent(facts, { n: ++this.#events, ts: new Date(this.#components.clock.now()).toISOString() })
    for (const { transport } of this.#connections) void transport.send({ jsonrpc: '2.0', method: KEPT_EVENT, params: { ...event } })
  }

  #accept(socket: Socket): void {
    socket.on('error', () => undefined)
    if (this.#connections.size >= MAX_KEEPER_CONNECTIONS) return void socket.destroy()
    const { executor, clock, log } = this.#components
    const [runs, sessions] = [this.#runs, this.#sessions]
    const transport = new LineTransport({ input: socket, output: socket, clock })
    const tools = [execStatus, execCapture, execWithInput, execCommand].map((tool) => this.#checked(tool))
    const offer = { tools: [...tools, execWait, execOutput, execKill, execList], source: null, instructions: '' }
    const end = serveTools({ transport, executor, runs, fleets: null, sessions, clock, answerWithinMs: MAX_ANSWER_WITHIN_MS, log }, offer)
    const connection = { transport, end }
    this.#connections.add(connection)
    this.#change()
    // Closed first, so that what it asked for is left and not cancelled.
    const over = transport.ended.then(async () => transport.close()).then(end)
    void over.finally(() => {
      this.#connections.delete(connection)
      this.#change()
    })
  }

  /** Begins nothing that a change of the configuration may not allow any more. */
  #checked(tool: Tool): Tool {
    return {
      ...tool,
      call: async (given, context, call) => {
        const why = await this.#init.outdated()
        if (why === null) return tool.call(given, context, call)
        if (this.#going.length > 0)
          throw new AppError(
            'conflict',
            `stay: ${why}: nothing new stays until what it holds has ended (exec_list, exec_kill; x0x mcp --end-kept)`,
          )
        this.#isOver = true
        this.#changed.wake()
        return () => ({ passed: { content: [], isError: true, _meta: { [ASK_ANOTHER]: true } } })
      },
    }
  }
}
