import { isListed } from '../../policy/mesh/authorize.ts'
import type { Acl } from '../../policy/mesh/acl.ts'
import { MAX_PORT_RUNS, MAX_RUNS_PER_PEER } from '../../protocol/limits.ts'
import { OWN_LINK, type PeerLink } from '../links/links.ts'
import type { TrustJudge } from '../links/trust-judge.ts'
import type { Active } from './answers.ts'
import type { EndCause } from './execution.ts'

/** Whatever is being answered, until it is. */
export class ActiveRuns {
  readonly #active = new Map<Active, Promise<void>>()

  /** The oldest first. */
  get all(): readonly Active[] {
    return [...this.#active.keys()]
  }

  track(active: Active, work: Promise<void>): void {
    this.#active.set(
      active,
      work.finally(() => this.#active.delete(active)),
    )
  }

  isFullFor(link: PeerLink): boolean {
    if (this.#active.size >= MAX_PORT_RUNS) return true
    if (this.#active.size < MAX_RUNS_PER_PEER || link.number === OWN_LINK) return false
    return this.all.filter((active) => active.link.agentId === link.agentId).length >= MAX_RUNS_PER_PEER
  }

  /** Whoever is not accepted any more loses its runs, connected or not. */
  accessChanged(judge: TrustJudge): void {
    for (const { link, run } of this.#active.keys())
      if (run !== null && judge.decide(link.agentId, link.machineId) !== 'accept') run.end('access_revoked')
  }

  /** What this ACL does not have ends, and waits no longer. Answers how many. */
  aclNarrowed(acl: Acl): number {
    const gone = this.all.filter(({ link, command }) => command !== null && !isListed(command, link, acl))
    for (const { run } of gone) run?.end('access_revoked')
    return gone.length
  }

  end(cause: EndCause): void {
    for (const { run } of this.#active.keys()) run?.end(cause)
  }

  kill(): void {
    for (const { run } of this.#active.keys()) run?.kill()
  }

  async settled(): Promise<void> {
    await Promise.all(this.#active.values())
  }
}
