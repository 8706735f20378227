import { useState } from 'preact/hooks'
import { MAX_PAGE_CONTACTS } from '../../protocol/limits/page.ts'
import type { PageContact, PageContacts, PageContactsQuery } from '../../protocol/page-lists.ts'
import { call } from '../api.ts'
import { counted, numberText } from '../format.ts'
import type { Column } from '../table.tsx'
import { Name } from '../visible.tsx'
import type { ContactOutcome } from './bulk.ts'
import type { Chosen } from './bulk-change.tsx'

/** A check box for each contact. If the selection is full, only selected ones can be changed. */
export const selectColumn = (chosen: Chosen, set: (chosen: Chosen) => void): Column<PageContact> => ({
  name: 'Select',
  show: ({ agent_id, name }) => (
    <label class="select">
      <input
        type="checkbox"
        checked={chosen.has(agent_id)}
        disabled={chosen.size >= MAX_PAGE_CONTACTS && !chosen.has(agent_id)}
        onChange={({ currentTarget }) =>
          set(new Map(currentTarget.checked ? [...chosen, [agent_id, name]] : [...chosen].filter(([id]) => id !== agent_id)))
        }
      />
      <span class="unseen">
        Select <Name text={name} />
      </span>
    </label>
  ),
})

const TOO_MANY = `At most ${MAX_PAGE_CONTACTS} contacts can be changed at once. Use the filters to shorten the list.`

/** Loads the whole list. Throws if it is longer than one change may be. */
const wholeList = async (query: PageContactsQuery): Promise<Chosen> => {
  const all = new Map<string, string>()
  for (let from = 0; ;) {
    const { rows, total } = await call<PageContacts>('contacts', { ...query, from })
    if (total > MAX_PAGE_CONTACTS) throw new Error(TOO_MANY)
    for (const { agent_id, name } of rows) all.set(agent_id, name)
    from += rows.length
    if (rows.length === 0 || from >= total) return all
  }
}

interface SelectionProps {
  readonly query: PageContactsQuery
  readonly total: number
  readonly chosen: Chosen
  readonly set: (chosen: Chosen) => void
  readonly change: () => void
}

/** The number of selected contacts, with buttons to select all of the list, to change them and to clear the selection. */
export const Selection = ({ query, total, chosen, set, change }: SelectionProps) => {
  const [problem, setProblem] = useState<string | null>(null)
  const selectAll = async (): Promise<void> => {
    try {
      const all = new Map([...chosen, ...(await wholeList(query))])
      if (all.size > MAX_PAGE_CONTACTS) throw new Error(TOO_MANY)
      setProblem(null)
      set(all)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <>
      <div class="bar">
        <span role="status">
          {numberText(chosen.size)} selected{chosen.size >= MAX_PAGE_CONTACTS && ', which is the most for one change'}
        </span>
        <span class="buttons">
          <button type="button" onClick={() => void selectAll()}>
            Select all {numberText(total)} of this list
          </button>
          <button type="button" disabled={chosen.size === 0} onClick={() => set(new Map())}>
            Clear the selection
          </button>
          <button type="button" class="primary" disabled={chosen.size === 0} onClick={change}>
            Change {counted(chosen.size, 'contact')}
          </button>
        </span>
      </div>
      {problem !== null && (
        <p class="warning" role="alert">
          <Name text={problem} />
        </p>
      )}
    </>
  )
}

const Outcome = ({ outcome: { name, problem } }: { readonly outcome: ContactOutcome }) => (
  <li>
    <strong>
      <Name text={name} />
    </strong>
    : <Name text={problem ?? 'changed'} />
  </li>
)

/** The result of each contact of the last change of many. Those that failed come first. */
export const BulkReport = ({ outcomes, close }: { readonly outcomes: readonly ContactOutcome[]; readonly close: () => void }) => {
  const failed = outcomes.filter(({ problem }) => problem !== null)
  const made = outcomes.filter(({ problem }) => problem === null)
  return (
    <section class="card" aria-label="Result of the change">
      <p class={`outcome ${failed.length === 0 ? 'allowed' : ''}`} role="status">
        {numberText(made.length)} of {counted(outcomes.length, 'contact')} changed.
        {failed.length > 0 && ` ${numberText(failed.length)} not or not completely:`}
      </p>
      <ul class="rules">
        {failed.map((outcome) => (
          <Outcome key={outcome.agent_id} outcome={outcome} />
        ))}
      </ul>
      {made.length > 0 && (
        <details>
          <summary>Changed contacts</summary>
          <ul class="rules">
            {made.map((outcome) => (
              <Outcome key={outcome.agent_id} outcome={outcome} />
            ))}
          </ul>
        </details>
      )}
      <button type="button" onClick={close}>
        Close the result
      </button>
    </section>
  )
}
