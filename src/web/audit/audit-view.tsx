import type { Fields } from '../../protocol/json-table.ts'
import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import type { PageJournal, PageLogEntry } from '../../protocol/page-lists.ts'
import { Choice, Filters, RangeChoice, TextFilter, rangeMs } from '../filters.tsx'
import { Clock, Command, Problems } from '../parts.tsx'
import type { ViewQuery } from '../router.ts'
import { Pager } from '../table.tsx'
import { useNow } from '../use-now.ts'
import { usePolled } from '../use-polled.ts'
import { useTyped } from '../use-typed.ts'
import { Name } from '../visible.tsx'
import { type Part, sentenceOf } from './sentences.ts'

const POLL_MS = 5_000

const DEFAULT_LOG = 'audit'

const orNull = (text: string): string | null => (text === '' ? null : text)

const TITLES: Readonly<Record<string, string>> = {
  audit: 'audit log: runs on this machine',
  requests: 'request log: runs on other machines',
  approvals: 'approval log',
}

const Shown = ({ part }: { readonly part: Part }) => {
  if (typeof part === 'string') return <>{part}</>
  return 'argv' in part ? <Command argv={part.argv} isCut={part.isCut} /> : <Name text={part.foreign} />
}

/** The raw facts of a line, as the file has them. */
const Facts = ({ line }: { readonly line: Fields }) => (
  <dl class="facts raw">
    {Object.entries(line).map(([name, value]) => (
      <>
        <dt>
          <Name text={name} />
        </dt>
        <dd class="mono">
          <Name text={typeof value === 'string' ? value : JSON.stringify(value)} />
        </dd>
      </>
    ))}
  </dl>
)

const Entry = ({ entry, names, now }: { readonly entry: PageLogEntry; readonly names: PageJournal['names']; readonly now: number }) => {
  const { lines } = entry
  const { parts, tone } = sentenceOf(lines, (id) => names[id] ?? id.slice(0, 8))
  return (
    <li class={`entry ${tone}`}>
      <details>
        <summary data-row>
          <span class="when">
            <Clock iso={String(lines[0]?.['ts'] ?? '')} now={now} />
          </span>
          <span class="sentence">
            {parts.map((part, at) => (
              <Shown key={at} part={part} />
            ))}
          </span>
        </summary>
        {lines.map((line, at) => (
          <Facts key={at} line={line} />
        ))}
      </details>
    </li>
  )
}

/** Lines that the list omits. */
const LeftOut = ({ unread, more }: PageJournal) => (
  <>
    {unread > 0 && <p class="quiet">{unread} lines are too long or damaged and are not shown. The file has them.</p>}
    {more && <p class="quiet">Older entries are in this file and in the rotated ones. Read them with x0x audit tail.</p>}
  </>
)

/** The logs of this host that the operator may read, in sentences, newest first. */
export const AuditView = ({ query }: { readonly query: ViewQuery }) => {
  const now = useNow(60_000)
  const journal = query.get('log') || DEFAULT_LOG
  const [event, text] = [orNull(useTyped(query.get('event'))), orNull(useTyped(query.get('text')))]
  const within_ms = rangeMs(query.get('within'))
  const body = { journal, event, text, within_ms, from: Number(query.get('from')) || 0 }
  const { value, problem } = usePolled<PageJournal>('journal', body, POLL_MS, JSON.stringify(body))
  const set = (name: string) => (chosen: string) => query.set({ [name]: chosen, from: '' })
  return (
    <>
      <h2>Audit log</h2>
      <Filters>
        <Choice
          name="Log"
          value={journal}
          choices={(value?.journals ?? [journal]).map((name) => [name, TITLES[name] ?? name])}
          set={set('log')}
        />
        <TextFilter name="Holds" hint="a name, an ID, a word" value={query.get('text')} set={set('text')} isSearch />
        <TextFilter name="Event" hint="any" value={query.get('event')} set={set('event')} />
        <RangeChoice name="Written in" value={query.get('within')} set={set('within')} />
      </Filters>
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {value !== null && value.total === 0 && value.problems.length === 0 && (
        <p class="empty">
          {text === null && event === null && within_ms === null ? 'This log is empty.' : 'No entries match these filters.'}
        </p>
      )}
      {value !== null && value.total > 0 && (
        <>
          <ul class="entries" aria-label="Log entries">
            {value.rows.map((entry) => (
              <Entry
                key={`${String(entry.lines[0]?.['chain'])} ${String(entry.lines[0]?.['n'])}`}
                entry={entry}
                names={value.names}
                now={now}
              />
            ))}
          </ul>
          <Pager
            from={value.from}
            total={value.total}
            count={value.rows.length}
            step={MAX_PAGE_ROWS}
            of="entries"
            go={(first) => query.set({ from: first === 0 ? '' : String(first) })}
          />
        </>
      )}
      {value !== null && <LeftOut {...value} />}
    </>
  )
}
