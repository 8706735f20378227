import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'

import { checkOperatorProof } from '../../../src/identity/check-operator-proof.ts'
import { OPERATOR_PROOF_HEADER, RUN_OPERATION } from '../../../src/identity/operator-proof.ts'
import { statusOfAll, statusOfWaited, stateText, type WaitedRun } from '../../../src/programs/x0x/commands/runs.ts'
import { MAX_WAITED_RUNS } from '../../../src/protocol/limits/detached.ts'
import type { DetachedRunView } from '../../../src/protocol/api/detached-run.ts'
import { exitEvent, RUN_ID, runOutcome } from '../../support/journal-exit.ts'
import { fakeDaemon, json, runCli, type SeenRequest } from '../../support/fake-daemon.ts'

const AGENT = 'a'.repeat(64)
const OTHER_ID = `${RUN_ID.slice(0, -1)}d`
const THIRD_ID = RUN_ID.replace('01', '02')

const run = (over: Partial<DetachedRunView> = {}): DetachedRunView => ({
  request_id: RUN_ID,
  agent_id: AGENT,
  machine_id: 'b'.repeat(64),
  agent: 'bob',
  argv: ['make', 'all'],
  asked_at: '2026-01-01T00:00:00.000Z',
  lifetime_ms: null,
  keep_bytes: null,
  session: null,
  state: 'running',
  code: null,
  signal: null,
  denial_reason: null,
  heard_at: null,
  kept: null,
  problem: null,
  ...over,
})

const lines = (response: ServerResponse, ...events: readonly object[]): void => {
  response.writeHead(200, { 'content-type': 'application/x-ndjson' })
  response.end(events.map((event) => `${JSON.stringify(event)}\n`).join(''))
}

const STATE = {
  type: 'state',
  request_id: RUN_ID,
  state: 'running',
  from: 0,
  bytes_kept: 5,
  bytes_dropped: 0,
  keep_bytes: 9,
  lifetime_left_ms: 1,
  kept_for_ms: null,
}
const output = (type: 'stdout' | 'stderr', offset: number, text: string) => ({
  type,
  request_id: RUN_ID,
  offset,
  data_b64: Buffer.from(text, 'latin1').toString('base64'),
})

test('exec --detach prints only the ID on standard output, and the next command on standard error', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, ...run() }))
  const argv = [
    '--data-dir',
    dir,
    'exec',
    'bob',
    '--detach',
    '--lifetime',
    '2h',
    '--keep',
    '64K',
    '--session',
    'night',
    '--',
    'make',
    'all',
  ]
  const { status, stdout, stderr } = await runCli(argv)
  assert.deepEqual([status, stdout], [0, `${RUN_ID}\n`])
  assert.equal(stderr, `x0x: running detached on bob. Next: x0x --data-dir ${dir} attach ${RUN_ID}\n`)
  const [{ body, headers, path }] = seen as [SeenRequest]
  const { request_id, ...asked } = JSON.parse(body) as { request_id: string }
  assert.match(request_id, /^[0-9a-f-]{36}$/)
  assert.equal(path, '/exec/run')
  const detach = { lifetime_ms: 7_200_000, keep_bytes: 65_536 }
  assert.deepEqual(asked, { agent: 'bob', argv: ['make', 'all'], clamp: true, detach, session: 'night' })
  const proof = headers[OPERATOR_PROOF_HEADER] as string
  assert.ok(checkOperatorProof(Buffer.from('8'.repeat(64), 'hex'), RUN_OPERATION, Buffer.from(body), proof, Date.now()))
})

test('exec --detach warns if the ACL of the target limits lifetime or output', async (t) => {
  const kept = { bytes_kept: 0, bytes_dropped: 0, keep_bytes: 20, lifetime_left_ms: 59_990, kept_for_ms: null }
  const { dir } = await fakeDaemon(t, (_request, response) =>
    json(response, 200, { ok: true, ...run({ lifetime_ms: 600_000, keep_bytes: 1024, kept }) }),
  )
  const { stdout, stderr } = await runCli(['--data-dir', dir, 'exec', 'bob', '--detach', '--lifetime', '10m', '--keep', '1K', '--', 'make'])
  assert.equal(stdout, `${RUN_ID}\n`)
  assert.match(stderr, /^x0x: warning: the target limits its lifetime to 60 s \(max_detach_secs\)$/m)
  assert.match(stderr, /^x0x: warning: the target keeps only 20 bytes of its output \(max_detach_output_bytes\)$/m)
})

test('with --quiet, exec --detach prints only the ID, and with --json the whole answer', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, ...run() }))
  const quiet = await runCli(['--data-dir', dir, '-q', 'exec', 'bob', '--detach', '--', 'make'])
  assert.deepEqual([quiet.stdout, quiet.stderr], [`${RUN_ID}\n`, ''])
  const whole = await runCli(['--data-dir', dir, '--json', 'exec', 'bob', '--detach', '--', 'make'])
  assert.deepEqual(JSON.parse(whole.stdout), { ok: true, ...run() })
  assert.equal(whole.stderr, '')
})

test('a denied detached command exits with 255, the reason and the next step', async (t) => {
  const outcome = runOutcome({ ok: false, code: null, denial_reason: 'argv_not_allowed' })
  const { dir } = await fakeDaemon(t, ({ path }, response) =>
    json(response, 200, path === '/agent' ? { agent_id: AGENT, machine_id: AGENT } : { ...outcome, stdout_b64: '', stderr_b64: '' }),
  )
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'exec', 'bob', '--detach', '--', 'make'])
  assert.deepEqual([status, stdout], [255, ''])
  assert.match(stderr, /^x0x: bob denied "make" \(argv_not_allowed\): .*\n {5}Try: x0x --data-dir \S+ acl mine bob\n/)
})

test('if the command may have started, x0x says how to find out', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) =>
    json(response, 504, { ok: false, error: 'timeout', message: 'no answer', data: { may_run: true } }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', 'bob', '--detach', '--', 'make'])
  assert.equal(status, 255)
  assert.match(stderr, /Try: x0x --data-dir \S+ runs --refresh {3}\(whether [0-9a-f-]{36} started\)/)
})

test('invalid command lines exit with 2', async () => {
  for (const argv of [
    ['exec', 'bob', '--detach'],
    ['runs', 'cancel', RUN_ID, '--session', 'night'],
    ['exec', '--detach', '--', 'make'],
    ['exec', 'bob', '--detach', 'make'],
    ['exec', 'bob', '--lifetime', '2h', '--', 'make'],
    ['exec', 'bob', '--keep', '2K', '--', 'make'],
    ['exec', 'bob', '--detach', '--lifetime', '2 hours', '--', 'make'],
    ['exec', 'bob', '--detach', '--keep', '2KB', '--', 'make'],
    ['exec', 'bob', '--detach', '--keep', '-1', '--', 'make'],
    ['exec', 'bob', '--detach', '--keep', '0', '--', 'make'],
    ['exec', 'bob', '--detach', '--timeout', '3', '--', 'make'],
    ['exec', 'bob', '--detach', '--stdin-file', '-', '--', 'make'],
    ['attach'],
    ['attach', 'x'],
    ['attach', RUN_ID, '--from', '1K'],
    ['attach', RUN_ID, 'more'],
    ['runs', 'wait'],
    ['runs', 'stop', RUN_ID],
    ['runs', 'wait', RUN_ID, '--timeout', '0'],
  ]) {
    const { status, stdout, stderr } = await runCli(['--data-dir', '/nonexistent-x0x', ...argv])
    assert.equal(status, 2, `${argv.join(' ')}: ${stderr}`)
    assert.equal(stdout, '')
  }
})

test('attach requests output from the given byte, writes stderr, and exits like the command', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path }, response) =>
    path.includes('/output')
      ? lines(response, STATE, output('stdout', 3, 'a\xff\0'), output('stderr', 6, 'err'), output('stdout', 9, 'b'), {
          ...exitEvent({ code: 7 }),
          from: 3,
          next: 10,
        })
      : json(response, 200, { ok: true, ...run() }),
  )
  const parts: Buffer[] = []
  const { status, stderr } = await runCli(['--data-dir', dir, 'attach', RUN_ID, '--from', '3'])
  assert.deepEqual([status, stderr], [7, 'err'])
  assert.equal(seen.at(-1)?.path, `/runs/${RUN_ID}/output?from=3&follow=true`)
  assert.equal(parts.length, 0)
})

test('the first characters of a run ID are enough if they match one run', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path }, response) =>
    path === '/runs'
      ? json(response, 200, { ok: true, runs: [run(), run({ request_id: OTHER_ID }), run({ request_id: THIRD_ID })] })
      : lines(response, { ...exitEvent({ code: 5 }), from: 0, next: 0 }),
  )
  const attach = async (id: string) => runCli(['--data-dir', dir, 'attach', id])
  assert.equal((await attach(THIRD_ID.slice(0, 9))).status, 5)
  assert.match(seen.at(-1)?.path ?? '', new RegExp(`^/runs/${THIRD_ID}/output`))
  // Any other number could be the status of the command.
  assert.equal((await attach(RUN_ID.slice(0, -2))).status, 255)
  assert.match((await attach(RUN_ID.slice(0, -2))).stderr, new RegExp(`2 runs match .*\\n.*${RUN_ID}, ${OTHER_ID}`))
  const none = await attach('0000')
  assert.equal(none.status, 255)
  assert.match(none.stderr, /no detached run matches "0000"\n {5}Try: x0x --data-dir \S+ runs/)
})

test('Ctrl-C ends attach without cancelling the run, and x0x prints the byte to continue from', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path }, response) => {
    if (!path.includes('/output')) return json(response, 200, { ok: true, ...run() })
    response.writeHead(200, { 'content-type': 'application/x-ndjson' })
    response.write(`${JSON.stringify(STATE)}\n${JSON.stringify(output('stdout', 0, 'hello'))}\n`)
  })
  let interrupt: (signal: NodeJS.Signals) => void = () => undefined
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'attach', RUN_ID], {
    onSignal: (listener) => {
      interrupt = listener
      return () => undefined
    },
    onOutput: () => setImmediate(() => interrupt('SIGINT')),
  })
  assert.deepEqual([status, stdout], [130, 'hello'])
  assert.equal(stderr, `x0x: detached; the command continues. To see more output: x0x --data-dir ${dir} attach ${RUN_ID} --from 5\n`)
  assert.ok(!seen.some(({ path }) => path.includes('cancel')))
})

test('attach reconnects to a daemon that disappears, and continues after the last byte shown', async (t) => {
  const asked: string[] = []
  const { dir } = await fakeDaemon(t, ({ path }, response) => {
    if (!path.includes('/output')) return json(response, 200, { ok: true, ...run() })
    asked.push(path.split('?')[1]!)
    if (asked.length === 1) {
      response.writeHead(200, { 'content-type': 'application/x-ndjson' })
      response.write(`${JSON.stringify(STATE)}\n${JSON.stringify(output('stdout', 0, 'hello'))}\n`, () => response.destroy())
      return
    }
    if (asked.length === 2) return json(response, 503, { ok: false, error: 'shutting_down', message: 'stopping' })
    lines(response, output('stdout', 5, ' world'), { ...exitEvent(), from: 5, next: 11 })
  })
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'attach', RUN_ID])
  assert.deepEqual([status, stdout], [0, 'hello world'])
  assert.equal(stderr, 'x0x: lost contact with x0xd; the command continues, and x0x reconnects\n')
  assert.deepEqual(asked, ['from=0&follow=true', 'from=5&follow=true', 'from=5&follow=true'])
})

test('attach exits with 255 and the cause after an error or an end without an exit status', async (t) => {
  for (const [last, says] of [
    [{ type: 'end', request_id: RUN_ID, state: 'lost', from: 0, next: 2 }, /^x0x: lost: .*\n {5}Try, on bob: x0x audit tail {3}\(request /],
    [{ type: 'end', request_id: RUN_ID, state: 'expired', from: 0, next: 2 }, /^x0x: expired: .* ends at byte 2\n$/],
    [
      { type: 'error', request_id: RUN_ID, error: 'peer_rejected', message: 'no more', data: { next: 'wait' }, next: 2 },
      new RegExp(`no more\\n {5}wait\\n[^]*x0x: to continue: x0x --data-dir \\S+ attach ${RUN_ID} --from 2\\n$`),
    ],
  ] as const) {
    const { dir } = await fakeDaemon(t, ({ path }, response) =>
      path.includes('/output') ? lines(response, STATE, output('stdout', 0, 'ab'), last) : json(response, 200, { ok: true, ...run() }),
    )
    const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'attach', RUN_ID])
    assert.deepEqual([status, stdout], [255, 'ab'])
    assert.match(stderr, says)
  }
})

test('attach --no-follow shows the available output and says how to continue', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path }, response) =>
    path.includes('/output')
      ? lines(response, STATE, output('stdout', 0, 'hello'), { type: 'end', request_id: RUN_ID, state: 'running', from: 0, next: 5 })
      : json(response, 200, { ok: true, ...run() }),
  )
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'attach', RUN_ID, '--no-follow'])
  assert.deepEqual(
    [status, stdout, stderr],
    [0, 'hello', `x0x: the command continues. To see more output: x0x --data-dir ${dir} attach ${RUN_ID} --from 5\n`],
  )
  assert.equal(seen.at(-1)?.path, `/runs/${RUN_ID}/output?from=0&follow=false`)
})

test('runs prints a table with the state of each run, and escapes control characters', async (t) => {
  const runs = [
    run({ argv: ['printf', '\u001b[31m'] }),
    run({ request_id: OTHER_ID, agent: null, state: 'ended', code: 3, problem: { error: 'peer_unreachable', message: 'x' } }),
  ]
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, runs }))
  const { stdout } = await runCli(['--data-dir', dir, 'runs', '--refresh', '--session', 'night'])
  assert.equal(seen[0]?.path, '/runs?refresh=true&session=night')
  const [header = '', first = '', second = ''] = stdout.split('\n')
  assert.match(header, /^RUN +ON +STATE +ASKED +COMMAND$/)
  assert.match(first, new RegExp(`^${RUN_ID} +bob +running +2026-01-01T00:00:00.000Z +printf `))
  assert.ok(!stdout.includes('\u001b'))
  assert.match(second, /aaaaaaaaaaaa +ended 3 \(peer_unreachable\)/)
  const none = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, runs: [] }))
  assert.equal((await runCli(['--data-dir', none.dir, 'runs'])).stdout, 'no detached runs\n')
  const ofNone = await runCli(['--data-dir', none.dir, 'runs', '--session', 'night'])
  assert.equal(ofNone.stdout, 'no detached runs with label night\n')
})

const waited = (over: Partial<WaitedRun> = {}): WaitedRun => ({ ...run({ state: 'ended', code: 0 }), over: true, outcome: null, ...over })

test('the wait status of one run is that of x0x exec, and that of several runs the worst one', () => {
  const [well, failed] = [waited(), waited({ code: 2 })]
  const denied = waited({ code: null, denial_reason: 'approval_denied' })
  const lost = waited({ code: null, state: 'lost' })
  const late = waited({ code: null, state: 'running', over: false })
  const capped = waited({ outcome: runOutcome({ code: 0, warnings: ['duration_cap_hit'] }) })
  const partly = waited({ outcome: runOutcome({ incomplete: true, ok: false }) })
  const killed = waited({ code: null, signal: 9 })
  assert.deepEqual([well, failed, denied, lost, late, capped, partly, killed].map(statusOfWaited), [0, 2, 255, 255, 255, 255, 255, 137])
  assert.equal(statusOfAll([well, well]), 0)
  assert.equal(statusOfAll([well, failed]), 1)
  assert.equal(statusOfAll([capped, well]), 1)
  const cut = waited({ outcome: runOutcome({ truncated: true, warnings: ['stdout_cap_hit'] }) })
  assert.equal(statusOfWaited(cut), 0)
  assert.equal(statusOfAll([well, cut]), 1)
  assert.equal(statusOfAll([failed, denied]), 3)
  for (const unknown of [lost, late, partly]) assert.equal(statusOfAll([denied, unknown]), 4)
  assert.equal(stateText(killed), 'ended SIGKILL')
  assert.equal(stateText(denied), 'ended approval_denied')
})

test('runs wait reports one run like x0x exec, and several runs in a table', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path !== '/runs/wait') return json(response, 200, { ok: true, ...run({ request_id: path.split('/')[2]! }) })
    const { request_ids } = JSON.parse(body) as { request_ids: string[] }
    return json(response, 200, { ok: true, runs: request_ids.map((request_id) => waited({ request_id, code: null, signal: 15 })) })
  })
  const one = await runCli(['--data-dir', dir, 'runs', 'wait', RUN_ID, '--timeout', '2.5'])
  assert.deepEqual([one.status, one.stdout], [143, ''])
  assert.deepEqual(JSON.parse(seen.at(-1)!.body), { request_ids: [RUN_ID], timeout_ms: 2500 })
  const two = await runCli(['--data-dir', dir, 'runs', 'wait', RUN_ID, OTHER_ID, RUN_ID])
  assert.equal(two.status, 1)
  assert.equal(two.stdout.match(/ended SIGTERM/g)?.length, 2)
})

test('wait and attach report output cut by a limit, even with --quiet and --json', async (t) => {
  const outcome = runOutcome({ truncated: true, warnings: ['stdout_cap_hit', 'stderr_cap_hit'] })
  const { dir } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path.includes('/output')) {
      if (path.includes('follow=false')) return json(response, 200, { ok: true, state: 'ended', outcome })
      const warning = { type: 'warning', request_id: RUN_ID, kind: 'stdout_cap_hit', message: 'full' }
      return lines(response, STATE, warning, { ...outcome, type: 'exit', from: 0, next: 0 })
    }
    if (path !== '/runs/wait') return json(response, 200, { ok: true, ...run({ request_id: path.split('/')[2]! }) })
    const { request_ids } = JSON.parse(body) as { request_ids: string[] }
    return json(response, 200, { ok: true, runs: request_ids.map((request_id) => waited({ request_id, outcome })) })
  })
  for (const flags of [[], ['-q'], ['--json']]) {
    const cli = async (...argv: readonly string[]) => runCli(['--data-dir', dir, ...flags, ...argv])
    const [one, two] = [await cli('runs', 'wait', RUN_ID), await cli('runs', 'wait', RUN_ID, OTHER_ID)]
    assert.deepEqual([one.status, two.status], [0, 1])
    for (const { stderr } of [one, two])
      assert.ok(stderr.startsWith(`x0x: ${RUN_ID}: stdout and stderr were cut (stdout_cap_hit, stderr_cap_hit)\n`), stderr)
    assert.match(two.stderr, new RegExp(`^x0x: ${OTHER_ID}: stdout and stderr were cut`, 'm'))
    const attached = await cli('attach', RUN_ID, ...(flags[0] === '--json' ? ['--no-follow'] : []))
    assert.equal(attached.status, 0)
    assert.match(attached.stderr, /stdout_cap_hit/, flags.join())
  }
})

test('a run deleted while x0x waits is reported with its last known state', async (t) => {
  const problem = { error: 'unknown_run', message: 'forgotten' }
  const { dir } = await fakeDaemon(t, ({ path }, response) =>
    json(response, 200, { ok: true, ...(path === '/runs/wait' ? { runs: [{ ...run({ problem }), over: false, outcome: null }] } : run()) }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'runs', 'wait', RUN_ID])
  assert.deepEqual([status, stderr], [255, 'x0x: running: it was deleted while x0x waited\n'])
})

test('an unknown run ID is reported, and the other runs are still awaited or cancelled', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path === `/runs/${OTHER_ID}`) return json(response, 404, { ok: false, error: 'unknown_run', message: 'it is not remembered' })
    if (path === '/runs/wait') return json(response, 200, { ok: true, runs: [waited({ request_id: RUN_ID })] })
    const { request_id = RUN_ID } = body === '' ? {} : (JSON.parse(body) as { request_id: string })
    return json(response, 200, { ok: true, ...run({ request_id }) })
  })
  const runs = async (...argv: string[]) => runCli(['--data-dir', dir, ...argv])
  const told = await runs('runs', 'wait', OTHER_ID, RUN_ID)
  assert.deepEqual([told.status, told.stdout.match(/ended 0/g)?.length], [4, 1])
  assert.ok(told.stderr.startsWith(`x0x: ${OTHER_ID}: it is not remembered\n`), told.stderr)
  assert.deepEqual(JSON.parse(seen.at(-1)!.body), { request_ids: [RUN_ID] })
  const asJson = JSON.parse((await runs('--json', 'runs', 'wait', OTHER_ID, RUN_ID)).stdout) as { ok: boolean; failed: object[] }
  assert.deepEqual([asJson.ok, asJson.failed], [false, [{ request_id: OTHER_ID, error: 'unknown_run', message: 'it is not remembered' }]])
  const cancelled = await runs('runs', 'cancel', OTHER_ID, RUN_ID)
  assert.deepEqual([cancelled.status, cancelled.stdout], [1, 'stopping: make all, on bob\n'])
  assert.equal((await runs('runs', 'wait', OTHER_ID)).status, 255, 'as where `x0x exec` asks nobody')
  assert.equal((await runs('runs', 'cancel', OTHER_ID)).status, 1)
})

test('the help and the documentation of runs wait give the exit status for a run that continues', async () => {
  const [help, page] = [
    await runCli(['runs', 'wait', '--help']),
    await readFile(new URL('../../../docs/detached-runs.md', import.meta.url), 'utf8'),
  ]
  assert.match(help.stdout, /One ID: as x0x exec; 255 also if it has not ended/)
  assert.match(page, /For one run, the exit status is that of `x0x exec`\.\n[^.]*255 if the command has not ended in time/)
})

test('if the target does not answer, x0x says that the run may continue', async (t) => {
  const problem = { error: 'peer_unreachable', message: 'no address answered' }
  const { dir } = await fakeDaemon(t, ({ path }, response) =>
    path === '/runs/wait'
      ? json(response, 200, { ok: true, runs: [waited({ code: null, state: 'running', over: false, problem })] })
      : json(response, 200, { ok: true, ...run() }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'runs', 'wait', RUN_ID])
  const next = `it may still run on its target; to see connected agents: x0x --data-dir ${dir} peers`
  assert.deepEqual([status, stderr], [255, `x0x: no address answered\n     ${next}\n`])
})

test('a run that its target does not know is not reported as continuing', async (t) => {
  const { dir } = await fakeDaemon(t, ({ path }, response) =>
    path === '/runs/wait'
      ? json(response, 200, { ok: true, runs: [waited({ code: null, state: 'unknown', over: false })] })
      : json(response, 200, { ok: true, ...run() }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'runs', 'wait', RUN_ID])
  assert.deepEqual([status, stderr], [255, 'x0x: unknown: its target does not know it: it never started, or was deleted\n'])
})

test('an interrupted wait does not cancel the run, and says so', async (t) => {
  let asked = (): void => undefined
  const { dir, seen } = await fakeDaemon(t, ({ path }, response) =>
    path === '/runs/wait' ? asked() : json(response, 200, { ok: true, ...run() }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'runs', 'wait', RUN_ID], {
    onSignal: (listener) => {
      asked = () => listener('SIGINT')
      return () => undefined
    },
  })
  assert.deepEqual([status, stderr], [130, 'x0x: stopped waiting; the runs continue\n'])
  assert.ok(!seen.some(({ path }) => path.includes('cancel')))
})

test('cancel and forget work for one run, and x0x names the command to use if the target is gone', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path === '/runs/forget' && !body.includes('"here":true'))
      return json(response, 502, { ok: false, error: 'peer_unreachable', message: 'gone', data: { addresses: [] } })
    return json(response, 200, { ok: true, ...run() })
  })
  const cancelled = await runCli(['--data-dir', dir, 'runs', 'cancel', RUN_ID])
  assert.deepEqual([cancelled.status, cancelled.stdout], [0, 'stopping: make all, on bob\n'])
  assert.deepEqual(JSON.parse(seen.at(-1)!.body), { request_id: RUN_ID })
  const over = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, ...run({ state: 'ended', signal: 15 }) }))
  const late = await runCli(['--data-dir', over.dir, 'runs', 'cancel', RUN_ID])
  assert.deepEqual([late.status, late.stdout], [0, 'already ended, ended SIGTERM: make all, on bob\n'])
  const gone = await runCli(['--data-dir', dir, 'runs', 'forget', RUN_ID])
  assert.equal(gone.status, 255)
  assert.match(gone.stderr, new RegExp(`Try: x0x .*runs forget --here ${RUN_ID}`))
  const here = await runCli(['--data-dir', dir, 'runs', 'forget', RUN_ID, '--here'])
  assert.deepEqual([here.status, here.stdout], [0, 'forgotten: make all, on bob\n'])
})

const HOSTS = ['web1', 'web2', 'web3', 'web4'].map((host, at) => ({ host, agent_id: String(at + 1).repeat(64) }))

/** web1 starts the command, web2 denies it, web3 is unreachable, and web4 does not answer. */
const manyAnswers = ({ path, body }: SeenRequest, response: ServerResponse): void => {
  if (path.startsWith('/contacts/select')) return json(response, 200, { ok: true, hosts: HOSTS })
  if (path === '/agent') return json(response, 200, { agent_id: AGENT, machine_id: AGENT })
  const { agent, request_id } = JSON.parse(body) as { agent: string; request_id: string }
  const { type: _type, ...denied } = exitEvent({ ok: false, code: null, denial_reason: 'argv_not_allowed' })
  const at = HOSTS.findIndex(({ agent_id }) => agent_id === agent)
  if (at === 0) return json(response, 200, { ok: true, ...run({ request_id }) })
  if (at === 1) return json(response, 200, { ...denied, stdout_b64: '', stderr_b64: '' })
  const may_run = at === 3
  return json(response, 502, { ok: false, error: 'peer_unreachable', message: 'gone\u001b[2J', data: { may_run } })
}

test('a detached fan-out prints ID and host of each started run, and the result of every other host', async (t) => {
  const { dir, seen } = await fakeDaemon(t, manyAnswers)
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'exec', 'web[1-4]', '--detach', '--lifetime', '5m', '--', 'make'])
  assert.equal(status, 4)
  assert.match(stdout, /^[0-9a-f-]{36} web1\n$/)
  assert.match(stderr, /^x0x: 1 of 4 started, 1 denied, 1 unreachable, 1 unknown$/m)
  assert.match(
    stderr,
    /^ {5}denied \(1\): web2: argv_not_allowed: .*\n {7}Try: x0x --data-dir \S+ acl mine web2\n {7}Try, on web2: x0x acl explain --last$/m,
  )
  assert.match(stderr, /^ {5}unreachable \(1\): web3: gone.*\n {7}Try: x0x --data-dir \S+ doctor web3$/m)
  assert.match(stderr, /^ {5}unknown \(1\): web4: gone/m)
  assert.ok(!stderr.includes('\u001b'))
  const asked = seen.filter(({ path }) => path === '/exec/run').map(({ body }) => JSON.parse(body) as Record<string, unknown>)
  assert.equal(new Set(asked.map(({ request_id }) => request_id)).size, HOSTS.length)
  for (const { argv, detach, clamp } of asked)
    assert.deepEqual({ argv, detach, clamp }, { argv: ['make'], detach: { lifetime_ms: 300_000 }, clamp: true })
  // All runs share one label, by which the user finds them.
  const [session, ...others] = new Set(asked.map((one) => one['session']))
  assert.deepEqual(others, [])
  assert.match(
    stderr,
    new RegExp(
      `^ {5}See: x0x --data-dir \\S+ runs --refresh --session ${session}\n {5}To wait: x0x --data-dir \\S+ runs wait --session ${session}\n`,
      'm',
    ),
  )
})

test('a detached fan-out uses the given label, and shows no follow-up if no run can have started', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path }, response) =>
    path.startsWith('/contacts/select')
      ? json(response, 200, { ok: true, hosts: HOSTS })
      : json(response, 502, { ok: false, error: 'peer_unreachable', message: 'gone' }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, '-q', 'exec', '@all', '--detach', '--session', 'night', '--', 'make'])
  assert.equal(status, 3)
  assert.equal(
    stderr,
    `x0x: 0 of 4 started, 4 unreachable\n     unreachable (4): web[1-4]: gone\n       Try: x0x --data-dir ${dir} doctor web1\n`,
  )
  for (const { body } of seen.filter(({ path }) => path === '/exec/run'))
    assert.equal((JSON.parse(body) as { session: string }).session, 'night')
})

/** Three runs with one label: web1 continues, web2 has ended, and web3 does not answer. */
const SESSION = [
  run({ agent: 'web1' }),
  run({ agent: 'web2', request_id: OTHER_ID, state: 'ended', code: 0 }),
  run({ agent: 'web3', request_id: THIRD_ID }),
]

test('runs with one label are awaited, cancelled and forgotten together, even if one host does not answer', async (t) => {
  const { dir, seen } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path === '/runs?session=night') return json(response, 200, { ok: true, runs: SESSION })
    if (path.startsWith('/runs?')) return json(response, 200, { ok: true, runs: [] })
    if (body === '') return json(response, 200, { ok: true, ...SESSION.find(({ request_id }) => path === `/runs/${request_id}`)! })
    const about = JSON.parse(body) as { request_id?: string; request_ids?: string[] }
    if (path === '/runs/wait')
      return json(response, 200, { ok: true, runs: about.request_ids!.map((request_id) => waited({ request_id })) })
    if (about.request_id === THIRD_ID)
      return json(response, 502, { ok: false, error: 'peer_unreachable', message: 'gone', data: { addresses: [] } })
    return json(response, 200, { ok: true, ...SESSION.find(({ request_id }) => request_id === about.request_id)! })
  })
  const all = await runCli(['--data-dir', dir, 'runs', 'wait', '--session', 'night'])
  assert.deepEqual([all.status, all.stdout.match(/ended 0/g)?.length], [0, 3])
  assert.deepEqual(JSON.parse(seen.at(-1)!.body), { request_ids: [RUN_ID, OTHER_ID, THIRD_ID] })

  const cancelled = await runCli(['--data-dir', dir, 'runs', 'cancel', '--session', 'night'])
  assert.equal(cancelled.status, 255)
  assert.deepEqual(cancelled.stdout.split('\n').toSorted(), [
    '',
    'already ended, ended 0: make all, on web2',
    'stopping: make all, on web1',
  ])
  assert.match(cancelled.stderr, /^x0x: web3: gone\n/)
  assert.deepEqual(
    seen.filter(({ path }) => path === '/runs/cancel').map(({ body }) => (JSON.parse(body) as { request_id: string }).request_id),
    [RUN_ID, THIRD_ID],
    'one that is over is not asked',
  )

  const forgotten = await runCli(['--data-dir', dir, '--json', 'runs', 'forget', RUN_ID, OTHER_ID, THIRD_ID])
  const { ok, runs, failed } = JSON.parse(forgotten.stdout) as { ok: boolean; runs: DetachedRunView[]; failed: object[] }
  assert.deepEqual([forgotten.status, ok, runs.map(({ request_id }) => request_id)], [255, false, [RUN_ID, OTHER_ID]])
  const next = `Try: x0x runs forget --here ${THIRD_ID}   (deletes only the record on this machine)`
  assert.deepEqual(failed, [{ request_id: THIRD_ID, error: 'peer_unreachable', message: 'gone', next }])

  const none = await runCli(['--data-dir', dir, 'runs', 'wait', '--session', 'day'])
  assert.deepEqual([none.status, /has the label day\n/.test(none.stderr)], [255, true])
})

test('more runs than one wait may have are awaited in batches within the given time', async (t) => {
  const many = Array.from({ length: MAX_WAITED_RUNS + 1 }, (_, at) =>
    run({ request_id: `${RUN_ID.slice(0, -4)}${at.toString(16).padStart(4, '0')}` }),
  )
  const { dir, seen } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path.startsWith('/runs?')) return json(response, 200, { ok: true, runs: many })
    const { request_ids } = JSON.parse(body) as { request_ids: string[] }
    return json(response, 200, { ok: true, runs: request_ids.map((request_id) => waited({ request_id })) })
  })
  const { status, stdout } = await runCli(['--data-dir', dir, '--json', 'runs', 'wait', '--session', 'night', '--timeout', '60'])
  assert.deepEqual([status, (JSON.parse(stdout) as { runs: object[] }).runs.length], [0, MAX_WAITED_RUNS + 1])
  const asked = seen
    .filter(({ path }) => path === '/runs/wait')
    .map(({ body }) => JSON.parse(body) as { request_ids: string[]; timeout_ms: number })
  assert.deepEqual(
    asked.map(({ request_ids }) => request_ids.length),
    [MAX_WAITED_RUNS, 1],
  )
  assert.ok(asked.every(({ timeout_ms }) => timeout_ms > 0 && timeout_ms <= 60_000))
})

test('after an internal error of the daemon, the state of a detached host is unknown', async (t) => {
  const { dir } = await fakeDaemon(t, ({ path }, response) =>
    path.startsWith('/contacts/select')
      ? json(response, 200, { ok: true, hosts: HOSTS.slice(0, 1) })
      : json(response, 500, { ok: false, error: 'internal', message: 'internal error' }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', '@all', '--detach', '--', 'make'])
  assert.deepEqual([status, /^x0x: 0 of 1 started, 1 unknown$/m.test(stderr)], [4, true])
})

test('the results of a detached fan-out are listed and add up, and an empty selection requests no run', async (t) => {
  const { dir } = await fakeDaemon(t, manyAnswers)
  const { status, stdout } = await runCli(['--data-dir', dir, '--json', 'exec', 'web1', 'web2', '--detach', '--', 'make'])
  const { hosts, asked, started, ok, session, ...rest } = JSON.parse(stdout) as Record<string, number | boolean> & {
    hosts: { end: string }[]
  }
  assert.deepEqual([status, ok, asked, started], [4, false, 4, 1])
  assert.deepEqual(rest, { denied: 1, unreachable: 1, not_started: 0, unknown: 1 })
  assert.match(String(session), /^detached-[0-9a-f]{12}$/)
  assert.deepEqual(
    hosts.map(({ end }) => end),
    ['started', 'denied', 'unreachable', 'unknown'],
    'in the order of WHO',
  )
  const none = await fakeDaemon(t, (_request, response) => json(response, 404, { ok: false, error: 'no_hosts', message: 'nobody' }))
  const nobody = await runCli(['--data-dir', none.dir, 'exec', '@none', '--detach', '--', 'make'])
  assert.equal(nobody.status, 255)
  assert.equal(none.seen.length, 1)
})

test('without a daemon, no detached run is unknown', async (t) => {
  const { status, stderr } = await runCli(['--data-dir', '/nonexistent-x0x', 'exec', 'bob', '--detach', '--', 'make'])
  assert.equal(status, 255)
  assert.match(stderr, /^x0x: cannot connect to x0xd \(daemon_unreachable\): /)
  assert.doesNotMatch(stderr, /\(whether /)
  const { dir } = await fakeDaemon(t, (_request, response) => {
    json(response, 200, { ok: true, hosts: HOSTS })
    // The daemon disappears before it receives a request.
    rmSync(join(dir, 'api.sock'))
  })
  const many = await runCli(['--data-dir', dir, '--json', 'exec', '@all', '--detach', '--', 'make'])
  const { unreachable, unknown } = JSON.parse(many.stdout) as Record<string, number>
  assert.deepEqual([many.status, unreachable, unknown], [3, HOSTS.length, 0])
})

test('Ctrl-C starts no more hosts, and those already asked are unknown', async (t) => {
  let interrupt: (signal: NodeJS.Signals) => void = () => undefined
  const many = Array.from({ length: 100 }, (_, at) => ({ host: `web${at}`, agent_id: at.toString(16).padStart(64, '0') }))
  let open = 0
  const { dir } = await fakeDaemon(t, ({ path }, response) => {
    if (path.startsWith('/contacts/select')) return json(response, 200, { ok: true, hosts: many })
    open += 1
    if (open === 64) interrupt('SIGINT')
  })
  const { status, stdout } = await runCli(['--data-dir', dir, '--json', 'exec', '@all', '--detach', '--', 'make'], {
    onSignal: (listener) => {
      interrupt = listener
      return () => undefined
    },
  })
  const { asked, unknown, not_started } = JSON.parse(stdout) as Record<string, number>
  assert.deepEqual([status, asked, unknown, not_started], [130, 100, 64, 36])
})
