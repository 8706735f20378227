import { type Server, type Socket, createServer } from 'node:net'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { writableByOthers } from '../base/file-rights.ts'
import type { Logger } from '../base/log.ts'
import { listenPrivately } from '../base/private-socket.ts'
import type { Startable } from '../base/startable.ts'
import { claimSocketPath } from '../base/unix-socket.ts'
import { MAX_DESK_CONNECTIONS } from '../protocol/desk-limits.ts'
import type { DeskRole } from '../protocol/desk.ts'
import type { ApprovalStore } from './approval-store.ts'
import { DeskConnection, type DeskHost } from './desk-connection.ts'
import type { DeskJournal } from './desk-journal.ts'
import type { DeskRecords } from './desk-records.ts'
import type { Desk } from './desk.ts'
import { type DeskSession, EngineSession } from './engine-session.ts'
import type { FollowedRuns } from './followed-runs.ts'
import { HumanSession } from './human-session.ts'
import { humanKeyOf } from './seal.ts'
import { tokenBytes } from './store-shape.ts'

export interface DeskServerComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly desk: Desk
  readonly journal: DeskJournal
  readonly records: DeskRecords
  readonly runs: FollowedRuns
  readonly store: ApprovalStore
}

export interface DeskServerInit {
  readonly path: string
  /** Of this data directory's operators, as it is now: it may be made anew while we serve. */
  readonly operatorKey: () => Promise<Uint8Array>
}

/** Serves the prompt protocol on the desk's socket. */
export class DeskServer implements Startable {
  readonly #components: DeskServerComponents
  readonly #init: DeskServerInit
  readonly #server: Server
  readonly #connections = new Set<DeskConnection>()
  readonly #host: DeskHost

  constructor(components: DeskServerComponents, init: DeskServerInit) {
    this.#components = components
    this.#init = init
    this.#server = createServer((socket) => this.#accept(socket))
    this.#host = {
      keys: async () => this.#keys(),
      session: (role, name, send) => this.#session(role, name, send),
      refused: (code, role, name, problem) => {
        components.log.warn({ code, role, name, problem }, 'a line on the socket of the desk was refused')
        void components.journal.refused({ code, role, name, detail: problem })
      },
    }
  }

  /** Throws `conflict` where another answers there, or something else stands there; `loose_permissions` where others may put one there. */
  async start(): Promise<void> {
    const { path } = this.#init
    const [problem] = writableByOthers(path)
    if (problem !== undefined) throw new AppError('loose_permissions', `${path}: ${problem}`, { data: { file: path } })
    await claimSocketPath(path)
    await listenPrivately(this.#server, path, `another desk answers on ${path}`)
    this.#server.on('error', (error) => this.#components.log.error({ err: error.message }, 'the socket of the desk failed'))
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return
    const closed = new Promise((resolve) => this.#server.close(resolve))
    for (const connection of this.#connections) connection.close()
    await closed
  }

  async #keys(): Promise<Readonly<Record<DeskRole, Uint8Array | null>>> {
    const { store } = this.#components
    const engine = await store.read().then(tokenBytes, () => null)
    return { engine, human: await this.#init.operatorKey().then(humanKeyOf, () => null) }
  }

  #session(role: DeskRole, name: string, send: (body: object) => void): DeskSession | null {
    if (this.#count(role) >= MAX_DESK_CONNECTIONS[role]) return null
    if (role === 'human') return new HumanSession(this.#components, { name, send })
    return new EngineSession(this.#components, { engine: name, send })
  }

  #count(role: DeskRole | null): number {
    return [...this.#connections].filter((one) => one.role === role).length
  }

  #accept(socket: Socket): void {
    socket.on('error', () => undefined)
    if (this.#count(null) >= MAX_DESK_CONNECTIONS.unproven) return void socket.destroy()
    const { clock } = this.#components
    const connection = new DeskConnection({ host: this.#host, clock }, { socket, onClose: () => this.#connections.delete(connection) })
    this.#connections.add(connection)
  }
}
