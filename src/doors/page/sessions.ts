import { BoundedMap } from '../../base/bounded-collections.ts'
import type { Clock, Timer } from '../../base/clock.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { equalBytes, randomBytes, sha256 } from '../../identity/hash.ts'
import {
  MAX_PAGE_LINKS,
  MAX_PAGE_SESSIONS,
  PAGE_IDLE_MS,
  PAGE_LINK_MS,
  PAGE_REQUESTS,
  PAGE_SECRET_BYTES,
  PAGE_SESSION_MS,
} from '../../protocol/limits/page.ts'

export const newSecret = (): string => Buffer.from(randomBytes(PAGE_SECRET_BYTES)).toString('base64url')

export const digestOf = (secret: string): Uint8Array => sha256(Buffer.from(secret))

/** One-time sign-in codes with an expiry. */
export class PageLinks {
  readonly #deps: { readonly clock: Pick<Clock, 'monotonic'> }
  #codes: { readonly digest: Uint8Array; readonly until: number }[] = []

  constructor(deps: { readonly clock: Pick<Clock, 'monotonic'> }) {
    this.#deps = deps
  }

  issue(): string {
    const code = newSecret()
    this.#codes = [...this.#codes, { digest: digestOf(code), until: this.#deps.clock.monotonic() + PAGE_LINK_MS }].slice(-MAX_PAGE_LINKS)
    return code
  }

  /** True for a valid code, which is used up by this call. */
  take(code: string): boolean {
    const now = this.#deps.clock.monotonic()
    const digest = digestOf(code)
    this.#codes = this.#codes.filter(({ until }) => now < until)
    const found = this.#codes.find((one) => equalBytes(one.digest, digest))
    this.#codes = this.#codes.filter((one) => one !== found)
    return found !== undefined
  }
}

/** One sign-in. Browsers send its cookie to every port of this machine, so the cookie alone opens only the files of the page. */
export class PageSession {
  /** Rate limit of calls by the page itself. */
  readonly calls: TokenBucket
  /** Rate limit of requests with the cookie alone, which other programs of this machine may have seen. */
  readonly loads: TokenBucket
  readonly #deps: { readonly clock: Clock }
  readonly #proof: Uint8Array
  readonly #ended = new AbortController()
  readonly #endsAt: number
  #idleTimer: Timer

  constructor(deps: { readonly clock: Clock }, init: { readonly proof: string }) {
    this.#deps = deps
    this.calls = new TokenBucket(deps, PAGE_REQUESTS)
    this.loads = new TokenBucket(deps, PAGE_REQUESTS)
    this.#proof = digestOf(init.proof)
    this.#endsAt = this.#deps.clock.monotonic() + PAGE_SESSION_MS
    this.#idleTimer = this.#startIdleTimer()
  }

  get signal(): AbortSignal {
    return this.#ended.signal
  }

  /** Checks the secret that only the page's own origin can read. */
  isProof(text: string): boolean {
    return equalBytes(this.#proof, digestOf(text))
  }

  /** Restarts the idle timer, because the user touched the page. */
  touch(): void {
    if (this.#ended.signal.aborted) return
    this.#idleTimer.cancel()
    this.#idleTimer = this.#startIdleTimer()
  }

  end(): void {
    this.#idleTimer.cancel()
    this.#ended.abort()
  }

  #startIdleTimer(): Timer {
    const left = Math.max(0, Math.min(PAGE_IDLE_MS, this.#endsAt - this.#deps.clock.monotonic()))
    return this.#deps.clock.setTimeout(() => this.end(), left, { unref: true })
  }
}

export class PageSessions {
  readonly #deps: { readonly clock: Clock }
  /** By the digest of the cookie. */
  readonly #sessions = new BoundedMap<string, PageSession>({ max: MAX_PAGE_SESSIONS })

  constructor(deps: { readonly clock: Clock }) {
    this.#deps = deps
  }

  open(): { readonly cookie: string; readonly proof: string } {
    const [cookie, proof] = [newSecret(), newSecret()]
    const oldest = this.#sessions.values().next().value
    if (this.#sessions.size >= MAX_PAGE_SESSIONS) oldest?.end()
    const key = keyOf(cookie)
    const session = new PageSession(this.#deps, { proof })
    this.#sessions.set(key, session)
    session.signal.addEventListener('abort', () => this.#sessions.delete(key), { once: true })
    return { cookie, proof }
  }

  find(cookie: string): PageSession | null {
    return this.#sessions.get(keyOf(cookie)) ?? null
  }

  endAll(): void {
    for (const session of this.#sessions.values()) session.end()
  }
}

const keyOf = (cookie: string): string => Buffer.from(digestOf(cookie)).toString('hex')
