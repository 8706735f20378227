import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { soon } from '../../test/support/local-engine.ts'
import { wholeLines } from '../../test/support/journal.ts'
import { mcpPlace, startMcp, type McpPlace } from '../../test/support/mcp-server.ts'
import { isAlive } from '../../test/support/processes.ts'
import { callOf, RawServer } from '../../test/support/raw-mcp.ts'

const textOf = async ({ root }: McpPlace, file: string): Promise<string> => readFile(join(root, file), 'utf8').catch(() => '')

/** A command that runs for a long time and writes its PID when it has started. */
const WAITS = { command: 'sh', args: ['-c', 'echo begun; echo $$ > pid; exec sleep 300'], timeout_seconds: 600 }

const pidOf = async (server: McpPlace, file = 'pid'): Promise<number> => {
  assert.ok(await soon(async () => (await textOf(server, file)).endsWith('\n')))
  return Number(await textOf(server, file))
}

test('a command that takes longer than its call continues, and exec_wait returns the rest', async (t) => {
  const server = await startMcp(t, {}, { flags: ['--answer-within-ms', '300'] })
  const args = ['-c', 'echo one; while [ ! -e go ]; do sleep 0.05; done; echo two']
  const first = await server.run('exec_capture', { command: 'sh', args, timeout_seconds: 60 })
  assert.deepEqual([first.state, first.success, first.exit_code, first.stdout], ['running', false, null, 'one\n'])
  const { run_id } = first
  assert.match(String(run_id), /^run_[0-9a-f]{8}_1$/)
  assert.equal((await server.run('exec_wait', { run_id, answer_within_ms: 0 })).state, 'running')
  const listed = (await server.ask('exec_list')).structuredContent as { runs: Record<string, unknown>[] }
  assert.deepEqual([listed.runs[0]?.['run_id'], listed.runs[0]?.['state']], [run_id, 'running'])
  await server.run('exec_status', { command: 'touch', args: ['go'] })
  let last = first
  assert.ok(await soon(async () => (last = await server.run('exec_wait', { run_id })).state === 'ended'))
  assert.deepEqual([last.success, last.stdout, last.run_id, last.operation], [true, 'one\ntwo\n', null, 'exec_capture'])
})

test('exec_output reads omitted output from an offset and names the part that was not kept', async (t) => {
  const server = await startMcp(t, { limits: 'max_output_bytes = 3000000' })
  const { run_id, stdout, stdout_omitted_bytes } = await server.run('exec_capture', {
    command: 'seq',
    args: ['1', '300000'],
    max_stdout_bytes: 100,
  })
  assert.match(stdout, /^1\n2\n[^]*\n\[… \d+ bytes are left out …\]\n[^]*300000\n$/)
  const whole = `${Array.from({ length: 300_000 }, (_one, at) => at + 1).join('\n')}\n`
  assert.ok(Buffer.byteLength(stdout) <= 100 && Buffer.byteLength(stdout) > 90, stdout)
  const note = Buffer.byteLength(/\n\[… \d+ bytes are left out …\]\n/.exec(stdout)?.[0] ?? '')
  assert.equal(stdout_omitted_bytes, whole.length - (Buffer.byteLength(stdout) - note))
  let [from, text, more] = [0, '', true]
  const lost: unknown[] = []
  while (more) {
    const part = (await server.ask('exec_output', { run_id, from, max_bytes: 300_000 })).structuredContent as Record<string, unknown>
    if (part['lost'] !== null) lost.push(part['lost'])
    text += String(part['text'])
    ;[from, more] = [Number(part['next']), part['more'] === true]
  }
  const kept = 512 * 1024
  assert.deepEqual(lost, [{ from: kept, to: whole.length - kept }])
  assert.ok(text === whole.slice(0, kept) + whole.slice(-kept))
})

test('exec_kill and the cancellation of its call end a run with all its processes', async (t) => {
  const server = await startMcp(t)
  const tree = ['-c', 'setsid sleep 300 & echo $! > child; echo $$ > pid; wait']
  const begun = await server.run('exec_status', { command: 'sh', args: tree, answer_within_ms: 0 })
  const [pid, child] = [await pidOf(server), await pidOf(server, 'child')]
  const killed = await server.run('exec_kill', { run_id: begun.run_id })
  assert.deepEqual([killed.state, killed.success, killed.signal], ['ended', false, 'SIGTERM'])
  assert.ok(await soon(() => !isAlive(pid) && !isAlive(child)))

  const cancelling = new AbortController()
  const cancelled = server.ask(
    'exec_capture',
    { command: 'sh', args: tree.map((text) => text.replaceAll('child', 'other')) },
    { signal: cancelling.signal },
  )
  const other = await pidOf(server, 'other')
  cancelling.abort('enough')
  await assert.rejects(cancelled, /enough/)
  assert.ok(await soon(() => !isAlive(other)))
  const nobody = await server.ask('exec_kill', { run_id: 'run_1' })
  assert.match(JSON.stringify(nobody.content), /unknown_run: run_id: no run has the ID .*exec_list/)
})

test('an idempotency key runs its command once for any number of calls, and rejects another command', async (t) => {
  const server = await startMcp(t)
  const idempotency_key = randomUUID()
  const append = { command: 'sh', args: ['-c', 'echo x >> count; sleep 0.3; echo $$'], idempotency_key }
  const all = await Promise.all(Array.from({ length: 5 }, async () => server.run('exec_capture', append)))
  assert.equal(await textOf(server, 'count'), 'x\n')
  for (const one of all) assert.deepEqual(one, all[0])
  assert.deepEqual(await server.run('exec_capture', append), all[0], 'also when it has ended')
  const other = await server.run('exec_capture', { ...append, args: ['-c', 'echo y >> count'] })
  assert.deepEqual([other.success, other.denial_reason], [false, 'conflict'])
  assert.match(String(other.denial_detail), /^idempotency_key: this key was used with another command/)
  assert.equal(await textOf(server, 'count'), 'x\n')
})

test('all runs end with the session: by the end of stdin, SIGTERM, or SIGKILL of the process group', async (t) => {
  for (const how of ['end of input', 'SIGTERM', 'SIGKILL'] as const) {
    const place = await mcpPlace(t)
    const server = await RawServer.start(t, place, { detached: true })
    server.send(callOf(1, 'exec_status', { ...WAITS, answer_within_ms: 0 }))
    await server.answer(1)
    const pid = await pidOf(place)
    if (how === 'end of input') server.child.stdin?.end()
    else process.kill(-server.child.pid!, how)
    assert.ok(await soon(() => !isAlive(pid) && !isAlive(server.child.pid!)), how)
    const exits = wholeLines(await readFile(place.journal, 'utf8')).filter((line) => line.includes('"event":"exit"'))
    assert.equal(exits.length, how === 'SIGKILL' ? 0 : 1, how)
  }
})

test('a cancelled call in the queue does not start, and a run of two calls ends when both are cancelled', async (t) => {
  const server = await startMcp(t, { limits: 'max_processes_per_session = 1' })
  const idempotency_key = randomUUID()
  const holding = await server.run('exec_status', { ...WAITS, idempotency_key, answer_within_ms: 0 })
  const pid = await pidOf(server)
  const [one, other, queued] = [new AbortController(), new AbortController(), new AbortController()]
  const shared = [one, other].map(async ({ signal }) => server.ask('exec_status', { ...WAITS, idempotency_key }, { signal }))
  const waiting = server.ask('exec_status', { command: 'touch', args: ['begun'] }, { signal: queued.signal })
  const states = async (): Promise<unknown[]> =>
    ((await server.ask('exec_list')).structuredContent as { runs: { state: string }[] }).runs.map(({ state }) => state)
  assert.ok(await soon(async () => (await states()).includes('queued')))
  queued.abort('enough')
  await assert.rejects(waiting, /enough/)
  assert.ok(await soon(async () => !(await states()).includes('queued')))
  one.abort('enough')
  await assert.rejects(shared[0]!, /enough/)
  assert.equal((await server.run('exec_wait', { run_id: holding.run_id, answer_within_ms: 100 })).state, 'running')
  assert.ok(isAlive(pid))
  other.abort('enough')
  await assert.rejects(shared[1]!, /enough/)
  assert.ok(await soon(() => !isAlive(pid)))
  assert.equal((await server.run('exec_status', { command: 'true' })).success, true)
  assert.equal(await textOf(server, 'begun'), '')
})
