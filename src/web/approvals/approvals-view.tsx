import { useRef, useState } from 'preact/hooks'
import { ApprovalCard } from './approval-card.tsx'
import { groupsOf } from './approval-facts.ts'
import { type Action, type PageState, type ShownApproval, waitingOf } from '../store.ts'
import { Name } from '../visible.tsx'

/** Requests of one requester that are shown in full; further ones become a line with a count. */
const SHOWN_OF_ASKER = 3

/** The time of the last layout change. */
const useChangedAt = (key: string): number => {
  const at = useRef(performance.now())
  const last = useRef(key)
  if (last.current !== key) {
    last.current = key
    at.current = performance.now()
  }
  return at.current
}

const Group = ({ asker, cards, changedAt }: { asker: string; cards: readonly ShownApproval[]; changedAt: number }) => {
  const card = (shown: ShownApproval) => <ApprovalCard key={shown.item.question_id} shown={shown} changedAt={changedAt} />
  // A settled request keeps its place and does not count.
  const rest = cards.filter(({ settled }) => settled === null).slice(SHOWN_OF_ASKER)
  return (
    <section aria-label={`Requests from ${asker}`}>
      {cards.filter((one) => !rest.includes(one)).map(card)}
      {rest.length > 0 && (
        <details>
          <summary>
            {rest.length} more from <bdi>{asker}</bdi>
          </summary>
          {rest.map(card)}
        </details>
      )}
    </section>
  )
}

const Notify = () => {
  const [permission, setPermission] = useState('Notification' in window ? Notification.permission : 'denied')
  if (permission !== 'default') return null
  const ask = (): void => void Notification.requestPermission().then(setPermission)
  return (
    <button type="button" onClick={ask}>
      Notify me on this desktop
    </button>
  )
}

/** Pending approval requests, oldest first. */
export const ApprovalsView = ({ state, dispatch }: { readonly state: PageState; readonly dispatch: (action: Action) => void }) => {
  const waiting = waitingOf(state)
  const byId = new Map(state.questions.map((one) => [one.item.question_id, one]))
  const groups = groupsOf(state.questions.map(({ item }) => item))
  const changedAt = useChangedAt([...byId.keys(), ...waiting.map(({ item }) => item.question_id)].join())
  const settledCount = state.questions.length - waiting.length
  return (
    <>
      <div class="bar">
        <h2>{waiting.length === 0 ? 'No requests' : `${waiting.length} ${waiting.length === 1 ? 'request' : 'requests'} for you`}</h2>
        <Notify />
        {settledCount > 0 && (
          <button type="button" onClick={() => dispatch({ type: 'clear' })}>
            Clear {settledCount} decided
          </button>
        )}
      </div>
      {state.questions.length === 0 && (
        <p class="quiet">
          Commands that need an approval appear here at once. While this page is open, you count as present. If you close it and no other
          approval client is open, requests are denied at once, or as their settings say.
        </p>
      )}
      {state.floods.map(({ asker, count }) => (
        <p key={asker} class="warning">
          Denied because of too many requests: {count} more from <Name text={asker} />
        </p>
      ))}
      {groups.map(({ source, asker, questions }) => (
        <Group
          key={source}
          asker={asker}
          changedAt={changedAt}
          cards={questions.map(({ question_id }) => byId.get(question_id)!).filter(Boolean)}
        />
      ))}
    </>
  )
}
