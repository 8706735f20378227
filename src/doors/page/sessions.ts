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

/** Codes that sign in once each, and only for a while. */
export class PageLinks {
  readonly #clock: Pick<Clock, 'monotonic'>
  #waiting: { readonly digest: Uint8Array; readonly until: number }[] = []

  constructor(components: { readonly clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  issue(): string {
    const code = newSecret()
    this.#waiting = [...this.#waiting, { digest: digestOf(code), until: this.#clock.monotonic() + PAGE_LINK_MS }].slice(-MAX_PAGE_LINKS)
    return code
  }

  /** True for a code that waits, which is void from then on. */
  take(code: string): boolean {
    const now = this.#clock.monotonic()
    const digest = digestOf(code)
    this.#waiting = this.#waiting.filter(({ until }) => now < until)
    const found = this.#waiting.find((one) => equalBytes(one.digest, digest))
    this.#waiting = this.#waiting.filter((one) => one !== found)
    return found !== undefined
  }
}

/** One sign-in. Its cookie alone opens nothing but the page's own files: a browser sends it to every port of this host. */
export class PageSession {
  /** What the page itself may ask for. */
  readonly calls: TokenBucket
  /** What its cookie alone may: others of this host have seen it, and take nothing from the page. */
  readonly loads: TokenBucket
  readonly #clock: Clock
  readonly #proof: Uint8Array
  readonly #ended = new AbortController()
  readonly #last: number
  #idle: Timer

  constructor(components: { readonly clock: Clock }, init: { readonly proof: string }) {
    this.#clock = components.clock
    this.calls = new TokenBucket(components, PAGE_REQUESTS)
    this.loads = new TokenBucket(components, PAGE_REQUESTS)
    this.#proof = digestOf(init.proof)
    this.#last = this.#clock.monotonic() + PAGE_SESSION_MS
    this.#idle = this.#wait()
  }

  /** Aborts when it is over. */
  get signal(): AbortSignal {
    return this.#ended.signal
  }

  /** True for what the page alone was told, which its origin keeps from those of other ports. */
  isProof(text: string): boolean {
    return equalBytes(this.#proof, digestOf(text))
  }

  /** A person has touched the page. */
  touch(): void {
    if (this.#ended.signal.aborted) return
    this.#idle.cancel()
    this.#idle = this.#wait()
  }

  end(): void {
    this.#idle.cancel()
    this.#ended.abort()
  }

  #wait(): Timer {
    const left = Math.max(0, Math.min(PAGE_IDLE_MS, this.#last - this.#clock.monotonic()))
    return this.#clock.setTimeout(() => this.end(), left, { unref: true })
  }
}

export class PageSessions {
  readonly #clock: Clock
  /** By the digest of their cookies. */
  readonly #sessions = new BoundedMap<string, PageSession>({ max: MAX_PAGE_SESSIONS })

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock
  }

  open(): { readonly cookie: string; readonly proof: string } {
    const [cookie, proof] = [newSecret(), newSecret()]
    const oldest = this.#sessions.values().next().value
    if (this.#sessions.size >= MAX_PAGE_SESSIONS) oldest?.end()
    const key = keyOf(cookie)
    const session = new PageSession({ clock: this.#clock }, { proof })
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
