import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { chmod, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { test } from 'node:test'

import { openDesk } from '../../src/clients/desk.ts'
import { pathsIn } from '../../src/clients/paths.ts'
import { DESK_ANSWER_MS, MAX_DESK_REPLY } from '../../src/protocol/limits/approvals.ts'
import { questionOf } from '../support/approval-request.ts'
import { scriptedDesk, welcoming } from '../support/scripted-desk.ts'
import { tempDir } from '../support/temp-dir.ts'

const PENDING = { question_id: `q_${'A'.repeat(22)}`, question: questionOf(), asked_at_ms: 1, expires_at_ms: 2, engine: 'x0x mcp' }

test('an approver who proves to hold the operator key is accepted, and each answer goes to its request', async (t) => {
  const seen: unknown[] = []
  const { paths } = await scriptedDesk(
    t,
    welcoming((body, connection) => {
      seen.push(body)
      if (body['type'] === 'pending') return { questions: [PENDING], floods: [] }
      if (body['type'] === 'revoke') return { code: 'not_found', message: 'no such grant' }
      connection.send({ type: 'settled', question_id: PENDING.question_id, decision: 'allow', by: 'human:page' })
      return { questions: [], floods: [] }
    }),
  )
  const desk = await openDesk(paths, 'a test')
  t.after(() => desk.close())
  const news: unknown[] = []
  const [pending, revoked, subscribed] = await Promise.allSettled([
    desk.pending(),
    desk.revoke(`g_${'B'.repeat(22)}`),
    desk.subscribe((one) => news.push(one)),
  ])
  assert.deepEqual(pending.status === 'fulfilled' && pending.value.questions, [PENDING])
  assert.deepEqual(revoked.status === 'rejected' && [(revoked.reason as { code: string }).code, (revoked.reason as Error).message], [
    'not_found',
    'no such grant',
  ])
  assert.equal(subscribed.status, 'fulfilled')
  assert.deepEqual(news, [{ type: 'settled', question_id: PENDING.question_id, decision: 'allow', by: 'human:page' }])
  assert.deepEqual(seen, [
    { type: 'pending', id: 1 },
    { type: 'revoke', grant_id: `g_${'B'.repeat(22)}`, id: 2 },
    { type: 'subscribe', id: 3 },
  ])
})

test('a decision that comes too late is refused with the winning decision and its approver', async (t) => {
  const { paths } = await scriptedDesk(
    t,
    welcoming(() => ({ code: 'conflict', message: 'too late', won_by: 'human:page', decision: 'deny' })),
  )
  const desk = await openDesk(paths, 'a test')
  t.after(() => desk.close())
  await assert.rejects(desk.decide({ question_id: PENDING.question_id, permit_sha256: 'a'.repeat(64), decision: 'allow_once' }), {
    code: 'conflict',
    data: { won_by: 'human:page', decision: 'deny' },
  })
})

test('a line with another key, a reflected line, and an old or future line are not accepted', async (t) => {
  for (const [how, sealing] of [
    ['another key', { key: randomBytes(32) }],
    ['our own line sent back', { direction: 'to_desk' as const }],
    ['an old line', { ts: Date.now() - 11_000 }],
    ['a line of tomorrow', { ts: Date.now() + 11_000 }],
  ] as const) {
    const { paths } = await scriptedDesk(t, (connection) => connection.send({ type: 'opened', role: 'human' }, sealing))
    await assert.rejects(openDesk(paths, 'a test'), { code: 'malformed' }, how)
  }
})

test('a repeated, invalid or overlong line ends the connection and all requests', async (t) => {
  for (const line of [
    (sealed: (body: object) => string) =>
      sealed({ type: 'settled', question_id: PENDING.question_id, decision: 'allow', by: 'x' }).repeat(2),
    (sealed: (body: object) => string) =>
      sealed({ type: 'settled', question_id: PENDING.question_id, decision: 'allow', by: 'x', more: 1 }),
    (sealed: (body: object) => string) => sealed({ type: 'unheard_of' }),
    () => '{"body":"{}"}\n',
    () => 'nothing\n',
    () => 'x'.repeat(MAX_DESK_REPLY + 1),
  ]) {
    const { paths } = await scriptedDesk(
      t,
      welcoming((_body, { socket, sealed }) => {
        socket.write(line(sealed))
        return null
      }),
    )
    const desk = await openDesk(paths, 'a test')
    await assert.rejects(desk.pending(), { code: 'malformed' })
    assert.equal((await desk.closed).code, 'malformed')
    await assert.rejects(desk.pending(), { code: 'malformed' })
  }
})

test('an approval service with another version or another greeting is refused', async (t) => {
  for (const hello of ['{"type":"hello","version":2,"nonce":"x"}\n', 'SSH-2.0\n', '{}\n']) {
    const { paths } = await scriptedDesk(t, () => undefined, { hello: () => hello })
    await assert.rejects(openDesk(paths, 'a test'), { code: 'malformed' })
  }
})

test('if the approval service disconnects, waiting requests fail and name x0x approvals history', async (t) => {
  const { paths } = await scriptedDesk(
    t,
    welcoming((_body, { socket }) => {
      socket.destroy()
      return null
    }),
  )
  const desk = await openDesk(paths, 'a test')
  await assert.rejects(desk.pending(), { code: 'daemon_unreachable', message: /x0x approvals history/ })
})

test('if the approval service does not answer in time, the client disconnects and waiting requests fail', async (t) => {
  const asked = Promise.withResolvers<void>()
  const { paths } = await scriptedDesk(
    t,
    welcoming(() => {
      asked.resolve()
      return null
    }),
  )
  const desk = await openDesk(paths, 'a test')
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const answer = desk.pending()
  await asked.promise
  t.mock.timers.tick(DESK_ANSWER_MS - 1)
  assert.equal(await Promise.race([answer, Promise.resolve('waits')]), 'waits')
  t.mock.timers.tick(1)
  await assert.rejects(answer, { code: 'daemon_unreachable', message: /does not answer/ })
  await assert.rejects(desk.pending(), { code: 'daemon_unreachable' })
  assert.match((await desk.closed).message, /does not answer/)
})

test('an approver that is refused gets an error that names operator.key', async (t) => {
  const { paths } = await scriptedDesk(t, ({ socket }) => socket.destroy())
  await assert.rejects(openDesk(paths, 'a test'), { code: 'operator_proof_required', message: /operator\.key/ })
})

test('a missing approval service, a missing key and an open socket give different errors', async (t) => {
  const dir = await tempDir(t)
  const paths = pathsIn(dir)
  await assert.rejects(openDesk(paths, 'a test'), { code: 'daemon_unreachable', message: /start x0xd --init, or x0x desk/ })
  const server = createServer((socket) => socket.destroy()).listen(paths.approvalsSocket)
  await new Promise((resolve) => server.once('listening', resolve))
  t.after(() => server.close())
  await chmod(paths.approvalsSocket, 0o600)
  await assert.rejects(openDesk(paths, 'a test'), { code: 'operator_proof_required', message: /operator\.key is missing/ })
  await writeFile(paths.operatorKey, `${'8'.repeat(64)}\n`, { mode: 0o600 })
  await chmod(paths.approvalsSocket, 0o666)
  await assert.rejects(openDesk(paths, 'a test'), { code: 'loose_permissions' })
  await rm(paths.approvalsSocket)
})
