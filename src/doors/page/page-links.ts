import type { Clock } from '../../base/clock.ts'
import { equalBytes, randomBytes, sha256 } from '../../identity/hash.ts'
import { MAX_PAGE_LINKS, PAGE_LINK_MS, PAGE_SECRET_BYTES } from '../../protocol/page-limits.ts'

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
