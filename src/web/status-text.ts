import type { PageAbout } from '../protocol/page.ts'
import { counted, durationText } from './format.ts'
import { type PageState, waitingOf } from './store.ts'

export interface StatusFacts {
  readonly state: Pick<PageState, 'connection' | 'lostAt' | 'desk' | 'questions'>
  /** Null until it is loaded. */
  readonly about: Pick<PageAbout, 'daemon' | 'name' | 'data_dir'> | null
  readonly now: number
}

export interface StatusText {
  readonly text: string
  readonly tone: 'good' | 'wait' | 'bad'
}

const waitingText = (count: number): string =>
  count === 0 ? 'Nothing waits.' : `${counted(count, 'approval')} ${count === 1 ? 'waits' : 'wait'}.`

/** The state of the connections in words, and what it means. */
export const statusText = ({ state, about, now }: StatusFacts): StatusText => {
  const { connection, lostAt, desk } = state
  const waiting = waitingOf(state).length
  if (connection === 'signed-out') return { text: 'Signed out. New requests are not shown.', tone: 'bad' }
  if (connection === 'lost') {
    const since = lostAt === null ? '' : ` for ${durationText(Math.max(1_000, now - lostAt))}`
    return { text: `No connection to x0x ui${since}; retrying. New requests are not shown.`, tone: 'bad' }
  }
  if (connection === 'connecting' || about === null) return { text: 'Connecting to x0x ui …', tone: 'wait' }
  const daemon = about.daemon === null ? null : `x0xd of ${about.name ?? 'this machine'}`
  if (desk.open) {
    const to = daemon ?? `the approval service in ${about.data_dir}; no x0xd answers`
    return { text: `Connected to ${to}. ${waitingText(waiting)}`, tone: waiting > 0 ? 'wait' : 'good' }
  }
  if (daemon !== null)
    return { text: `Connected to ${daemon}, but not to an approval service: commands that need approval are denied.`, tone: 'bad' }
  return { text: `No x0xd and no approval service answer in ${about.data_dir}; retrying.`, tone: 'bad' }
}
