import { type Server, type Socket, createServer } from 'node:net'
import type { Clock } from '../base/clock.ts'
import { AppError, attempt, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { claimSocketPath, listenPrivately } from '../base/unix-sockets.ts'
import { HANDOVER_REQUEST, type HandoverEvent, type HandoverRequest } from '../protocol/handover.ts'
import { closedProblemOf, isTable } from '../protocol/json-table.ts'
import { DRAIN_COUNT_MS, HANDOVER_OPEN_MS, MAX_HANDOVER_CONNECTIONS } from '../protocol/limits/daemon.ts'
import { LineSplitter, jsonText } from '../protocol/lines.ts'
import type { Drain } from './drain.ts'

/** Bytes of the only line that a client sends. */
const MAX_REQUEST_LINE = 256

export interface HandoverServerDeps {
  readonly clock: Clock
  readonly log: Logger
  readonly drain: Pick<Drain, 'isOn' | 'run' | 'work'>
}

export interface HandoverServerInit {
  readonly path: string
  /** Stops the daemon. */
  onReplaced(): void
}

/**
 * Hears that another process of this user replaces the daemon. Only this user can connect, who could also send a signal. A client that
 * disconnects before the drain is over cancels it.
 */
export class HandoverServer implements Startable {
  readonly #deps: HandoverServerDeps
  readonly #init: HandoverServerInit
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isReplaced = false

  constructor(deps: HandoverServerDeps, init: HandoverServerInit) {
    this.#deps = deps
    this.#init = init
    this.#server = createServer((socket) => void this.#serve(socket))
    this.#server.maxConnections = MAX_HANDOVER_CONNECTIONS
  }

  /** A daemon whose path is too long works, and cannot be drained from outside. */
  async start(): Promise<void> {
    const { path } = this.#init
    try {
      await claimSocketPath(path)
      await listenPrivately(this.#server, path, `another daemon listens on ${path}`)
    } catch (error) {
      this.#deps.log.warn({ err: errorText(error) }, 'this daemon cannot be drained by x0xd --replace')
    }
  }

  stop(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroySoon()
  }

  async #serve(socket: Socket): Promise<void> {
    const { clock, drain } = this.#deps
    const gone = new AbortController()
    this.#sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => {
      this.#sockets.delete(socket)
      gone.abort()
    })
    const send = (event: HandoverEvent): void => void (socket.destroyed || socket.write(`${jsonText(event)}\n`))
    const late = clock.setTimeout(() => socket.destroy(), HANDOVER_OPEN_MS, { unref: true })
    try {
      const { drain_ms } = await requestOn(socket)
      late.cancel()
      if (drain.isOn || this.#isReplaced) throw new AppError('conflict', 'the daemon is draining or stopping already')
      const onProgress = (left_ms: number, work: Drain['work']): void => send({ type: 'draining', left_ms, ...work })
      // Without a drain, it only counts what the stop will end.
      if (!(await drain.run({ ms: drain_ms === 0 ? DRAIN_COUNT_MS : drain_ms, signal: gone.signal, onProgress }))) return
      this.#isReplaced = true
      send({ type: 'ending', ...drain.work })
      this.#init.onReplaced()
    } catch (error) {
      late.cancel()
      send({ type: 'refused', message: errorText(error) })
      socket.destroySoon()
    }
  }
}

/** Resolves to the request in the first line. Throws `bad_request`. The rest is not read. */
const requestOn = async (socket: Socket): Promise<HandoverRequest> => {
  const { promise, resolve, reject } = Promise.withResolvers<HandoverRequest>()
  const lines = new LineSplitter({ max: MAX_REQUEST_LINE })
  const bad = (why: string): AppError => new AppError('bad_request', `the request is not valid: ${why}`)
  socket.on('end', () => reject(bad('it has no line')))
  socket.on('close', () => reject(bad('the connection was closed')))
  socket.on('data', (chunk: Buffer) => {
    try {
      for (const line of lines.pushStrictly(chunk, () => bad('it is too long'))) {
        const fields = attempt(() => JSON.parse(line.toString()) as unknown)
        const problem = isTable(fields) ? closedProblemOf(fields, HANDOVER_REQUEST) : 'it is not an object'
        if (problem !== null) throw bad(problem)
        resolve(fields as HandoverRequest)
      }
    } catch (error) {
      reject(error)
    }
  })
  return promise
}
