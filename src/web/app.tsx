import { useEffect, useRef, useState } from 'preact/hooks'
import type { PageAbout } from '../protocol/page.ts'
import { call, forgetProof } from './api.ts'
import { ApprovalsView } from './approvals-view.tsx'
import { JournalView } from './journal-view.tsx'
import { useKeys } from './keyboard.ts'
import { PeersView } from './peers-view.tsx'
import { PolicyView } from './policy-view.tsx'
import { RunsView } from './runs-view.tsx'
import { type PageState, type ShownApproval, waitingOf } from './store.ts'
import { usePageEvents } from './use-page-events.ts'
import { usePolled } from './use-polled.ts'
import { Name } from './visible.tsx'

/** Notifies a person whose tab is hidden. It does not show the command, because others may see the screen. */
export const useNotice = (waiting: readonly ShownApproval[]): void => {
  const known = useRef(new Set<string>())
  useEffect(() => {
    const fresh = waiting.filter(({ item }) => !known.current.has(item.question_id))
    known.current = new Set(waiting.map(({ item }) => item.question_id))
    if (fresh.length === 0 || !document.hidden || !('Notification' in window) || Notification.permission !== 'granted') return
    const notice = new Notification('x0x: a command waits for your decision', { tag: 'x0x-question' })
    notice.addEventListener('click', () => {
      window.focus()
      notice.close()
    })
  }, [waiting.map(({ item }) => item.question_id).join()])
}

const VIEWS = ['Approvals', 'Runs', 'Peers', 'Journal', 'Policy'] as const
type View = (typeof VIEWS)[number]

const KEYS: readonly (readonly [string, string])[] = [
  ['1 – 5', 'go to a view'],
  ['j, k', 'next and previous request'],
  ['d', 'deny the focused request'],
  ['Tab, Enter', 'other controls; no single key allows a command'],
  ['/', 'search the journal'],
  ['?', 'show or hide this help'],
]

const connectionText = ({ connection, desk }: PageState): string => {
  if (connection === 'signed-out') return 'Signed out'
  if (connection !== 'open') return connection === 'lost' ? 'x0x ui does not answer' : 'Connecting'
  return desk.open ? 'Approval service connected' : 'No approval service'
}

const SignedOut = () => (
  <div class="banner" role="alert">
    <p>
      You are signed out. New requests are not shown. Press Enter in the terminal where <code>x0x ui</code> runs, and open the link that it
      prints.
    </p>
  </div>
)

const Help = () => (
  <dl class="help" aria-label="Keys">
    {KEYS.map(([keys, text]) => (
      <div key={keys}>
        <dt>
          <kbd>{keys}</kbd>
        </dt>
        <dd>{text}</dd>
      </div>
    ))}
  </dl>
)

const signOut = (): void => {
  call('sign-out')
    .catch(() => undefined)
    .finally(() => {
      forgetProof()
      location.replace('/sign-in')
    })
}

const Head = ({ state, help }: { readonly state: PageState; readonly help: () => void }) => {
  const { value } = usePolled<PageAbout>('about', {}, 0, state.connection)
  const name = value?.name ?? null
  const isWell = state.connection === 'open' && state.desk.open
  return (
    <header class="head">
      <h1>x0x</h1>
      <p class="quiet">
        {name !== null && <Name text={name} />} <span class="mono">{value !== null && <Name text={value.data_dir} />}</span>
      </p>
      <p class={isWell ? 'desk good' : 'desk bad'} role="status">
        {connectionText(state)}
      </p>
      <button type="button" aria-label="Keys" onClick={help}>
        ?
      </button>
      <button type="button" onClick={signOut}>
        Sign out
      </button>
    </header>
  )
}

const Tabs = ({ view, count, choose }: { readonly view: View; readonly count: number; readonly choose: (view: View) => void }) => (
  <nav aria-label="Views">
    {VIEWS.map((name) => (
      <button key={name} type="button" aria-current={view === name ? 'page' : undefined} onClick={() => choose(name)}>
        {name}
        {name === 'Approvals' && count > 0 && <span class="count">{count}</span>}
      </button>
    ))}
  </nav>
)

export const App = () => {
  const [state, dispatch] = usePageEvents()
  const [view, setView] = useState<View>('Approvals')
  const [isHelp, setHelp] = useState(false)
  const questions = waitingOf(state)
  const waiting = questions.length
  useNotice(questions)
  useEffect(() => {
    document.title = waiting === 0 ? 'x0x' : `(${waiting}) x0x`
  }, [waiting])
  useKeys({ choose: (at) => setView(VIEWS[at] ?? view), help: () => setHelp((shown) => !shown), search: () => setView('Journal') })
  return (
    <>
      <Head state={state} help={() => setHelp((shown) => !shown)} />
      <Tabs view={view} count={waiting} choose={setView} />
      <p class="unseen" aria-live="assertive" role="alert">
        {state.said}
      </p>
      <main>
        {isHelp && <Help />}
        {state.connection === 'signed-out' && <SignedOut />}
        {state.connection === 'open' && !state.desk.open && state.desk.problem !== null && (
          <p class="warning" role="alert">
            <Name text={state.desk.problem} />
          </p>
        )}
        {view === 'Approvals' && <ApprovalsView state={state} dispatch={dispatch} />}
        {view === 'Runs' && <RunsView state={state} />}
        {view === 'Peers' && <PeersView />}
        {view === 'Journal' && <JournalView />}
        {view === 'Policy' && <PolicyView />}
      </main>
    </>
  )
}
