import { useState } from 'preact/hooks'
import type { PageEnrolled, PageEnrolWish } from '../../protocol/page-enrol.ts'
import { call } from '../api.ts'
import { Confirm } from '../dialog.tsx'
import { Choice } from '../filters.tsx'
import { counted, durationText } from '../format.ts'
import { labelsOf } from '../trust/changes.ts'
import { Name } from '../visible.tsx'

const HOUR = 3_600_000

const LIVES = [
  [String(HOUR / 2), '30 minutes'],
  [String(2 * HOUR), '2 hours'],
  [String(24 * HOUR), 'a day'],
  [String(7 * 24 * HOUR), 'a week'],
] as const

interface Wish {
  readonly uses: string
  readonly life: string
  readonly names: string
  readonly labels: string
}

/** The wish of a form, or why there is none. */
const wishOf = ({ uses, life, names, labels }: Wish): PageEnrolWish | string => {
  const count = Number(uses)
  const read = labelsOf(labels)
  if (!/^[1-9][0-9]*$/.test(uses) || count > 1_000) return 'The number of hosts is from 1 to 1,000.'
  if ('problem' in read) return read.problem
  return { uses: count, expires_in_ms: Number(life), names: names.trim() === '' ? null : names.trim(), labels: read.labels }
}

/** The token, which is shown once. */
const Token = ({ made, close }: { readonly made: PageEnrolled; readonly close: () => void }) => {
  const [said, setSaid] = useState('')
  const line = `x0xd --init --enrol ${made.token}`
  return (
    <Confirm
      title="Enrolment key created"
      action="Copy the command"
      confirm={async () => {
        await navigator.clipboard.writeText(line)
        setSaid('Copied.')
      }}
      cancel="Close"
      close={close}
    >
      <p>Run this on each host. Keep the token like a password. The page shows it only now.</p>
      <textarea
        class="token-text"
        rows={5}
        readOnly
        value={line}
        aria-label="Command with the token"
        onFocus={({ currentTarget }) => currentTarget.select()}
      />
      {made.warning !== null && (
        <p class="warning">
          <Name text={made.warning} />
        </p>
      )}
      <p role="status">{said}</p>
    </Confirm>
  )
}

/** A form for an enrolment key, then its token. */
export const CreateKey = ({ close }: { readonly close: () => void }) => {
  const [wish, setWish] = useState<Wish>({ uses: '1', life: String(2 * HOUR), names: '', labels: '' })
  const [made, setMade] = useState<PageEnrolled | null>(null)
  if (made !== null) return <Token made={made} close={close} />
  const read = wishOf(wish)
  const field = (name: keyof Wish, title: string, hint: string) => (
    <label class="field">
      {title}{' '}
      <input
        value={wish[name]}
        placeholder={hint}
        spellcheck={false}
        onInput={({ currentTarget }) => setWish({ ...wish, [name]: currentTarget.value })}
      />
    </label>
  )
  return (
    <Confirm
      title="Create an enrolment key"
      action="Create the key"
      isReady={typeof read !== 'string'}
      confirm={async () => setMade(await call<PageEnrolled>('enrol_create', read as PageEnrolWish))}
      close={close}
    >
      {field('uses', 'Number of hosts', '1')}
      <Choice name="Valid for" value={wish.life} choices={LIVES} set={(life) => setWish({ ...wish, life })} />
      {field('names', 'Names of the hosts; empty for their own', 'web[1-50]')}
      {field('labels', 'Labels', 'role=web site=ber')}
      <section class="what-changes" aria-live="polite">
        <h3>What changes</h3>
        <p>
          {typeof read === 'string'
            ? read
            : `Whoever has the token can enrol ${counted(read.uses, 'host')} within ${durationText(read.expires_in_ms)}. Each becomes a trusted contact, pinned to its machine.`}
        </p>
        <p class="quiet">To bring ACL entries to the hosts, use x0x enrol create --allow FILE.</p>
      </section>
    </Confirm>
  )
}
