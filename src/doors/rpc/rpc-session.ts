import { AppError } from '../../base/errors.ts'
import type { SessionGrant } from '../../protocol/rexd-answers.ts'
import { KnownProcesses } from './known-processes.ts'
import type { RpcProcess } from './rpc-process.ts'
import { SessionEvents } from './session-events.ts'

export interface RpcSessionInit {
  readonly id: string
  readonly grant: SessionGrant
  readonly clientName: string
  /** ISO 8601. */
  readonly openedAt: string
  /** It outlives its connection, or has none. */
  readonly kept: boolean
}

/** A session as its door holds it: what it was granted, what it says, and its processes. */
export class RpcSession {
  readonly init: RpcSessionInit
  readonly events: SessionEvents
  readonly processes = new KnownProcesses()
  /** Whose start is not answered yet. */
  readonly starting = new Set<RpcProcess>()

  constructor(init: RpcSessionInit) {
    this.init = init
    this.events = new SessionEvents({ sessionId: init.id, kept: init.kept })
  }

  get id(): string {
    return this.init.id
  }

  /** May its caller have programs that outlive sessions? */
  get mayDetach(): boolean {
    return this.init.grant.capabilities.includes('exec.detach')
  }

  /**
   * Each process holds what it wrote until that is read. Throws `resource_limit` where as many as may run have ended unread;
   * those that run by then may all end so too.
   */
  requireRead(): void {
    const { max_processes_per_session: max } = this.init.grant.limits
    if (this.processes.all.filter(({ unread }) => unread).length < max) return
    throw new AppError('resource_limit', `${max} processes have ended whose events nobody has read: read those of the session first`, {
      data: { limit: 'max_processes_per_session', max },
    })
  }

  /** The process on a terminal. Throws `unknown_process`. */
  terminal(id: string): RpcProcess {
    const process = this.processes.terminal(id)
    if (process === null)
      throw new AppError('unknown_process', 'there is no such terminal of this session', { data: { pty_id: id.slice(0, 64) } })
    return process
  }
}
