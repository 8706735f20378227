import { useEffect, useState } from 'preact/hooks'
import type { Fields } from '../protocol/json-table.ts'
import type { PageJournal } from '../protocol/page.ts'
import { usePolled } from './use-polled.ts'
import { Name } from './visible.tsx'

const POLL_MS = 5_000
/** Delay after the last key press. */
const TYPED_MS = 300

const HIDDEN = new Set(['ts', 'event', 'chain', 'n', 'prev', 'signature', 'signer'])

const Line = ({ line }: { readonly line: Fields }) => (
  <tr>
    <td class="nowrap">
      <Name text={String(line['ts'])} />
    </td>
    <td class="nowrap">
      <Name text={String(line['event'])} />
    </td>
    <td class="mono">
      {Object.entries(line)
        .filter(([name]) => !HIDDEN.has(name))
        .map(([name, value]) => (
          <span key={name} class="fact">
            <Name text={`${name}=${JSON.stringify(value)}`} />{' '}
          </span>
        ))}
    </td>
  </tr>
)

const useTyped = (text: string): string => {
  const [typed, setTyped] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setTyped(text), TYPED_MS)
    return () => clearTimeout(timer)
  }, [text])
  return typed
}

const orNull = (text: string): string | null => (text === '' ? null : text)

/** Lines that the list omits. */
const LeftOut = ({ lines, unread, more }: PageJournal) => (
  <>
    {lines.length === 0 && <p class="quiet">No entries match.</p>}
    {unread > 0 && <p class="quiet">{unread} lines are too long or damaged and are not shown. The file has them.</p>}
    {more && <p class="quiet">Older entries are in this file and in the rotated ones. Read them with x0x audit tail.</p>}
  </>
)

/** The journals of this host that the operator may read, newest line first. */
export const JournalView = () => {
  const [journal, setJournal] = useState('approvals')
  const [event, setEvent] = useState('')
  const [text, setText] = useState('')
  const query = { journal, event: orNull(useTyped(event)), text: orNull(useTyped(text)) }
  const { value, problem } = usePolled<PageJournal>('journal', query, POLL_MS, JSON.stringify(query))
  const said = problem ?? value?.problem ?? null
  return (
    <>
      <h2>Journal</h2>
      <form class="filters" onSubmit={(submitted) => submitted.preventDefault()}>
        <label>
          Journal{' '}
          <select value={journal} onChange={(changed) => setJournal(changed.currentTarget.value)}>
            {(value?.journals ?? [journal]).map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          Event <input value={event} placeholder="any" spellcheck={false} onInput={(typed) => setEvent(typed.currentTarget.value)} />
        </label>
        <label>
          Holds{' '}
          <input
            data-search
            value={text}
            placeholder="an id, a word"
            spellcheck={false}
            onInput={(typed) => setText(typed.currentTarget.value)}
          />
        </label>
      </form>
      {said !== null && (
        <p class="warning">
          <Name text={said} />
        </p>
      )}
      <div class="scroll" role="region" aria-label="Log entries" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">When</th>
              <th scope="col">Event</th>
              <th scope="col">Details</th>
            </tr>
          </thead>
          <tbody>
            {value?.lines.map((line, at) => (
              <Line key={`${String(line['chain'])} ${String(line['n'])} ${at}`} line={line} />
            ))}
          </tbody>
        </table>
      </div>
      {value !== null && <LeftOut {...value} />}
    </>
  )
}
