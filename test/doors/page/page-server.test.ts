import assert from 'node:assert/strict'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { connect, createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { lifecycleEvent, type LifecycleEvent } from '../../../src/protocol/events/lifecycle.ts'
import { MAX_RUN_NAME } from '../../../src/protocol/limits/approvals.ts'
import { MAX_EVENT_TAIL } from '../../../src/protocol/limits/events.ts'
import { PAGE_PROOF_HEADER } from '../../../src/protocol/page.ts'
import {
  MAX_PAGE_BODY,
  MAX_PAGE_LINKS,
  MAX_PAGE_SESSIONS,
  MAX_PAGE_UNPROVEN,
  PAGE_FOLLOW_MS,
  PAGE_IDLE_MS,
  PAGE_LINK_MS,
  PAGE_REQUESTS,
  PAGE_SESSION_MS,
} from '../../../src/protocol/limits/page.ts'
import { PAGE_CALLS } from '../../../src/doors/page/page-calls.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { askPage, codeOf, pageHeaders, pageHost, pendingOf, signInTo, type PageHost } from '../../support/page-host.ts'

const eventOf = (n: number, tail: string): LifecycleEvent =>
  lifecycleEvent(
    { type: 'exec.finished', owner: 'reviewer', session: null, door: 'mcp', run_id: `run_${n}`, node: 'gateway', code: 0, tail },
    { n, ts: new Date(0).toISOString() },
  )

const errorIn = ({ text }: { text: string }): string => String((JSON.parse(text) as { error: unknown }).error)

const call = async (host: PageHost, name: string, session: { cookie: string; proof: string } | undefined, body: object = {}) =>
  askPage(host, `/api/${name}`, { headers: pageHeaders(host, session), body: JSON.stringify(body) })

test('every answer, including a refusal, has headers that block other pages and inline scripts', async (t) => {
  const host = await pageHost(t)
  for (const answer of [await askPage(host, '/sign-in'), await askPage(host, '/nowhere'), await call(host, 'about', undefined)]) {
    const policy = answer.headers['content-security-policy'] as string
    assert.match(policy, /default-src 'none'/)
    assert.match(policy, /frame-ancestors 'none'/)
    assert.doesNotMatch(policy, /unsafe|\*|https?:|data:/)
    assert.equal(answer.headers['x-content-type-options'], 'nosniff')
    assert.equal(answer.headers['referrer-policy'], 'no-referrer')
    assert.equal(answer.headers['cache-control'], 'no-store')
    assert.equal(answer.headers['access-control-allow-origin'], undefined)
  }
})

test('a client that has not signed in gets only the sign-in page', async (t) => {
  const host = await pageHost(t)
  for (const path of ['/sign-in', '/sign-in.js', '/page.css', '/icon.svg']) assert.equal((await askPage(host, path)).status, 200, path)
  const first = await askPage(host, '/')
  assert.deepEqual([first.status, first.headers.location], [303, '/sign-in'])
  assert.equal((await askPage(host, '/page.js')).status, 401)
  for (const name of [...Object.keys(PAGE_CALLS), 'follow', 'here', 'sign-out', 'nothing'])
    assert.equal((await call(host, name, undefined)).status, 401, name)
  assert.equal(host.desk.listeners.size, 0)
})

test('a session needs its cookie and its proof together, and one without the other is refused', async (t) => {
  const host = await pageHost(t)
  const session = await signInTo(host)
  assert.equal((await call(host, 'about', session)).status, 200)
  const other = await signInTo(host)
  const { [PAGE_PROOF_HEADER]: _proof, ...withoutProof } = pageHeaders(host, session)
  assert.equal((await askPage(host, '/api/about', { headers: withoutProof, body: '{}' })).status, 401)
  assert.equal((await call(host, 'about', { ...session, proof: other.proof })).status, 401)
  assert.equal((await call(host, 'about', { ...session, cookie: other.cookie })).status, 401)
  assert.equal((await call(host, 'about', { ...session, cookie: `${session.cookie}; ${other.cookie}` })).status, 401)
  assert.equal((await call(host, 'about', session)).status, 200)
})

test('scripts cannot read the cookie, and browsers do not send it with requests of other sites', async (t) => {
  const host = await pageHost(t)
  const code = codeOf(host.server.newLink())
  const { headers } = await askPage(host, '/sign-in', { headers: pageHeaders(host), body: JSON.stringify({ code }) })
  assert.match(
    headers['set-cookie']![0]!,
    // Without a Domain attribute the cookie belongs to this host name only.
    new RegExp(`^x0x_page_${host.server.port}=[A-Za-z0-9_-]{22}; Path=/; HttpOnly; SameSite=Strict$`),
  )
})

test('a link signs in once, and the server refuses a repeated, cut, displaced or expired code', async (t) => {
  const clock = new ManualClock()
  const host = await pageHost(t, { clock })
  const enter = async (code: unknown) => askPage(host, '/sign-in', { headers: pageHeaders(host), body: JSON.stringify({ code }) })
  const code = codeOf(host.server.newLink())
  assert.match(code, /^[A-Za-z0-9_-]{22}$/)
  assert.equal((await enter(code.slice(0, -1))).status, 401)
  assert.equal((await enter(code)).status, 200)
  const again = await enter(code)
  assert.deepEqual([again.status, errorIn(again)], [401, 'unauthorized'])
  const old = codeOf(host.server.newLink())
  await clock.advance(PAGE_LINK_MS)
  assert.equal((await enter(old)).status, 401)
  const codes = Array.from({ length: MAX_PAGE_LINKS + 1 }, () => codeOf(host.server.newLink()))
  assert.equal((await enter(codes[0])).status, 401)
  assert.equal((await enter(codes.at(-1))).status, 200)
  for (const bad of [undefined, 7, null, ['x'], {}]) assert.equal((await enter(bad)).status, 400)
})

test('a request with a foreign Host (DNS rebinding), Origin or site is refused before anything else is checked', async (t) => {
  const host = await pageHost(t)
  const session = await signInTo(host)
  const { port } = host.server
  const own = pageHeaders(host, session)
  const bad: Record<string, string | string[]>[] = [
    { host: 'evil.example' },
    { host: `evil.example:${port}` },
    { host: `localhost:${port}` },
    { host: `127.0.0.1:${port}` },
    { host: `[::1]:${port}` },
    { host: `x0x.localhost:${port}` },
    { host: host.server.host.slice(1) },
    { host: host.server.host.replace(/:.*/, '') },
    { host: host.server.host.replace(/:.*/, `:${port + 1}`) },
    { host: `${host.server.host}.evil.example` },
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: `http://127.0.0.1:${port}` },
    { origin: `http://localhost:${port}` },
    { origin: host.origin.replace(/\d+$/, String(port + 1)) },
    { origin: host.origin.replace('http', 'https') },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ]
  for (const headers of bad) {
    const answer = await askPage(host, '/api/about', { headers: { ...own, ...headers }, body: '{}' })
    assert.deepEqual([answer.status, errorIn(answer)], [403, 'forbidden_host'], JSON.stringify(headers))
    assert.ok(answer.text.includes('follow the link that x0x ui prints'), answer.text)
    assert.ok(!answer.text.includes(host.server.host.split('.')[0]!), 'it tells the name of the page')
    const page = await askPage(host, '/', { headers: { cookie: session.cookie, ...headers } })
    assert.equal(page.status, 403, JSON.stringify(headers))
  }
  const { origin: _origin, ...withoutOrigin } = own
  assert.equal((await askPage(host, '/api/about', { headers: withoutOrigin, body: '{}' })).status, 403)
  assert.equal((await askPage(host, `${host.origin}/sign-in`, {})).status, 403)
  assert.equal((await askPage(host, '/api/about', { headers: own, body: '{}' })).status, 200)
})

test('each start uses a new name of 128 random bits below localhost, and 127.0.0.1 only by option', async (t) => {
  const names = [await pageHost(t), await pageHost(t)].map(({ server }) => new URL(server.newLink()).hostname)
  for (const name of names) assert.match(name, /^[0-9a-f]{32}\.localhost$/)
  assert.notEqual(names[0], names[1])
  const host = await pageHost(t, { loopbackIp: true })
  assert.equal(new URL(host.server.newLink()).host, `127.0.0.1:${host.server.port}`)
  assert.equal((await askPage(host, '/sign-in')).status, 200)
  const named = await askPage(host, '/sign-in', { headers: { host: `${names[0]}:${host.server.port}` } })
  assert.equal(named.status, 403)
})

test('the server refuses a port on which another program uses either address of localhost', async (t) => {
  for (const address of ['127.0.0.1', '::1']) {
    const other = createServer().listen(0, address)
    await once(other, 'listening')
    t.after(() => other.close())
    const { port } = other.address() as AddressInfo
    await assert.rejects(pageHost(t, { port }), { code: 'conflict' }, address)
  }
  const host = await pageHost(t)
  for (const address of ['127.0.0.1', '::1']) {
    const thief = createServer().listen(host.server.port, address)
    const [error] = (await once(thief, 'error')) as [NodeJS.ErrnoException]
    assert.equal(error.code, 'EADDRINUSE')
  }
})

test('the server refuses a body that is too large, not a JSON object, of another type or with an unknown field', async (t) => {
  const host = await pageHost(t)
  const session = await signInTo(host)
  const headers = pageHeaders(host, session)
  const large = await askPage(host, '/api/explain', { headers, body: JSON.stringify({ text: 'x'.repeat(MAX_PAGE_BODY) }) })
  assert.deepEqual([large.status, errorIn(large)], [413, 'too_large'])
  for (const body of ['', 'x', '[]', '"{}"', 'null', '{"other":1}'])
    assert.equal((await askPage(host, '/api/about', { headers, body })).status, 400, body)
  assert.equal((await askPage(host, '/api/about', { headers: { ...headers, 'content-type': 'text/plain' }, body: '{}' })).status, 400)
  assert.equal((await call(host, 'nothing', session)).status, 404)
  assert.equal((await call(host, 'constructor', session)).status, 404)
  assert.equal((await askPage(host, '/api/about', { headers, method: 'GET' })).status, 405)
  assert.equal((await askPage(host, '/page.css', { headers, body: '{}' })).status, 405)
  assert.equal((await askPage(host, '/../page.js', { headers: { cookie: session.cookie } })).status, 404)
})

/** Reads lines of the stream. `gone` cuts it, as a closed page does. */
const following = async (host: PageHost, session: { cookie: string; proof: string }) => {
  const gone = new AbortController()
  const { port, host: name } = host.server
  const headers = { host: name, ...pageHeaders(host, session) }
  const request = httpRequest({ host: '127.0.0.1', port, path: '/api/follow', method: 'POST', headers, agent: false, signal: gone.signal })
  request.end('{}')
  const [response] = (await once(request, 'response')) as [IncomingMessage]
  request.on('error', () => undefined)
  response.setEncoding('utf8').on('error', () => undefined)
  const parts = (response as AsyncIterable<string>)[Symbol.asyncIterator]()
  let rest = ''
  const next = async (): Promise<Record<string, unknown> | null> => {
    for (;;) {
      const end = rest.indexOf('\n')
      if (end !== -1) {
        const line = rest.slice(0, end)
        rest = rest.slice(end + 1)
        return JSON.parse(line) as Record<string, unknown>
      }
      const part = await parts.next().catch(() => ({ done: true, value: undefined }))
      if (part.done === true) return null
      rest += part.value
    }
  }
  return { status: response.statusCode, next, gone }
}

const until = async (isSo: () => boolean): Promise<void> => {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 5))
}

test("the server follows a run while a page asks for it, and sends the run's events to the page", async (t) => {
  const clock = new ManualClock()
  const host = await pageHost(t, { clock })
  const session = await signInTo(host)
  const watching = await following(host, session)
  for (let isOpen = false; !isOpen;) isOpen = (await watching.next())?.['open'] === true
  host.desk.running = [lifecycleEvent({ ...eventOf(7, ''), type: 'exec.started', code: null }, { n: 7, ts: new Date(0).toISOString() })]
  const asked = async (...followed: string[]): Promise<unknown> => JSON.parse((await call(host, 'watch', session, { followed })).text).going
  assert.deepEqual(await asked(), ['reviewer run_7'])
  const told = (await watching.next())?.['event'] as LifecycleEvent | undefined
  assert.deepEqual([told?.type, told?.run_id], ['exec.started', 'run_7'])
  await asked('reviewer run_7')
  await clock.advance(PAGE_FOLLOW_MS / 2)
  await asked('reviewer run_8')
  await clock.advance(PAGE_FOLLOW_MS / 2)
  await asked()
  await clock.advance(PAGE_FOLLOW_MS)
  const [seven, eight] = ['reviewer run_7', 'reviewer run_8']
  assert.deepEqual(host.desk.followed, [[], [seven], [seven, eight], [eight], []])
  assert.equal((await call(host, 'watch', session, { followed: Array(33).fill('x') })).status, 400)
})

test('the server follows the approval service only while a page is open', async (t) => {
  const host = await pageHost(t)
  const session = await signInTo(host)
  assert.equal(host.desk.listeners.size, 0)
  const page = await following(host, session)
  assert.deepEqual(await page.next(), { type: 'desk', open: false, problem: null })
  assert.deepEqual(await page.next(), { type: 'desk', open: true, problem: null })
  assert.equal(host.desk.listeners.size, 1)
  const pending = pendingOf('one', { argv: ['git', 'pu\u202esh'] })
  host.desk.ask(pending)
  assert.deepEqual(await page.next(), { type: 'question', question: pending })
  const second = await following(host, await signInTo(host))
  assert.deepEqual(await second.next(), { type: 'desk', open: true, problem: null })
  assert.deepEqual(await second.next(), { type: 'question', question: pending })
  page.gone.abort()
  second.gone.abort()
  await until(() => host.desk.listeners.size === 0)
})

test('a second page gets events even if the runs of the approval service wrote much output', async (t) => {
  const host = await pageHost(t)
  const first = await following(host, await signInTo(host))
  while ((await first.next())?.['open'] !== true);
  for (let n = 1; n <= 200; n++) {
    host.desk.tell(eventOf(n, '\u001b'.repeat(MAX_EVENT_TAIL)))
    assert.equal((await first.next())?.['type'], 'event')
  }
  const second = await following(host, await signInTo(host))
  const told: number[] = []
  while (told.at(-1) !== 200) {
    const news = await second.next()
    assert.ok(news !== null, `cut off after ${told.length} events`)
    if (news['type'] === 'event') told.push((news['event'] as LifecycleEvent).n)
  }
  assert.ok(told.length > 5)
  for (const { gone } of [first, second]) gone.abort()
})

test('the page reports a lost approval service, drops its requests and reconnects when it is back', async (t) => {
  const clock = new ManualClock()
  const host = await pageHost(t, { clock })
  const session = await signInTo(host)
  host.desk.isThere = false
  const page = await following(host, session)
  assert.deepEqual(await page.next(), { type: 'desk', open: false, problem: null })
  assert.deepEqual(await page.next(), { type: 'desk', open: false, problem: 'no desk answers' })
  host.desk.isThere = true
  await clock.advance(1_000)
  assert.deepEqual(await page.next(), { type: 'desk', open: true, problem: null })
  host.desk.ask(pendingOf('one'))
  assert.equal((await page.next())?.['type'], 'question')
  host.desk.leave('it ended')
  assert.deepEqual(await page.next(), { type: 'desk', open: false, problem: 'it ended' })
  const late = await call(host, 'decide', session, {
    question_id: pendingOf('one').question_id,
    permit_sha256: 'a'.repeat(64),
    decision: 'allow_once',
    expires_in_ms: null,
    uses: null,
  })
  assert.deepEqual([late.status, errorIn(late)], [502, 'daemon_unreachable'])
})

test('a decision carries the digest that the page showed, and the page reports a refusal of the approval service', async (t) => {
  const host = await pageHost(t)
  const session = await signInTo(host)
  const page = await following(host, session)
  await page.next()
  await page.next()
  const decision = {
    question_id: pendingOf('one').question_id,
    permit_sha256: 'a'.repeat(64),
    decision: 'allow_once',
    expires_in_ms: null,
    uses: null,
  }
  assert.equal((await call(host, 'decide', session, decision)).status, 200)
  assert.deepEqual(host.desk.decided, [decision])
  for (const bad of [
    { permit_sha256: 'A'.repeat(64) },
    { permit_sha256: 'a'.repeat(63) },
    { decision: 'allow' },
    { expires_in_ms: 0 },
    { expires_in_ms: -1 },
    { uses: 1.5 },
    { uses: 'all' },
    { question_id: 7 },
    { by: 'me' },
  ])
    assert.equal((await call(host, 'decide', session, { ...decision, ...bad })).status, 400, JSON.stringify(bad))
  host.desk.refuses = new AppError('conflict', 'another was first', { data: { won_by: 'human:x0x approvals' } })
  const lost = await call(host, 'decide', session, decision)
  assert.deepEqual([lost.status, errorIn(lost)], [409, 'conflict'])
  assert.match(lost.text, /human:x0x approvals/)
  assert.equal(host.desk.decided.length, 1)
  page.gone.abort()
})

test('only the signed-in page stops a run, and a request without session or proof, from another site or by a form cannot', async (t) => {
  const stopped: string[] = []
  const stopRun = async (key: string): Promise<object> => {
    stopped.push(key)
    return {}
  }
  const host = await pageHost(t, { sources: { stopRun } })
  const session = await signInTo(host)
  const own = pageHeaders(host, session)
  const { [PAGE_PROOF_HEADER]: _proof, ...cookieAlone } = own
  const { origin: _origin, ...withoutOrigin } = own
  const { proof: otherProof } = await signInTo(host)
  const body = JSON.stringify({ key: 'asked one' })
  for (const [why, headers, status] of [
    ['no session', pageHeaders(host), 401],
    ['cookie alone', cookieAlone, 401],
    ['proof of another tab', { ...own, [PAGE_PROOF_HEADER]: otherProof }, 401],
    ['another origin', { ...own, origin: 'https://evil.example' }, 403],
    ['another site', { ...own, 'sec-fetch-site': 'cross-site' }, 403],
    ['another name', { ...own, host: 'evil.example' }, 403],
    ['no origin', withoutOrigin, 403],
    ['a form', { ...own, 'content-type': 'text/plain' }, 400],
  ] as const)
    assert.equal((await askPage(host, '/api/stop', { headers, body })).status, status, why)
  assert.equal((await askPage(host, '/api/stop', { headers: own, method: 'GET' })).status, 405)
  for (const bad of [{}, { key: '' }, { key: 7 }, { key: 'x'.repeat(MAX_RUN_NAME + 1) }, { key: 'asked one', signal: 9 }])
    assert.equal((await call(host, 'stop', session, bad)).status, 400, JSON.stringify(bad).slice(0, 40))
  assert.deepEqual(stopped, [])
  assert.equal((await call(host, 'stop', session, { key: 'asked one' })).status, 200)
  await call(host, 'sign-out', session)
  assert.equal((await call(host, 'stop', session, { key: 'asked two' })).status, 401)
  assert.deepEqual(stopped, ['asked one'])
})

test('an idle session ends with its streams, and an active one ends after PAGE_SESSION_MS', async (t) => {
  const clock = new ManualClock()
  const host = await pageHost(t, { clock })
  const session = await signInTo(host)
  await clock.advance(PAGE_IDLE_MS - 1)
  assert.equal((await call(host, 'about', session)).status, 200)
  await clock.advance(1)
  assert.equal((await call(host, 'about', session)).status, 401)
  const other = await signInTo(host)
  const page = await following(host, other)
  assert.equal((await page.next())?.['type'], 'desk')
  for (let at = 0; at < PAGE_SESSION_MS - PAGE_IDLE_MS / 2; at += PAGE_IDLE_MS / 2) {
    assert.equal((await call(host, 'here', other)).status, 200)
    await clock.advance(PAGE_IDLE_MS / 2)
  }
  await clock.advance(PAGE_IDLE_MS / 2)
  assert.equal((await call(host, 'here', other)).status, 401)
  while ((await page.next()) !== null);
  await until(() => host.desk.listeners.size === 0)
})

test('signing out ends a session, and a session over the limit replaces the oldest', async (t) => {
  const host = await pageHost(t)
  const session = await signInTo(host)
  assert.equal((await call(host, 'sign-out', session)).status, 200)
  assert.equal((await call(host, 'about', session)).status, 401)
  const sessions = []
  for (let at = 0; at <= MAX_PAGE_SESSIONS; at++) sessions.push(await signInTo(host))
  assert.equal((await call(host, 'about', sessions[0])).status, 401)
  assert.equal((await call(host, 'about', sessions[1])).status, 200)
})

test('a decision or stream whose request completes after the sign-out is refused', async (t) => {
  const host = await pageHost(t)
  const pending = pendingOf('late')
  for (const [name, body] of [
    [
      'decide',
      {
        question_id: pending.question_id,
        permit_sha256: pending.question.permit_sha256,
        decision: 'allow_once',
        expires_in_ms: null,
        uses: null,
      },
    ],
    ['follow', {}],
  ] as const) {
    const session = await signInTo(host)
    const watching = await following(host, await signInTo(host))
    assert.equal((await watching.next())?.['type'], 'desk')
    const headers = { host: host.server.host, ...pageHeaders(host, session), expect: '100-continue' }
    const late = httpRequest({ host: '127.0.0.1', port: host.server.port, path: `/api/${name}`, method: 'POST', headers, agent: false })
    late.flushHeaders()
    // The server has the request head now and waits for the body.
    await once(late, 'continue')
    assert.equal((await call(host, 'sign-out', session)).status, 200)
    late.end(JSON.stringify(body))
    const [answer] = (await once(late, 'response')) as [IncomingMessage]
    assert.equal(answer.statusCode, 401, name)
    answer.destroy()
    watching.gone.abort()
  }
  assert.deepEqual(host.desk.decided, [])
})

test('requests with the cookie alone have their own rate limit, and the page remains usable', async (t) => {
  const host = await pageHost(t, { clock: new ManualClock() })
  const session = await signInTo(host)
  let refused = 0
  for (let at = 0; at < PAGE_REQUESTS.burst + 10; at++)
    if ((await askPage(host, '/page.js', { headers: { cookie: `${session.cookie}; other=${at}` } })).status === 429) refused++
  assert.equal(refused, 10)
  for (let at = 0; at < 10; at++) await askPage(host, '/page.js', { headers: { cookie: session.cookie } })
  assert.equal((await call(host, 'about', session)).status, 200)
})

test('requests without a session have their own rate limit, and a page has at most two streams', async (t) => {
  const host = await pageHost(t)
  const session = await signInTo(host)
  let refused = 0
  for (let at = 0; at < 100; at++) if ((await askPage(host, '/nothing')).status === 429) refused++
  assert.ok(refused > 0)
  const body = JSON.stringify({ code: 'A'.repeat(22) })
  // The rate limit refills while a busy machine sends requests.
  const codes: number[] = []
  while (codes.at(-1) !== 429 && codes.length < 50)
    codes.push((await askPage(host, '/sign-in', { headers: pageHeaders(host), body })).status)
  assert.equal(codes.at(-1), 429)
  // These requests use only the limit of unauthenticated clients. A client with a link can still sign in.
  for (const path of ['/sign-in', '/sign-in.js', '/page.css', '/icon.svg']) assert.equal((await askPage(host, path)).status, 200, path)
  assert.equal((await call(host, 'about', await signInTo(host))).status, 200)
  assert.equal((await call(host, 'about', session)).status, 200)
  const pages = [await following(host, session), await following(host, session), await following(host, session)]
  assert.deepEqual(
    pages.map(({ status }) => status),
    [200, 200, 429],
  )
  for (const { gone } of pages) gone.abort()
})

test('a client that takes all unauthenticated connections does not prevent a sign-in or end an open page', async (t) => {
  const host = await pageHost(t)
  const page = await following(host, await signInTo(host))
  await page.next()
  const unauthenticated = Array.from({ length: MAX_PAGE_UNPROVEN + 20 }, () =>
    connect(host.server.port, '127.0.0.1').on('error', () => undefined),
  )
  t.after(() => unauthenticated.forEach((socket) => socket.destroy()))
  const [first] = unauthenticated
  // The oldest connections make room. An unfinished request does not protect its connection.
  first!.write('GET / HT')
  await once(first!, 'close')
  assert.equal((await call(host, 'about', await signInTo(host))).status, 200)
  for (const listener of host.desk.listeners) listener({ type: 'flood', flood: { asker: 'x', count: 1, last_at_ms: 1 } })
  let news = await page.next()
  while (news !== null && news['type'] !== 'flood') news = await page.next()
  assert.equal(news?.['type'], 'flood')
  page.gone.abort()
})

test('a server that stops closes its pages, including their streams', async (t) => {
  const host = await pageHost(t)
  const page = await following(host, await signInTo(host))
  await page.next()
  const idle = connect(host.server.port, '127.0.0.1')
  await once(idle, 'connect')
  await host.server.stop()
  while ((await page.next()) !== null);
  idle.destroy()
  assert.equal(host.desk.listeners.size, 0)
})
