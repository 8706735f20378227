import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { shown } from '../../base/visible-text.ts'
import { MAX_EVENT_TAIL } from '../../protocol/limits/events.ts'
import type { PageDetachedOutput, PageRun } from '../../protocol/page-lists.ts'
import { call } from '../api.ts'
import { TextFilter } from '../filters.tsx'
import { bytesText, numberText } from '../format.ts'
import { Name, Output } from '../visible.tsx'
import { hitsOf, outputFileName, partsOf, stepOf } from './find.ts'

const BLOB_MS = 60_000

/** Lets the browser store a text as a file. */
const save = (text: string, name: string): void => {
  const address = URL.createObjectURL(new Blob([text], { type: 'text/plain;charset=utf-8' }))
  Object.assign(document.createElement('a'), { href: address, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(address), BLOB_MS)
}

interface FindProps {
  readonly search: string
  readonly count: number
  readonly at: number
  readonly find: (search: string) => void
  readonly step: (by: 1 | -1) => void
  /** Ends the search. */
  readonly leave: () => void
}

/** A search in the output. Enter and Shift+Enter step through the hits, Escape ends it. */
const Find = ({ search, count, at, find, step, leave }: FindProps) => {
  const press = (event: KeyboardEvent): void => {
    if (!(event.target instanceof HTMLInputElement)) return
    if (event.key === 'Enter') step(event.shiftKey ? -1 : 1)
    else if (event.key === 'Escape') leave()
    else return
    event.preventDefault()
  }
  return (
    <div class="filters find" role="search" aria-label="Find in the output" onKeyDown={press}>
      <TextFilter name="Find in the output" hint="a word" value={search} set={find} isSearch />
      {search !== '' && (
        <>
          <button type="button" data-previous disabled={count === 0} onClick={() => step(-1)}>
            Previous
          </button>
          <button type="button" data-next disabled={count === 0} onClick={() => step(1)}>
            Next
          </button>
        </>
      )}
      <span role="status" class="quiet">
        {search === '' ? '' : count === 0 ? 'Not found' : `${numberText(at + 1)} of ${numberText(count)}`}
      </span>
    </div>
  )
}

interface TextProps {
  readonly run: PageRun
  readonly text: string
  readonly isLive: boolean
  readonly isCut: boolean
}

/** Copies or stores the text as it is shown, with its escapes, so that it does nothing to a terminal either. */
const Take = ({ run, text, isCut }: Omit<TextProps, 'isLive'>) => {
  const [said, setSaid] = useState('')
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text)
      setSaid(isCut ? 'Copied the end of the output.' : 'Copied.')
    } catch {
      setSaid('The browser refused to copy. Select the text, then copy it.')
    }
  }
  return (
    <>
      <button type="button" onClick={() => void copy()}>
        Copy
      </button>
      <button type="button" onClick={() => save(text, outputFileName(run, isCut))}>
        Download
      </button>
      <span role="status" class="quiet">
        {said}
      </span>
    </>
  )
}

/** Output with a search. It scrolls with the end of a live run; "Pause" or a search holds it for reading. */
const SearchedOutput = ({ run, text, isLive, isCut }: TextProps) => {
  const [held, setHeld] = useState<string | null>(null)
  const [{ search, at }, setFound] = useState({ search: '', at: 0 })
  const place = useRef<HTMLDivElement>(null)
  const isHeld = isLive && held !== null
  const present = isHeld ? held : text
  const escaped = useMemo(() => shown(present), [present])
  const hits = useMemo(() => hitsOf(escaped, search), [escaped, search])
  const hit = Math.max(0, Math.min(at, hits.length - 1))
  useLayoutEffect(() => {
    const output = place.current?.querySelector('.output')
    if (isLive && !isHeld && output !== null && output !== undefined) output.scrollTop = output.scrollHeight
  }, [text, isLive, isHeld])
  useLayoutEffect(() => place.current?.querySelector('.hit.present')?.scrollIntoView({ block: 'nearest' }), [hit, search])
  const find = (wanted: string): void => {
    if (held === null && wanted !== '') setHeld(text)
    setFound({ search: wanted, at: 0 })
  }
  const leave = (): void => {
    setFound({ search: '', at: 0 })
    place.current?.querySelector<HTMLElement>('.output')?.focus()
  }
  const mark = (whole: string) =>
    partsOf(whole, hits, hit).map((part, index) =>
      part.hit === null ? (
        part.text
      ) : (
        <mark key={index} class={part.hit === hit ? 'hit present' : 'hit'}>
          {part.text}
        </mark>
      ),
    )
  return (
    <div ref={place}>
      <Find
        search={search}
        count={hits.length}
        at={hit}
        find={find}
        step={(by) => setFound({ search, at: stepOf(hit, hits.length, by) })}
        leave={leave}
      />
      <Output text={present} label={isLive ? 'Output so far' : 'End of the output'} mark={mark} />
      <div class="buttons take">
        {isLive && (
          <button type="button" aria-pressed={isHeld} onClick={() => setHeld(isHeld ? null : text)}>
            Pause
          </button>
        )}
        <Take run={run} text={escaped} isCut={isCut} />
        {isHeld && <span class="quiet">{held === text ? 'Paused.' : 'Paused. There is new output.'}</span>}
      </div>
    </div>
  )
}

interface RunOutputProps extends Omit<TextProps, 'text'> {
  readonly text: string | null
  /** Reason of missing output. */
  readonly problem: string | null
}

/** The output of a run as far as this machine has it. */
export const RunOutput = ({ text, problem, ...of }: RunOutputProps) => (
  <section>
    <h3>Output</h3>
    {text !== null && text !== '' ? (
      <SearchedOutput text={text} {...of} />
    ) : (
      <p class="quiet">
        {text === '' || (of.isLive && problem === null) ? (
          'It has written nothing.'
        ) : problem !== null ? (
          <Name text={problem} />
        ) : (
          'This page has not seen its output. x0x stores only the output of recorded and detached runs.'
        )}
      </p>
    )}
    {of.isCut && (
      <p class="quiet line">
        Earlier output is not kept. Find, Copy and Download have this end of at most {numberText(MAX_EVENT_TAIL)} characters.
      </p>
    )}
  </section>
)

/** The output of a detached run, which its host stores. The host is asked for each click only. */
export const DetachedOutput = ({ run, problem }: { readonly run: PageRun; readonly problem: string | null }) => {
  const [read, setRead] = useState<PageDetachedOutput | null>(null)
  const [said, setSaid] = useState('')
  const ask = async (): Promise<void> => {
    setSaid('Asking its host …')
    try {
      setRead(await call<PageDetachedOutput>('detached_output', { key: run.key }))
      setSaid('')
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <>
      <RunOutput run={run} isLive={false} text={read?.text ?? null} isCut={read?.truncated ?? false} problem={problem} />
      {read !== null && read.bytes_dropped > 0 && (
        <p class="warning">Its host could not store {bytesText(read.bytes_dropped)} of output after this.</p>
      )}
      <p class="buttons take">
        <button type="button" onClick={() => void ask()}>
          {read === null ? 'Read the output' : 'Read it again'}
        </button>
        <span role="status">
          <Name text={said} />
        </span>
      </p>
    </>
  )
}
