import { useEffect, useRef, useState } from 'preact/hooks'
import type { PageContacts } from '../../protocol/page-lists.ts'
import { call } from '../api.ts'
import { Confirm } from '../dialog.tsx'
import { counted } from '../format.ts'
import { Problems } from '../parts.tsx'
import { usePolled } from '../use-polled.ts'
import { Name } from '../visible.tsx'
import { type BulkWish, type ContactOutcome, type ContactPlan, GONE, changeAll, plansOf } from './bulk.ts'
import { LevelChoice } from './contact-change.tsx'

/** Selected contacts: names by agent ID. */
export type Chosen = ReadonlyMap<string, string>

interface BulkChangeProps {
  readonly chosen: Chosen
  readonly report: (outcomes: readonly ContactOutcome[]) => void
  readonly close: () => void
}

const Form = ({ wish, set }: { readonly wish: BulkWish; readonly set: (wish: BulkWish) => void }) => (
  <>
    <LevelChoice level={wish.trust} set={(trust) => set({ ...wish, trust })}>
      <label>
        <input type="radio" name="level" checked={wish.trust === null} onChange={() => set({ ...wish, trust: null })} /> keep the level of
        each
      </label>
    </LevelChoice>
    <label class="field">
      Labels to set (key=value) or to remove (key=){' '}
      <input
        value={wish.labels}
        spellcheck={false}
        maxLength={4_096}
        placeholder="role=db site="
        onInput={({ currentTarget }) => set({ ...wish, labels: currentTarget.value })}
      />
    </label>
  </>
)

const Plan = ({ plan: { contact, calls } }: { readonly plan: ContactPlan }) => (
  <li>
    <strong>
      <Name text={contact.name} />
    </strong>{' '}
    <span class="quiet">{contact.machines.length === 0 ? '(without a pin)' : ''}</span>
    {calls.map(({ sentence }) => (
      <div key={sentence}>
        <Name text={sentence} />
      </div>
    ))}
    {calls.length === 0 && <div class="quiet">No change.</div>}
    {contact.revoked && <div>This agent has revoked its key. No trust level overrides that.</div>}
  </li>
)

const Plans = ({ plans, gone }: { readonly plans: readonly ContactPlan[]; readonly gone: readonly string[] }) => (
  <section class="what-changes">
    <h3>What changes</h3>
    {gone.length > 0 && (
      <p class="warning">
        Removed meanwhile: <Name text={gone.join(', ')} />
      </p>
    )}
    <div class="plans" role="region" aria-label="What changes" tabIndex={0}>
      <ul>
        {plans.map((plan) => (
          <Plan key={plan.contact.agent_id} plan={plan} />
        ))}
      </ul>
    </div>
  </section>
)

const wait = async (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** One form for all selected contacts, with what changes for each of them. Their present state is loaded first. */
export const BulkChange = ({ chosen, report, close }: BulkChangeProps) => {
  const [wish, setWish] = useState<BulkWish>({ trust: null, labels: '' })
  const [done, setDone] = useState<number | null>(null)
  const body = { text: '', level: null, agents: [...chosen.keys()], from: 0 }
  const { value, problem } = usePolled<PageContacts>('contacts', body, 0)
  const stop = useRef(new AbortController()).current
  useEffect(() => () => stop.abort(), [stop])
  const plans = plansOf(value?.rows ?? [], wish)
  const changed = typeof plans === 'string' ? [] : plans.filter(({ calls }) => calls.length > 0)
  const known = new Set(value?.rows.map(({ agent_id }) => agent_id))
  const gone = value === null ? [] : [...chosen].filter(([id]) => !known.has(id))
  const missing = gone.map(([agent_id, name]) => ({ agent_id, name, problem: GONE }))
  return (
    <Confirm
      title={`Change ${counted(chosen.size, 'selected contact')}`}
      action={changed.length === 0 ? 'Nothing to change' : `Change ${counted(changed.length, 'contact')}`}
      cancel={done === null ? 'Cancel' : 'Stop'}
      isReady={changed.length > 0}
      isDanger={changed.some(({ calls }) => calls.some(({ widens }) => widens))}
      confirm={async () => {
        setDone(0)
        report([...missing, ...(await changeAll(changed, { send: call, wait, tell: setDone, signal: stop.signal }))])
        if (!stop.signal.aborted) close()
      }}
      close={close}
    >
      <Problems texts={[problem, typeof plans === 'string' ? plans : null]} />
      {done === null ? (
        <>
          <Form wish={wish} set={setWish} />
          {typeof plans !== 'string' && <Plans plans={plans} gone={gone.map(([, name]) => name)} />}
        </>
      ) : (
        <>
          <p role="status">
            {done} of {counted(changed.length, 'contact')} done.
          </p>
          <progress max={changed.length} value={done} aria-label="Contacts that are done" />
        </>
      )}
    </Confirm>
  )
}
