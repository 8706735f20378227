import { useEffect, useRef, useState } from 'preact/hooks'
import type { PageAbout } from '../protocol/page.ts'
import { call, forgetProof } from './api.ts'
import { ApprovalsView } from './approvals/approvals-view.tsx'
import { AuditView } from './audit/audit-view.tsx'
import { Help } from './dialog.tsx'
import { EnrolView } from './enrol/enrol-view.tsx'
import { useKeys } from './keyboard.ts'
import { OverviewView } from './overview-view.tsx'
import { PeersView } from './peers/peers-view.tsx'
import { PolicyView } from './policy/policy-view.tsx'
import { type ViewQuery, type PageRoute, VIEWS, go, hrefOf, useRoute } from './router.ts'
import { FanoutsView } from './runs/fanouts-view.tsx'
import { RunsView } from './runs/runs-view.tsx'
import { type Action, type PageState, type ShownApproval, statusText, waitingOf } from './store.ts'
import { useTheme } from './theme.ts'
import { type BulkReports, TrustView } from './trust/trust-view.tsx'
import { usePageEvents } from './use-page-events.ts'
import { useNow } from './use-now.ts'
import { usePolled } from './use-polled.ts'
import { Name } from './visible.tsx'

const ABOUT_MS = 5_000

/** Notifies a person whose tab is hidden. It does not show the command, because others may see the screen. */
const useNotice = (waiting: readonly ShownApproval[]): void => {
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

const SignedOut = () => (
  <div class="banner" role="alert">
    <p>
      You are signed out. New requests are not shown. Press Enter in the terminal where <code>x0x ui</code> runs, and open the link that it
      prints.
    </p>
  </div>
)

const signOut = (): void => {
  call('sign-out')
    .catch(() => undefined)
    .finally(() => {
      forgetProof()
      location.replace('/sign-in')
    })
}

interface SideProps {
  readonly route: PageRoute
  readonly waiting: number
  readonly about: PageAbout | null
}

/** Navigation: a column on a wide screen, a menu on a phone. */
const Side = ({ route, waiting, about }: SideProps) => {
  const [isOpen, setOpen] = useState(false)
  const title = VIEWS.find(({ id }) => id === route.view)?.title
  return (
    <header class="side">
      <div class="brand">
        <h1>x0x</h1>
        <span class="quiet">{about !== null && about.name !== null && <Name text={about.name} />}</span>
        <button type="button" class="menu" aria-expanded={isOpen} aria-controls="views" onClick={() => setOpen(!isOpen)}>
          Menu: {title}
        </button>
      </div>
      <nav id="views" aria-label="Views" class={isOpen ? 'open' : ''}>
        {VIEWS.map(({ id, title: name }) => (
          <a key={id} href={hrefOf(id)} aria-current={route.view === id ? 'page' : undefined} onClick={() => setOpen(false)}>
            {name}
            {id === 'approvals' && waiting > 0 && <span class="count">{waiting}</span>}
          </a>
        ))}
      </nav>
    </header>
  )
}

const StatusLine = ({ state, about }: Pick<TopProps, 'state' | 'about'>) => {
  const now = useNow(1_000)
  const { text, tone } = statusText({ state, about, now })
  return (
    <p class={`status ${tone}`} role="status">
      <Name text={text} />
    </p>
  )
}

interface TopProps {
  readonly state: PageState
  readonly about: PageAbout | null
  readonly theme: readonly [string, () => void]
  readonly help: () => void
}

const Top = ({ state, about, theme: [theme, nextTheme], help }: TopProps) => (
  <div class="top">
    <StatusLine state={state} about={about} />
    <div class="tools">
      <button type="button" onClick={nextTheme} aria-label={`Colours: ${theme}. Change`}>
        {theme === 'auto' ? 'Auto' : theme === 'light' ? 'Light' : 'Dark'}
      </button>
      <button type="button" class="keys" aria-label="Keys" onClick={help}>
        ?
      </button>
      <button type="button" onClick={signOut}>
        Sign out
      </button>
    </div>
  </div>
)

interface ViewProps {
  readonly route: PageRoute
  readonly query: ViewQuery
  readonly state: PageState
  readonly dispatch: (action: Action) => void
  readonly reports: BulkReports
}

const View = ({ route: { view, item }, query, state, dispatch, reports }: ViewProps) => {
  switch (view) {
    case 'overview':
      return <OverviewView state={state} />
    case 'approvals':
      return <ApprovalsView state={state} dispatch={dispatch} />
    case 'peers':
      return <PeersView item={item} query={query} />
    case 'runs':
      return <RunsView state={state} item={item} query={query} />
    case 'fanouts':
      return <FanoutsView item={item} query={query} />
    case 'audit':
      return <AuditView query={query} />
    case 'trust':
      return <TrustView query={query} reports={reports} />
    case 'enrol':
      return <EnrolView />
    case 'policy':
      return <PolicyView />
    default:
      return view satisfies never
  }
}

/** A view that does not show waiting requests says that there are some. */
const Waiting = ({ count }: { readonly count: number }) => (
  <a class="waiting" href={hrefOf('approvals')}>
    {count === 1 ? 'A command waits' : `${count} commands wait`} for your decision. <strong>Decide</strong>
  </a>
)

export const App = () => {
  const [state, dispatch] = usePageEvents()
  const [route, change] = useRoute()
  const [isHelp, setHelp] = useState(false)
  const reports = useState<BulkReports[0]>(null)
  const theme = useTheme()
  const { value: about } = usePolled<PageAbout>('about', {}, ABOUT_MS, state.connection)
  const questions = waitingOf(state)
  const waiting = questions.length
  const query: ViewQuery = { get: (name) => route.query[name] ?? '', set: change }
  useNotice(questions)
  useEffect(() => {
    document.title = waiting === 0 ? 'x0x' : `(${waiting}) x0x`
  }, [waiting])
  useKeys({
    choose: (at) => VIEWS[at] !== undefined && go(hrefOf(VIEWS[at].id)),
    help: () => setHelp((isShown) => !isShown),
    theme: theme[1],
    back: () => route.item !== null && history.back(),
  })
  return (
    <div class="frame">
      <Side route={route} waiting={waiting} about={about} />
      <div class="body">
        <Top state={state} about={about} theme={theme} help={() => setHelp(true)} />
        <p class="unseen" aria-live="assertive" role="alert">
          {state.said}
        </p>
        <main>
          {isHelp && <Help close={() => setHelp(false)} />}
          {state.connection === 'signed-out' && <SignedOut />}
          {state.connection === 'open' && !state.desk.open && state.desk.problem !== null && (
            <p class="warning" role="alert">
              <Name text={state.desk.problem} />
            </p>
          )}
          {waiting > 0 && route.view !== 'approvals' && <Waiting count={waiting} />}
          <View key={`${route.view} ${route.item ?? ''}`} route={route} query={query} state={state} dispatch={dispatch} reports={reports} />
        </main>
      </div>
    </div>
  )
}
