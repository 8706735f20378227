import assert from 'node:assert/strict'

import type { Params, Peer, Result, Session } from './peer.ts'
import { requirement, WEB, type Requirement } from './requirement.ts'
import type { ConfigOptions } from './server.ts'

const ROOMY: ConfigOptions = { limits: ['max_output_bytes = 67108864'], security: ['allow_shell = true'] }
const LINES = 1_000_000
const ONLY_WEB = { only: WEB }
const WINDOW_MS = { http: 600_000, websocket: 60_000 }

interface Event {
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
}

interface Kept {
  readonly session: Session
  readonly resume_token: string
}

/** Opens a session that can be resumed. */
const kept = async (peer: Peer): Promise<Kept> => {
  const session = await peer.session({ resumable: true })
  return { session, resume_token: String(session.opened['resume_token']) }
}

const eventsOf = async (
  session: Session,
  cursor: number,
  params: Params = {},
): Promise<{ events: Event[]; cursor: number; gap: unknown }> => session.call('session.events', { cursor, ...params })

const resumed = async (peer: Peer, { session, resume_token }: Kept, params: Params = {}): Promise<Result> =>
  peer.call('session.resume', { session_id: session.id, resume_token, ...params })

const RESUME: readonly Requirement[] = [
  requirement(
    'session.open/resumable',
    'a session that can be resumed has a token and a time limit',
    'session.open.resumable session.open:resume_token session.open:resume_window_ms',
    async (peer) => {
      const [one, other] = [await kept(peer), await kept(peer)]
      assert.match(one.resume_token, /^[\w-]{43}$/)
      assert.notEqual(one.resume_token, other.resume_token)
      assert.equal(one.session.opened['resume_window_ms'], WINDOW_MS[peer.name as keyof typeof WINDOW_MS])
      const plain = await peer.session({ resumable: false })
      // Over HTTP every session can be resumed, because its events are polled.
      assert.equal('resume_token' in plain.opened, peer.name === 'http')
    },
    ONLY_WEB,
  ),
  requirement(
    'session.resume/answer',
    'with its token, a session continues over another connection with the events after the cursor',
    `session.resume session.resume.session_id session.resume.resume_token session.resume.cursor session.resume:protocol session.resume:server_version
     session.resume:tells_waiting
     session.info:session_id session.info:client_name session.info:opened_at session.info:workspace_roots session.info:capabilities`,
    async (peer) => {
      const all = await kept(peer)
      const { session } = all
      const log = await session.start({ argv: ['cat'], stdin: 'one ', stdin_open: true })
      await log.printed('one ')
      const { processes: before, ...info } = await session.call<{ processes: object[] }>('session.info')
      const next = await peer.another()
      const { processes, protocol, server_version, tells_waiting, ...rest } = await resumed(next, all, { cursor: 1 })
      assert.deepEqual([protocol, tells_waiting, rest, processes], ['rexd/1', true, info, before])
      assert.equal(server_version, session.opened['server_version'])
      await next.call('exec.input', { session_id: session.id, process_id: log.id, data: 'two', eof: true })
      const there = next.log(log.id)
      await there.exit
      assert.deepEqual([there.stdout.toString(), there.events.map(({ params }) => params['cursor'])], ['two', [2, 3]])
      const whole = await peer.another()
      await resumed(whole, all)
      await whole.log(log.id).finished()
      assert.equal(whole.log(log.id).stdout.toString(), 'one two', 'all from the first on, where no cursor is said')
      for (const one of [next, whole]) await one.close()
    },
    ONLY_WEB,
  ),
  requirement(
    'session.resume/refused',
    'a session cannot be resumed without its token, and an unknown session cannot be resumed',
    '-32001 session.resume.resume_token session.resume.cursor',
    async (peer) => {
      const [{ session, resume_token }, other] = [await kept(peer), await kept(peer)]
      const next = await peer.another()
      for (const params of [
        { session_id: session.id, resume_token: other.resume_token },
        { session_id: session.id, resume_token: session.id },
        { session_id: session.id, resume_token: resume_token.toUpperCase() },
        { session_id: 's_AAAAAAAAAAAAAAAAAAAAAA', resume_token },
      ])
        await next.failure(-32001, 'session.resume', params)
      const attempt = `session.resume unknown_session: by a client over ${peer.name} that does not own the session`
      assert.deepEqual(await peer.home.refusalsOf(session.id), [attempt, attempt, attempt])
      // A cursor in the future is refused too. The original client keeps its session.
      await next.failure(-32602, 'session.resume', { session_id: session.id, resume_token, cursor: 1 })
      await session.call('session.info')
      await session.close()
      await next.failure(-32001, 'session.resume', { session_id: session.id, resume_token })
      await next.close()
    },
    ONLY_WEB,
  ),
  requirement(
    'session.resume/connection',
    'a connection ends its sessions that cannot be resumed, and the others continue with their programs',
    'session.open.resumable session.resume exec.exit',
    async (peer) => {
      const first = await peer.another()
      const all = await kept(first)
      const plain = await first.session()
      const log = await all.session.start({ argv: ['cat'], stdin_open: true })
      const ended = await plain.start({ argv: ['cat'], stdin_open: true })
      await first.close()
      const next = await peer.another()
      const { processes } = await resumed(next, all)
      assert.deepEqual(
        (processes as { process_id: string; status: string }[]).map(({ process_id, status }) => [process_id, status]),
        [[log.id, 'running']],
      )
      await next.call('exec.input', { session_id: all.session.id, process_id: log.id, data: '', eof: true })
      assert.equal((await next.log(log.id).finished())['exit_code'], 0)
      await next.failure(-32001, 'exec.kill', { session_id: plain.id, process_id: ended.id })
      await next.close()
    },
    { only: { names: ['websocket'], because: 'over HTTP no session has a connection' } },
  ),
]

const EVENTS: readonly Requirement[] = [
  requirement(
    'session.events/answer',
    'session.events returns events after a cursor, at once or when one arrives',
    'session.events session.events.session_id session.events.cursor session.events.timeout_ms session.events:events session.events:cursor session.events:gap',
    async (peer) => {
      const { session } = await kept(peer)
      assert.deepEqual(await eventsOf(session, 0), { events: [], cursor: 0, gap: null })
      assert.deepEqual(await eventsOf(session, 0, { timeout_ms: 5 }), { events: [], cursor: 0, gap: null })
      const waiting = eventsOf(session, 0, { timeout_ms: 60_000 })
      const log = await session.start({ argv: ['printf', 'x'] })
      const [first] = (await waiting).events
      assert.deepEqual(
        [first!.method, first!.params],
        ['exec.stdout', { session_id: session.id, process_id: log.id, seq: 1, data: 'x', encoding: 'utf8', cursor: 1 }],
      )
      await log.finished()
      const all = await eventsOf(session, 0)
      assert.deepEqual(
        all.events.map(({ method, params }) => [method, params['cursor']]),
        [
          ['exec.stdout', 1],
          ['exec.exit', 2],
        ],
      )
      assert.deepEqual([all.cursor, all.gap], [2, null])
      assert.deepEqual(await eventsOf(session, 1), { events: all.events.slice(1), cursor: 2, gap: null })
      assert.deepEqual(await eventsOf(session, 2), { events: [], cursor: 2, gap: null })
      // A cursor in the future would wait forever.
      for (const params of [{ cursor: 3 }, { cursor: -1 }, { cursor: 0, timeout_ms: 60_001 }, { cursor: 0.5 }, {}])
        await session.failure(-32602, 'session.events', params)
    },
    ONLY_WEB,
  ),
  requirement(
    'session.gap/event',
    'session.gap and session.events name exactly the events that were dropped',
    'session.gap session.gap:session_id session.gap:from session.gap:to session.events:gap',
    async (peer) => {
      const all = await kept(peer)
      const { session } = all
      const log = await session.start({ argv: ['seq', '1', `${LINES}`] })
      const { bytes_stdout } = await log.finished()
      assert.equal(log.stdout.length, bytes_stdout)
      assert.deepEqual(peer.gaps, [])
      const last = log.events.length
      const { events, gap } = await eventsOf(session, 0)
      const first = Number(events[0]!.params['cursor'])
      assert.ok(first > 10 && first < last, `${first} of ${last}`)
      assert.deepEqual(gap, { from: 1, to: first - 1 })
      assert.equal((await eventsOf(session, first - 1)).gap, null)
      const late = await peer.another()
      await resumed(late, all, { cursor: 3 })
      await late.log(log.id).exit
      assert.deepEqual(
        late.gaps.map(({ params }) => params),
        [{ session_id: session.id, from: 4, to: first - 1 }],
      )
      assert.ok(late.gaps[0]!.at < late.log(log.id).events[0]!.at, 'before what is left')
      const cursors = late.log(log.id).events.map(({ params }) => params['cursor'])
      assert.deepEqual(
        cursors,
        Array.from({ length: last - first + 1 }, (_, at) => first + at),
      )
      await late.close()
    },
    { ...ONLY_WEB, config: ROOMY },
  ),
]

export const RESUME_REQUIREMENTS: readonly Requirement[] = [...RESUME, ...EVENTS]
