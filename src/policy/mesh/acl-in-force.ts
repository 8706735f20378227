import type { Acl } from './acl.ts'
import { type AclComparison, compareAcl } from './compare-acl.ts'
import type { LoadedAcl } from './load-acl.ts'

/** The ACL that decides. What takes its place while a daemon runs allows nothing that it does not. */
export class AclInForce {
  #loaded: LoadedAcl

  constructor(loaded: LoadedAcl) {
    this.#loaded = loaded
  }

  get loaded(): LoadedAcl {
    return this.#loaded
  }

  get acl(): Acl {
    return this.#loaded.acl
  }

  /** In force from this turn on, unless it widens: then nothing is changed. */
  narrow(next: LoadedAcl): AclComparison {
    const comparison = compareAcl(this.#loaded.acl, next.acl)
    if (comparison.verdict !== 'widens') this.#loaded = next
    return comparison
  }
}
