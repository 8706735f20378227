import type { LocalExecutor } from '../../executor/port/local-executor.ts'

/** Sessions of agents that run nothing now: beyond this the oldest is closed. */
const MAX_RESTING = 16

/** What this door can carry. */
const AVAILABLE = ['exec', 'exec.input', 'pty', 'events'] as const

interface AgentSession {
  readonly opening: Promise<string>
  runs: number
}

/** One session of the engine for each name that agents give themselves, so that the journal tells who asked. */
export class AgentSessions {
  readonly #executor: Pick<LocalExecutor, 'open' | 'close'>
  /** Who has used it last comes last. */
  readonly #sessions = new Map<string, AgentSession>()

  constructor(components: { executor: Pick<LocalExecutor, 'open' | 'close'> }) {
    this.#executor = components.executor
  }

  /** Works in the session of this agent, which is open until it is done. Throws what the executor does. */
  async within<T>(whoami: string, work: (session: string) => Promise<T>): Promise<T> {
    const session = this.#sessions.get(whoami) ?? { opening: this.#open(whoami), runs: 0 }
    this.#sessions.delete(whoami)
    this.#sessions.set(whoami, session)
    session.runs += 1
    try {
      return await work(await session.opening)
    } finally {
      session.runs -= 1
      this.#tidyUp()
    }
  }

  async #open(whoami: string): Promise<string> {
    try {
      const asked = { roots: null, capabilities: null, target: null, limits: {}, available: AVAILABLE }
      const { session } = await this.#executor.open({ door: 'console', client_name: whoami, ...asked })
      return session
    } catch (error) {
      this.#sessions.delete(whoami)
      throw error
    }
  }

  #tidyUp(): void {
    const resting = [...this.#sessions].filter(([, { runs }]) => runs === 0)
    for (const [whoami, { opening }] of resting.slice(0, Math.max(0, resting.length - MAX_RESTING))) {
      this.#sessions.delete(whoami)
      // Its last line in the journal may fail, which the executor logs.
      void opening.then(async (session) => this.#executor.close(session)).catch(() => undefined)
    }
  }
}
