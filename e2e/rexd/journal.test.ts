import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import { overStdio } from './transports.ts'
import { COMMON, type JournalLine } from './server.ts'

// What is written down of everything, and what never is.

test('the journal tells which command was refused', async (t) => {
  const peer = await overStdio.open(t, { security: ['allow_commands = [{ argv = ["true"] }]'] })
  const session = await peer.session()
  const argv = ['forbidden-program', 'with-argument']
  await session.failure(-32001, 'exec.start', { argv, stdin: 'never-in-it' })
  await session.failure(-32002, 'fs.read', { path: '/etc/passwd' })
  await peer.failure(-32008, 'session.open', { client_name: 'more', limits: { max_output_bytes: 2 ** 40 } })
  const refusals = await peer.home.refusals()
  assert.deepEqual(
    refusals.map((line) => [line['method'], line['code'], line['argv']]),
    [
      ['exec.start', 'command_denied', argv],
      ['fs.read', 'forbidden_path', null],
      ['session.open', 'resource_limit', null],
    ],
  )
  assert.doesNotMatch(JSON.stringify(refusals), /never-in-it/)
  await peer.close()
})

const SECRETS = ['in-stdin', 'in-input', 'in-a-value', 'in-content', 'in-the-old', 'in-the-new', 'in-a-patch', 'in-output'].map(
  (where) => `secret-${where}-7f3a`,
)

test('what is given to programs and files, and what comes of them, is never in the journal', async (t) => {
  const peer = await overStdio.open(t, COMMON)
  const [stdin, input, value, content, old, fresh, patch, output] = SECRETS as [
    string,
    string,
    string,
    string,
    string,
    string,
    string,
    string,
  ]
  const session = await peer.session()
  const log = await session.start({ argv: ['cat'], stdin, stdin_open: true, env: { LC_TIME: value } })
  await session.call('exec.input', { process_id: log.id, data: input, eof: true })
  await log.finished()
  await session.call('fs.write', { path: 'file', content: `${content} ${old}` })
  await session.call('fs.read', { path: 'file' })
  await session.call('fs.edit', { path: 'file', old_string: old, new_string: fresh })
  await session.failure(-32006, 'fs.edit', { path: 'file', old_string: old, new_string: fresh })
  await session.call('fs.patch', { patch_text: `*** Begin Patch\n*** Add File: other\n+${patch}\n*** End Patch` })
  await writeFile(session.path('printed'), output)
  await (await session.start({ argv: ['cat', 'printed'] })).finished()
  await session.failure(-32002, 'fs.write', { path: '/etc/x', content })
  await peer.close()
  const journal = JSON.stringify(await peer.home.journal())
  assert.deepEqual(
    SECRETS.filter((secret) => journal.includes(secret)),
    [],
  )
  assert.equal(peer.process.stderr, '')
})

test('the journal tells everything that was done, by whom, chained line to line', async (t) => {
  const peer = await overStdio.open(t)
  const session = await peer.session({ client_name: 'somebody' })
  const log = await session.start({ argv: ['echo', 'x'], env: { CI: '1' }, stdin: 'abc' })
  await log.finished()
  await session.call('fs.write', { path: 'file', content: 'four' })
  for (const [method, params] of [
    ['fs.read', { path: 'file' }],
    ['fs.list', { path: '.' }],
    ['fs.glob', { pattern: '*' }],
    ['fs.stat', { path: 'file' }],
  ] as const)
    await session.call(method, params)
  await session.close()
  const journal = await peer.home.journal()
  const short = ({ event, method, state, bytes }: JournalLine): unknown[] => [event, method ?? state ?? null, bytes ?? null]
  assert.deepEqual(journal.map(short), [
    ['session', 'opened', null],
    ['request', null, null],
    ['started', null, null],
    ['exit', null, null],
    ['file_write', 'fs.write', 4],
    ['file_read', 'fs.read', null],
    ['file_read', 'fs.list', null],
    ['file_read', 'fs.glob', null],
    ['file_read', 'fs.stat', null],
    ['session', 'closed', null],
  ])
  for (const [n, line] of journal.entries()) {
    assert.deepEqual([line['n'], line['door'], line['session_id'], line['client_name']], [n + 1, 'stdio', session.id, 'somebody'])
    assert.equal(line['chain'], journal[0]?.['chain'])
  }
  const { argv, cwd, env, stdin_bytes, timeout_ms, request_id } = journal[1]!
  assert.deepEqual([argv, cwd, env, stdin_bytes, timeout_ms], [['echo', 'x'], session.dir, ['CI'], 3, 30_000])
  assert.equal(`p_${String(request_id)}`, log.id)
  await peer.close()
})
