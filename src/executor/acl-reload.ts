import { errorText } from '../base/errors.ts'
import { plainText } from '../base/visible-text.ts'
import type { ReloadEvent } from '../journal/events.ts'
import type { Journal } from '../journal/journal.ts'
import { signatureText } from '../policy/mesh/accepted-acl.ts'
import type { Beyond } from '../policy/mesh/compare-acl.ts'
import type { LoadedAcl } from '../policy/mesh/load-acl.ts'
import { quoteArgv } from '../policy/tokens.ts'
import type { ExecutorServices } from './services.ts'

export type ReloadOutcome = ReloadEvent['outcome']

/** How many reasons for refusing a file are reported. */
const MAX_REASONS = 5
/** Characters of the detail in log and audit log. */
const MAX_DETAIL = 2_000

const RESTART = 'takes effect at the next start of x0xd only: a restart is needed'

/**
 * Replaces the ACL in force by the one that `load` returns, if that is narrower. Otherwise the one in force stays. Without an audit log,
 * `journal` is the request log. `onNarrowed` is called in the same turn in which the new ACL takes effect, and returns how many runs it
 * ends.
 */
export const reloadAcl = async (
  { inForce, journal, log }: Pick<ExecutorServices, 'inForce' | 'log'> & { readonly journal: Journal },
  load: () => Promise<LoadedAcl>,
  onNarrowed: () => number,
): Promise<ReloadOutcome> => {
  const report = async (
    outcome: ReloadOutcome,
    is: Pick<ReloadEvent, 'file' | 'sha256'>,
    detail: string | null,
  ): Promise<ReloadOutcome> => {
    const text = detail === null ? null : plainText(detail).slice(0, MAX_DETAIL)
    const facts = { file: is.file, outcome, ...(text !== null && { detail: text }) }
    // The operator asked for the reload, so its outcome is logged at the level that is on by default.
    log.warn(facts, outcome === 'taken' || outcome === 'unchanged' ? 'the ACL was reloaded' : 'the ACL was not reloaded')
    await journal.append({ event: 'reload', outcome, ...is, detail: text }).catch((error: unknown) => {
      log.error({ error: errorText(error) }, 'a line of the journal could not be written')
    })
    return outcome
  }
  const file = inForce.loaded.loaded_from
  let next: LoadedAcl
  try {
    next = await load()
  } catch (error) {
    return report('invalid', { file, sha256: null }, `the file is not valid, and the one in force stays: ${errorText(error)}`)
  }
  const is = { file: next.loaded_from, sha256: next.sha256 }
  // An editor may remove or empty the file while it saves it, so the ACL in force stays.
  if (next.status === 'acl_missing' || next.status === 'missing_exec_section')
    return report('invalid', is, 'the file is missing or has no [exec], and the one in force stays; enabled = false turns exec off')
  if (next.sha256 === inForce.loaded.sha256) return report('unchanged', is, null)
  const { verdict, more } = inForce.narrow(next)
  if (verdict === 'widens')
    return report('refused', is, `the file allows more than the one in force, which stays; it ${RESTART}. ${moreText(more)}`)
  const ended = onNarrowed()
  const lost = ended === 0 ? '' : `; it does not allow ${ended} of the running commands, which were ended`
  const signed = next.signature === null ? '' : `: ${signatureText(next.signature)}`
  return report('taken', is, `in force from now on${signed}${lost}`)
}

const moreText = (more: readonly Beyond[]): string => {
  const texts = more.slice(0, MAX_REASONS).map(({ agent_id, argv, line, why }) => {
    const whose = agent_id === null ? '' : `agent ${agent_id.slice(0, 8)}, line ${line}: `
    return `${whose}${argv === null ? '' : `${quoteArgv(argv)}: `}${why}`
  })
  return [...texts, ...(more.length > MAX_REASONS ? [`and ${more.length - MAX_REASONS} more (x0x acl diff)`] : [])].join('. ')
}
