import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { PageContact } from '../../protocol/page-lists.ts'
import { TRUST_LEVELS, type TrustLevel } from '../../protocol/reasons.ts'
import { call } from '../api.ts'
import { Confirm } from '../dialog.tsx'
import { Name } from '../visible.tsx'
import { type WantedContact, LEVEL_MEANS, changesOf, labelsOf, sendChanges, textOfLabels } from './changes.ts'

interface ContactChangeProps {
  readonly contact: PageContact
  /** Machines on which it is seen now. */
  readonly seen: readonly string[]
  readonly close: (isChanged: boolean) => void
}

const ID = /^[0-9a-f]{64}$/

interface LevelProps {
  /** Null if the present level stays. */
  readonly level: TrustLevel | null
  readonly set: (level: TrustLevel) => void
  readonly children?: ComponentChildren
}

export const LevelChoice = ({ level, set, children }: LevelProps) => (
  <fieldset class="choices">
    <legend>Trust</legend>
    {children}
    {TRUST_LEVELS.map((one) => (
      <label key={one}>
        <input type="radio" name="level" checked={one === level} onChange={() => set(one)} /> {one}
        <span class="quiet"> {LEVEL_MEANS[one]}</span>
      </label>
    ))}
  </fieldset>
)

interface PinsProps {
  readonly known: readonly string[]
  readonly seen: readonly string[]
  readonly pinned: readonly string[]
  readonly set: (machines: readonly string[]) => void
}

const Pins = ({ known, seen, pinned, set }: PinsProps) => {
  const [typed, setTyped] = useState('')
  const all = [...new Set([...known, ...seen, ...pinned])]
  return (
    <fieldset class="choices">
      <legend>Pinned to</legend>
      {all.length === 0 && <p class="quiet">No machine of it was seen.</p>}
      {all.map((machine) => (
        <label key={machine}>
          <input
            type="checkbox"
            checked={pinned.includes(machine)}
            onChange={({ currentTarget }) => set(currentTarget.checked ? [...pinned, machine] : pinned.filter((one) => one !== machine))}
          />{' '}
          <span class="mono">
            <Name text={machine} />
          </span>
          <span class="quiet">{seen.includes(machine) ? ' seen now' : ''}</span>
        </label>
      ))}
      <label>
        Another machine, by its ID{' '}
        <input
          class="mono"
          value={typed}
          spellcheck={false}
          placeholder="64 hexadecimal digits"
          onInput={({ currentTarget }) => {
            const id = currentTarget.value.trim()
            setTyped(ID.test(id) ? '' : currentTarget.value)
            if (ID.test(id) && !pinned.includes(id)) set([...pinned, id])
          }}
        />
      </label>
    </fieldset>
  )
}

/** A form for a contact, then a dialog that says what changes. */
export const ContactChange = ({ contact, seen, close }: ContactChangeProps) => {
  const [wanted, setWanted] = useState<WantedContact>({
    trust: contact.trust,
    machines: contact.machines,
    labels: textOfLabels(contact.labels),
  })
  const read = labelsOf(wanted.labels)
  const problem = 'problem' in read ? read.problem : null
  const calls = 'problem' in read ? [] : changesOf(contact, wanted, read.labels)
  return (
    <Confirm
      title={`Change ${contact.name.slice(0, 64)}`}
      action={calls.length === 0 ? 'Nothing to change' : calls.length === 1 ? 'Make this change' : `Make these ${calls.length} changes`}
      isReady={problem === null && calls.length > 0}
      isDanger={calls.some(({ widens }) => widens)}
      confirm={async () => {
        await sendChanges(contact.name, calls, call)
        close(true)
      }}
      close={() => close(false)}
    >
      <p class="mono quiet">
        agent <Name text={contact.agent_id} />
      </p>
      {contact.revoked && <p class="warning">This agent has revoked its key. No trust level overrides that.</p>}
      <LevelChoice level={wanted.trust} set={(trust) => setWanted({ ...wanted, trust })} />
      <Pins known={contact.machines} seen={seen} pinned={wanted.machines} set={(machines) => setWanted({ ...wanted, machines })} />
      <label class="field">
        Labels{' '}
        <input
          value={wanted.labels}
          spellcheck={false}
          placeholder="role=db site=ber"
          onInput={({ currentTarget }) => setWanted({ ...wanted, labels: currentTarget.value })}
        />
      </label>
      <section class="what-changes" aria-live="polite">
        <h3>What changes</h3>
        {problem !== null && (
          <p class="warning">
            <Name text={problem} />
          </p>
        )}
        {problem === null && calls.length === 0 && <p class="quiet">Nothing yet.</p>}
        {problem === null && calls.length > 0 && (
          <ul>
            {calls.map(({ sentence }) => (
              <li key={sentence}>
                <Name text={sentence} />
              </li>
            ))}
          </ul>
        )}
      </section>
    </Confirm>
  )
}
