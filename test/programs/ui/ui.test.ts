import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { appendFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { PageExplanation, PagePolicy } from '../../../src/protocol/page.ts'
import type { PageJournal, PageRuns } from '../../../src/protocol/page-lists.ts'
import { pathsIn } from '../../../src/clients/paths.ts'
import { fakeDaemon, json } from '../../support/fake-daemon.ts'
import { askPage, pageHeaders } from '../../support/page-host.ts'
import { tempDir } from '../../support/temp-dir.ts'
import { linkOf, startUi } from '../../support/ui-program.ts'

const AGENT = 'ab'.repeat(32)
const MACHINE = 'cd'.repeat(32)

const acl = (journal: string): string => `[exec]
enabled = true
audit_log_path = ${JSON.stringify(journal)}

[[exec.allow]]
description = "status"
agent_id = "${AGENT}"
machine_id = "${MACHINE}"

ask = "on-miss"

[[exec.allow.commands]]
argv = ["true", "<INT>"]

[[exec.allow.ask_patterns]]
argv = ["echo", "<ANY...>"]
`

/** Signs in as a browser does, and returns a function that makes the calls of the page. */
const signIn = async (line: string) => {
  const { origin, code } = linkOf(line)
  const post = async (path: string, body: object, session?: { cookie: string; proof: string }) =>
    askPage({ origin }, path, { headers: pageHeaders({ origin }, session), body: JSON.stringify(body) })
  const entered = await post('/sign-in', { code })
  assert.equal(entered.status, 200)
  const cookie = entered.headers['set-cookie']![0]!.split(';')[0]!
  const { proof } = JSON.parse(entered.text) as { proof: string }
  return async <T>(name: string, body: object = {}): Promise<T> => {
    const answer = await post(`/api/${name}`, body, { cookie, proof })
    assert.equal(answer.status, 200, answer.text)
    return JSON.parse(answer.text) as T
  }
}

test('without a daemon, x0x ui shows the files of this machine, and ends on SIGTERM', async (t) => {
  const dir = await tempDir(t)
  const file = join(dir, 'acl.toml')
  await writeFile(file, acl(join(dir, 'exec.log')), { mode: 0o600 })
  const paths = pathsIn(dir)
  const lines = ['question', 'approval'].map((event, n) =>
    JSON.stringify({ ts: '2026-01-01T00:00:00.000Z', event, n, question_id: `q_${n}` }),
  )
  await writeFile(paths.approvalsJournal, `${lines.join('\n')}\nno JSON\n`, { mode: 0o600 })
  const ui = startUi(t, ['--data-dir', dir, '--exec-acl', file, '--json'])
  const call = await signIn(await ui.next())

  const about = await call<{ data_dir: string; agent_id: null }>('about')
  assert.deepEqual([about.data_dir, about.agent_id], [paths.dir, null])
  const all = await call<PageJournal>('journal', { journal: 'approvals', event: null, text: null, within_ms: null, from: 0 })
  const eventsIn = ({ rows }: PageJournal): unknown[] => rows.map(({ lines }) => lines.map(({ event }) => event))
  // A request and its decision are one entry. These two lines belong to different requests.
  assert.deepEqual([eventsIn(all), all.more, all.unread, all.problems], [[['approval'], ['question']], false, 1, []])
  const one = await call<PageJournal>('journal', { journal: 'approvals', event: 'question', text: 'q_0', within_ms: null, from: 0 })
  assert.equal(one.total, 1)
  await appendFile(paths.approvalsJournal, `${lines[0]}\n`)
  assert.equal(
    (await call<PageJournal>('journal', { journal: 'approvals', event: null, text: null, within_ms: null, from: 0 })).rows[0]?.lines.length,
    2,
  )
  assert.match(
    (await call<PageJournal>('journal', { journal: 'audit', event: null, text: null, within_ms: null, from: 0 })).problems[0] ?? '',
    /no daemon/,
  )

  const policy = await call<PagePolicy>('policy')
  assert.deepEqual(
    policy.pairs.map(({ agent_id, commands }) => [agent_id, commands.map(({ argv }) => argv)]),
    [
      [
        AGENT,
        [
          ['true', '<INT>'],
          ['echo', '<ANY...>'],
        ],
      ],
    ],
  )
  const yes = await call<PageExplanation>('explain', { agent_id: AGENT, machine_id: MACHINE, argv: ['true', '7'] })
  assert.equal(yes.outcome, 'allowed')
  const no = await call<PageExplanation>('explain', { agent_id: AGENT, machine_id: MACHINE, argv: ['true', '-x'] })
  assert.equal(no.outcome, 'denied')
  const asked = await call<PageExplanation>('explain', { agent_id: AGENT, machine_id: MACHINE, argv: ['echo', '7'] })
  assert.equal(asked.outcome, 'asked')
  assert.match(policy.pairs[0]?.commands[1]?.note ?? '', /it needs approval on this machine/)
  assert.match(no.text, /argv_not_allowed/)
  const query = { side: null, result: null, text: '', host: '', within_ms: null, fanout_id: null, order: null, from: 0 }
  const runs = await call<PageRuns>('runs', query)
  assert.deepEqual([runs.rows, runs.total], [[], 0])
  // A missing daemon is reported once.
  assert.equal(runs.problems.length, 1)

  ui.child.stdin.write('\n')
  const second = linkOf(await ui.next())
  assert.equal((await askPage(second, '/sign-in')).status, 200)
  ui.child.kill('SIGTERM')
  assert.deepEqual(await ui.ended, [143, null])
})

test('the page shows the problem of an ACL that a daemon would refuse', async (t) => {
  const dir = await tempDir(t)
  const file = join(dir, 'acl.toml')
  await writeFile(file, '[exec]\nenabled = true\nunknown = 1\n', { mode: 0o600 })
  const ui = startUi(t, ['--data-dir', dir, '--exec-acl', file, '--json'])
  const call = await signIn(await ui.next())
  const { problem, pairs } = await call<PagePolicy>('policy')
  assert.match(problem ?? '', /unknown/)
  assert.deepEqual(pairs, [])
})

test('x0x ui ends with a reason after wrong flags and if the port is in use', async (t) => {
  const dir = await tempDir(t)
  for (const flags of [['--port', '70000'], ['--port', 'x'], ['--what'], ['--name', '../x'], ['--loopback-ip', '--port', '8700']]) {
    const ui = startUi(t, flags)
    assert.deepEqual(await ui.ended, [2, null], flags.join(' '))
    assert.match(ui.stderr(), /x0x ui: /)
  }
  const first = startUi(t, ['--data-dir', dir, '--json'])
  const { port } = linkOf(await first.next())
  const second = startUi(t, ['--data-dir', dir, '--port', String(port)])
  assert.deepEqual(await second.ended, [1, null])
  assert.match(second.stderr(), /is in use: leave --port out/)
})

test('the page shows the policy of the ACL file that the running daemon has loaded', async (t) => {
  const loaded = (): object => ({ loaded_from: join(dir, 'here.toml'), sha256: createHash('sha256').update(text).digest('hex') })
  const { dir } = await fakeDaemon(t, ({ path }, response) =>
    json(response, 200, path === '/diagnostics/exec' ? { ok: true, acl_summary: loaded() } : { ok: true, contacts: [] }),
  )
  const text = acl(join(dir, 'exec.log'))
  await writeFile(join(dir, 'here.toml'), text, { mode: 0o600 })
  const call = await signIn(await startUi(t, ['--data-dir', dir, '--json']).next())
  const { source, pairs, problem } = await call<PagePolicy>('policy')
  assert.deepEqual([source, pairs.length, problem], [join(dir, 'here.toml'), 1, null])
  const query = { agent_id: AGENT, machine_id: MACHINE, argv: ['true', '7'] }
  assert.equal((await call<PageExplanation>('explain', query)).outcome, 'allowed')
})
