import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { plainText } from '../base/visible-text.ts'
import type { ReloadEvent } from '../journal/events.ts'
import type { Journal } from '../journal/journal.ts'
import type { Beyond } from '../policy/mesh/compare-acl.ts'
import type { AclInForce, LoadedAcl } from '../policy/mesh/load-acl.ts'
import { quoteArgv } from '../policy/tokens.ts'

export interface AclReloadComponents {
  readonly inForce: AclInForce
  /** Of what runs here, or, where nothing may, of what is asked of others. */
  readonly journal: Journal
  readonly log: Logger
}

export interface AclReloadInit {
  /** Called in the very turn in which a narrower file takes effect; answers how many runs it ends. */
  onNarrowed(): number
}

export type ReloadOutcome = ReloadEvent['outcome']

/** Of the reasons why a file is refused, those that are told. */
const TOLD = 5
/** Of what a line of log and journal says. */
const MAX_DETAIL = 2_000

const RESTART = 'takes effect at the next start of x0xd only: a restart is needed'

/** One look at an ACL file that may have become narrower. Whatever else it became, the one in force stays. */
export class AclReload {
  readonly #components: AclReloadComponents
  readonly #init: AclReloadInit

  constructor(components: AclReloadComponents, init: AclReloadInit) {
    this.#components = components
    this.#init = init
  }

  async run(load: () => Promise<LoadedAcl>): Promise<ReloadOutcome> {
    const file = this.#components.inForce.loaded.loaded_from
    let next: LoadedAcl
    try {
      next = await load()
    } catch (error) {
      return this.#told('invalid', { file, sha256: null }, `the file is not valid, and the one in force stays: ${errorText(error)}`)
    }
    const is = { file: next.loaded_from, sha256: next.sha256 }
    // An editor that has moved the file away, or cut it to write it anew, has decided nothing.
    if (next.status === 'acl_missing' || next.status === 'missing_exec_section')
      return this.#told('invalid', is, 'the file is missing or has no [exec], and the one in force stays; enabled = false turns exec off')
    if (next.sha256 === this.#components.inForce.loaded.sha256) return this.#told('unchanged', is, null)
    const { verdict, more } = this.#components.inForce.narrow(next)
    if (verdict === 'widens')
      return this.#told('refused', is, `the file allows more than the one in force, which stays; it ${RESTART}. ${moreText(more)}`)
    const ended = this.#init.onNarrowed()
    return this.#told(
      'taken',
      is,
      `in force from now on${ended === 0 ? '' : `; it has not what ${ended} of the commands that run are, and they were ended`}`,
    )
  }

  async #told(outcome: ReloadOutcome, is: Pick<ReloadEvent, 'file' | 'sha256'>, detail: string | null): Promise<ReloadOutcome> {
    const { journal, log } = this.#components
    const text = detail === null ? null : plainText(detail).slice(0, MAX_DETAIL)
    const facts = { file: is.file, outcome, ...(text !== null && { detail: text }) }
    // An operator who has asked for a reload is told what became of it at the level that is usual.
    log.warn(facts, outcome === 'taken' || outcome === 'unchanged' ? 'the ACL was read again' : 'the ACL was not taken')
    await journal.append({ event: 'reload', outcome, ...is, detail: text }).catch((error: unknown) => {
      log.error({ error: errorText(error) }, 'a line of the journal could not be written')
    })
    return outcome
  }
}

const moreText = (more: readonly Beyond[]): string => {
  const texts = more.slice(0, TOLD).map(({ agent_id, argv, line, why }) => {
    const whose = agent_id === null ? '' : `agent ${agent_id.slice(0, 8)}, line ${line}: `
    return `${whose}${argv === null ? '' : `${quoteArgv(argv)}: `}${why}`
  })
  return [...texts, ...(more.length > TOLD ? [`and ${more.length - TOLD} more (x0x acl diff)`] : [])].join('. ')
}
