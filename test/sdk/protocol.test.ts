import type { FieldTable } from '../../src/protocol/json-table.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { recordOf } from '../../src/doors/rpc/schemas.ts'
import { EVENTS, RESULTS, type Result, type RexdEvent } from '../../src/protocol/rexd/results.ts'
import type { Method, Params } from '../../src/protocol/rexd/methods.ts'
import { connected } from './real-server.ts'

/** Checks that the value has exactly the declared fields with the declared types. */
const requireStated = (value: object, stated: FieldTable, what: string): void =>
  assert.deepEqual(recordOf(stated).safeParse(value).error?.issues ?? [], [], what)

test('results and events of a real server match their declared fields', async (t) => {
  const events: RexdEvent[] = []
  const { client } = await connected(t, {
    connect: { onEvent: (event) => events.push(event) },
    limits: 'max_file_read_bytes = 100',
    security: 'allow_targets = ["bob"]',
  })
  const seen = new Set<Method>()
  const call = async <M extends Method>(method: M, params: Params<M>): Promise<Result<M>> => {
    const result = await client.call(method, params)
    requireStated(result, RESULTS[method], method)
    seen.add(method)
    return result
  }
  const { session_id } = await call('session.open', { client_name: 'fields' })
  const run = async (argv: readonly string[]): Promise<unknown> => {
    const { process_id } = await call('exec.start', { session_id, argv })
    return call('exec.wait', { session_id, process_id })
  }
  const { process_id } = await call('exec.start', { session_id, command: 'cat; echo err >&2', shell: true, stdin_open: true })
  await call('exec.input', { session_id, process_id, data: 'x', eof: true })
  await call('exec.wait', { session_id, process_id })
  await call('exec.kill', { session_id, process_id })
  const { processes } = await call('session.info', { session_id })
  assert.equal(processes.length, 1)
  await call('fs.write', { session_id, path: 'a', content: 'x' })
  await call('fs.read', { session_id, path: 'a' })
  await call('fs.stat', { session_id, path: 'a' })
  const { entries } = await call('fs.list', { session_id, path: '.' })
  assert.equal(entries.length, 1)
  await call('fs.glob', { session_id, pattern: '*' })
  await call('fs.edit', { session_id, path: 'a', old_string: 'x', new_string: 'y' })
  await call('fs.patch', { session_id, patch_text: '*** Begin Patch\n*** Delete File: a\n*** End Patch\n' })
  await call('fs.write', { session_id, path: 'bad', content: '#!/no/such/interpreter\n' })
  await run(['chmod', '+x', 'bad'])
  const { workspace_roots } = await call('session.info', { session_id })
  await run([`${workspace_roots[0]}/bad`])
  await call('session.close', { session_id })
  for (const { method, params } of events) requireStated(params, EVENTS[method], method)
  assert.deepEqual([...new Set(events.map(({ method }) => method))].toSorted(), ['exec.error', 'exec.exit', 'exec.stderr', 'exec.stdout'])
  // Sessions over stdio are not resumable, and terminals need a grant, so these methods are not called.
  const elsewhere = await call('session.open', { client_name: 'fields', target: 'bob' })
  assert.equal(elsewhere.target, 'bob')
  const { target, cwd } = await call('session.info', { session_id: elsewhere.session_id })
  assert.deepEqual([target, cwd], ['bob', null])
  const others = (Object.keys(RESULTS) as Method[]).filter((method) => !seen.has(method))
  assert.deepEqual(others, ['session.resume', 'session.events', 'pty.open', 'pty.input', 'pty.resize', 'pty.close'])
})
