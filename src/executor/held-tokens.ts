import { renewSeed, type SeedFile } from '../identity/key-file.ts'
import type { CallerTokens } from './port/messages.ts'

export interface TokenFiles {
  readonly api: SeedFile
  /** Null: there is none, and the other opens metrics too. */
  readonly metrics: SeedFile | null
}

/** What callers of the API show, as it is now: the network half compares, this half makes them anew. */
export class HeldTokens {
  readonly #files: TokenFiles
  #now: CallerTokens

  constructor(files: TokenFiles, now: CallerTokens) {
    this.#files = files
    this.#now = now
  }

  get now(): CallerTokens {
    return this.#now
  }

  /** What makes it anew, in the file, then here, and answers where it lies; null: there is none. The one before opens nothing more once the network half is told. */
  renewalOf(which: 'api' | 'metrics'): (() => Promise<string>) | null {
    const file = this.#files[which]
    if (file === null) return null
    return async () => {
      const seed = await renewSeed(file)
      this.#now = { ...this.#now, [which === 'api' ? 'api_token' : 'metrics_token']: seed }
      return file.path
    }
  }
}
