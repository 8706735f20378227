import { randomBytes } from 'node:crypto'

import type { Clock, Timer } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import type { RpcSession } from './rpc-session.ts'

interface Kept {
  readonly session: RpcSession
  readonly tokenHash: Uint8Array
  /** Takes the session from whoever has it. */
  release: () => void
  /** While nobody has it. */
  timer: Timer | null
}

const digest = (token: string): Uint8Array => sha256(new TextEncoder().encode(token))

/** Sessions that outlive their connections, of all callers of one door. */
export class SessionStore {
  readonly #clock: Clock
  readonly #kept = new Map<string, Kept>()

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Answers the token by which its caller comes back. */
  add(session: RpcSession, release: () => void): string {
    const token = randomBytes(32).toString('base64url')
    this.#kept.set(session.id, { session, tokenHash: digest(token), release, timer: null })
    return token
  }

  /** Its caller is gone: after so long it is forgotten, and closed; while it is busy it waits for as long again. */
  leave(session: RpcSession, windowMs: number, close: () => void, isBusy: () => boolean = () => false): void {
    const kept = this.#kept.get(session.id)
    if (kept === undefined) return
    kept.timer?.cancel()
    kept.timer = this.#clock.setTimeout(() => {
      if (isBusy()) return this.leave(session, windowMs, close, isBusy)
      this.#kept.delete(session.id)
      close()
    }, windowMs)
  }

  /** The newest caller has it. Throws `unknown_session` for a wrong token as for a session that is not there, and what `check` throws: then whoever has it keeps it. */
  take(id: string, token: string, release: () => void, check: (session: RpcSession) => void): RpcSession {
    const kept = this.#kept.get(id)
    if (kept === undefined || !equalBytes(kept.tokenHash, digest(token))) throw new AppError('unknown_session')
    check(kept.session)
    kept.timer?.cancel()
    kept.timer = null
    kept.release()
    kept.release = release
    return kept.session
  }

  remove(session: RpcSession): void {
    this.#kept.get(session.id)?.timer?.cancel()
    this.#kept.delete(session.id)
  }

  get sessions(): readonly RpcSession[] {
    return [...this.#kept.values()].map(({ session }) => session)
  }
}
