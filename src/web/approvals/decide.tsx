import { useState } from 'preact/hooks'
import type { PendingApprovalRequest } from '../../protocol/desk/messages.ts'
import { unallowable } from '../../protocol/desk/approval-request-size.ts'
import { MAX_GRANT_USES, grantBounds } from '../../protocol/limits/approvals.ts'
import type { PageDecision } from '../../protocol/page.ts'
import { call } from '../api.ts'

/** Buttons stay inactive for this long after a change, so that a click does not hit another request. */
const STILL_MS = 600

const HOUR = 60 * 60_000
const EXPIRIES: readonly (readonly [string, number])[] = [
  ['in an hour', HOUR],
  ['in a day', 24 * HOUR],
  ['in a week', 7 * 24 * HOUR],
  ['in 30 days', 30 * 24 * HOUR],
]

export interface DecideProps {
  readonly item: PendingApprovalRequest
  /** Time of the last change of the list, by `performance.now`. */
  readonly changedAt: number
}

/** The choices of `always`: until when, and how often. */
const Always = ({
  opaque,
  send,
  cancel,
}: {
  readonly opaque: string | null
  readonly send: (expires: number | null, uses: number | null) => void
  readonly cancel: () => void
}) => {
  const [expiry, setExpiry] = useState(0)
  const [uses, setUses] = useState('')
  const count = uses === '' ? null : Number(uses)
  return (
    <fieldset>
      <legend>Allow exactly this, without asking again</legend>
      {opaque !== null && <p class="warning">Each run may do something else, so this ends within a day.</p>}
      <label>
        It ends{' '}
        <select value={expiry} onChange={(event) => setExpiry(Number(event.currentTarget.value))}>
          {EXPIRIES.filter(([, ms]) => ms <= grantBounds(opaque).most).map(([name], at) => (
            <option key={name} value={at}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Uses at most{' '}
        <input
          type="number"
          min="1"
          step="1"
          inputMode="numeric"
          placeholder="any"
          value={uses}
          onInput={(event) => setUses(event.currentTarget.value)}
        />
      </label>
      <button
        type="button"
        disabled={count !== null && !(Number.isSafeInteger(count) && count > 0 && count <= MAX_GRANT_USES)}
        onClick={() => send(EXPIRIES[expiry]?.[1] ?? null, count)}
      >
        Always allow
      </button>
      <button type="button" onClick={cancel}>
        Back
      </button>
    </fieldset>
  )
}

const useDecision = ({ item, changedAt }: DecideProps) => {
  const [said, setSaid] = useState('')
  const [isBusy, setBusy] = useState(false)
  const decide = async (decision: PageDecision['decision'], expires_in_ms: number | null = null, uses: number | null = null) => {
    if (decision !== 'deny' && performance.now() - changedAt < STILL_MS)
      return setSaid('The list has just changed. Check the request, then press again.')
    setBusy(true)
    try {
      const { question_id, question } = item
      await call('decide', { question_id, permit_sha256: question.permit_sha256, decision, expires_in_ms, uses } satisfies PageDecision)
      setSaid('')
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error))
    } finally {
      setBusy(false)
    }
  }
  return { said, isBusy, decide }
}

export const Decide = (props: DecideProps) => {
  const { said, isBusy, decide } = useDecision(props)
  const [isAlways, setAlways] = useState(false)
  const { question } = props.item
  const problem = unallowable(question)
  return (
    <div class="decide">
      {problem !== null && <p class="warning">This cannot be allowed: {problem}.</p>}
      {isAlways ? (
        <Always
          opaque={question.opaque}
          send={(expires, uses) => void decide('allow_always', expires, uses)}
          cancel={() => setAlways(false)}
        />
      ) : (
        <div class="buttons">
          {problem === null && (
            <button type="button" class="primary" disabled={isBusy} onClick={() => void decide('allow_once')}>
              Allow once
            </button>
          )}
          {problem === null && props.item.decisions.includes('allow_always') && (
            <button type="button" disabled={isBusy} onClick={() => setAlways(true)}>
              Always …
            </button>
          )}
          <button type="button" class="danger" data-deny disabled={isBusy} onClick={() => void decide('deny')}>
            Deny
          </button>
        </div>
      )}
      <p role="status" class="said">
        {said}
      </p>
    </div>
  )
}
