import { useState } from 'preact/hooks'
import type { PageEnrolKey, PageEnrolKeys } from '../../protocol/page-enrol.ts'
import { call } from '../api.ts'
import { Confirm } from '../dialog.tsx'
import { counted } from '../format.ts'
import { Ago, Clock, Labels, Problems } from '../parts.tsx'
import { useNow } from '../use-now.ts'
import { usePolled } from '../use-polled.ts'
import { Name } from '../visible.tsx'
import { CreateKey } from './create-key.tsx'

/** Short, so that an operator sees hosts arrive. */
const POLL_MS = 2_000

const STATES: Readonly<Record<PageEnrolKey['state'], readonly [text: string, tone: string]>> = {
  valid: ['valid', 'running'],
  used_up: ['used up', 'ok'],
  expired: ['expired', 'unknown'],
  revoked: ['revoked', 'denied'],
}

const Hosts = ({ enrolKey: { hosts }, now }: { readonly enrolKey: PageEnrolKey; readonly now: number }) => (
  <div class="grid" role="list" aria-label="Hosts, the newest first">
    {hosts.toReversed().map(({ name, machine_id, granted_at, confirmed }) => (
      <div key={machine_id} role="listitem">
        <div class={`host ${confirmed ? 'ok' : 'waiting'}`}>
          <strong>
            <Name text={name} />
          </strong>
          <span>
            {confirmed ? 'arrived' : 'arriving'} <Ago iso={granted_at} now={now} />
          </span>
        </div>
      </div>
    ))}
  </div>
)

interface KeyProps {
  readonly enrolKey: PageEnrolKey
  readonly now: number
  readonly revoke: () => void
}

const Key = ({ enrolKey, now, revoke }: KeyProps) => {
  const { id, state, names, labels, uses, hosts, acl, expires_at } = enrolKey
  const [text, tone] = STATES[state]
  return (
    <article class="card" aria-label={`Enrolment key ${id}`}>
      <header>
        <h3>
          {hosts.length} of {counted(uses, 'host')} {names !== null && <Name text={`as ${names}`} />}
        </h3>
        <span class={`result ${tone}`}>{text}</span>
      </header>
      <progress max={uses} value={hosts.length} aria-label="Hosts that arrived" />
      <p class="bar">
        <span class="quiet">
          key <span class="mono">{id}</span>, {state === 'valid' ? 'valid until' : 'was valid until'} <Clock iso={expires_at} now={now} />
          {acl && ', brings ACL entries'}
        </span>
        <Labels labels={labels} />
        {state === 'valid' && (
          <button type="button" class="danger" data-row onClick={revoke}>
            Revoke
          </button>
        )}
      </p>
      {hosts.length > 0 && <Hosts enrolKey={enrolKey} now={now} />}
    </article>
  )
}

/** Enrolment keys, and the hosts that arrive with them. */
export const EnrolView = () => {
  const now = useNow(5_000)
  const [changed, setChanged] = useState(0)
  const [isCreating, setCreating] = useState(false)
  const [revoked, setRevoked] = useState<PageEnrolKey | null>(null)
  const { value, problem } = usePolled<PageEnrolKeys>('enrol_list', {}, POLL_MS, String(changed))
  const again = (): void => setChanged((count) => count + 1)
  return (
    <>
      <div class="bar">
        <h2>Enrolment</h2>
        <button type="button" class="primary" onClick={() => setCreating(true)}>
          Create a key
        </button>
      </div>
      <p class="quiet">With the token of a key, hosts become trusted contacts of this daemon: x0xd --init --enrol TOKEN</p>
      <Problems texts={[problem]} />
      {value?.keys.length === 0 && <p class="empty">No enrolment keys.</p>}
      {value?.keys.toReversed().map((key) => (
        <Key key={key.id} enrolKey={key} now={now} revoke={() => setRevoked(key)} />
      ))}
      {isCreating && (
        <CreateKey
          close={() => {
            setCreating(false)
            again()
          }}
        />
      )}
      {revoked !== null && (
        <Confirm
          title="Revoke this enrolment key?"
          action="Revoke the key"
          isDanger
          confirm={async () => {
            await call('enrol_revoke', { id: revoked.id })
            setRevoked(null)
            again()
          }}
          close={() => setRevoked(null)}
        >
          <p>
            No other host can use it. {counted(revoked.hosts.length, 'host')} that used it {revoked.hosts.length === 1 ? 'stays' : 'stay'} a
            contact.
          </p>
        </Confirm>
      )}
    </>
  )
}
