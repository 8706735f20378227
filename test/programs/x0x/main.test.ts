import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import type { JournalEvent } from '../../../src/journal/events.ts'
import { Chain, prepareLine } from '../../../src/journal/line.ts'
import { checkOperatorProof } from '../../../src/identity/check-operator-proof.ts'
import { isVisible } from '../../../src/base/visible-text.ts'
import { X0X } from '../../../src/cli/x0x.ts'
import type { CommandSpec } from '../../../src/cli/command.ts'
import { ERROR_TABLE } from '../../../src/base/errors.ts'
import { MAX_STDIN_SPOOL } from '../../../src/protocol/limits/wire.ts'
import { beginRunAnswer, fakeDaemon, json, runAnswer, runCli, runEventBytes, type SeenRequest } from '../../support/fake-daemon.ts'
import { exitEvent, RUN_ID } from '../../support/journal-exit.ts'
import { denialEvent } from '../../support/journal.ts'
import { tempDir } from '../../support/temp-dir.ts'

const ID = RUN_ID
const HELLO_SHA256 = '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824'
/** Operator key of the fake daemon. */
const OPERATOR_KEY = Buffer.from('8'.repeat(64), 'hex')
const exit = exitEvent()
const data = (text: string | Uint8Array, type = 'stdout') => ({
  type,
  request_id: ID,
  seq: 0,
  data_b64: Buffer.from(text).toString('base64'),
})

test('an invalid command line exits with 2 and a message on standard error', async () => {
  for (const argv of [
    ['exce'],
    ['exec'],
    ['exec', 'bob'],
    ['exec', 'bob', 'echo', '42'],
    ['exec', 'bob', '--'],
    ['exec', 'bob', '--timout', '3', '--', 'x'],
    ['exec', 'bob', '--timeout', '0', '--', 'x'],
    ['exec', 'bob', '--timeout', '-1', '--', 'x'],
    ['exec', 'bob', '--stdin-file', '/nonexistent', '--', 'x'],
    ['contacts', 'pin', 'bob'],
    ['contacts', 'trust', 'bob', 'much'],
    ['--name', '../x', 'id'],
    ['--api', 'ftp://x', 'id'],
    ['id', 'revoke'],
    ['acl', 'explain', 'x.toml', '--agent', 'short', '--machine', 'short', '--', 'x'],
    ['audit', 'tail', 'x', '-n', 'many'],
  ]) {
    const { status, stdout, stderr } = await runCli(['--data-dir', '/nonexistent-x0x', ...argv])
    assert.equal(status, 2, argv.join(' '))
    assert.equal(stdout, '')
    assert.match(stderr, /^x0x: \S/)
  }
})

test('a mistyped command or flag gets a suggestion', async () => {
  assert.match((await runCli(['exce'])).stderr, /Did you mean exec/)
  assert.match((await runCli(['exec', 'bob', '--timout', '3', '--', 'x'])).stderr, /Did you mean --timeout/)
})

test('without a daemon, every command that needs one exits with 255 and says how to start it', async (t) => {
  const dir = await tempDir(t)
  for (const argv of [['id'], ['peers'], ['contacts', 'list'], ['exec', 'bob', '--', 'x'], ['diagnostics', 'exec'], ['routes']]) {
    const { status, stderr } = await runCli(['--data-dir', dir, ...argv])
    assert.equal(status, 255, argv.join(' '))
    assert.ok(stderr.includes(`Try: x0xd --data-dir ${dir} --init &`), stderr)
  }
  assert.match((await runCli(['--name', 'x0x-none', 'id'])).stderr, /Try: x0xd --name x0x-none --init &/)
})

test('an invalid command line names the help of the command that it used', async () => {
  for (const [argv, text] of [
    [['contacts', 'pin', 'bob'], /^x0x: missing argument <machine>\n {5}See: x0x contacts pin --help\n$/],
    [['contacts', 'bogus'], /^x0x: unknown command "bogus"\n {5}See: x0x contacts --help\n$/],
    [['peers', 'x'], /^x0x: too many arguments .*\n {5}See: x0x peers --help\n$/],
    [['bogus'], /^x0x: unknown command "bogus"\n {5}See: x0x --help\n$/],
    [['exec', 'bob', 'echo', '42'], /^x0x: no command given.*after "--"\n.*\n$/],
  ] as const) {
    const { status, stderr } = await runCli(argv)
    assert.equal(status, 2)
    assert.match(stderr, text)
  }
})

test('help goes to stdout with status 0, or to stderr with status 2 without a command', async () => {
  for (const argv of [['--help'], ['exec', '--help'], ['contacts', '--help'], ['acl', 'explain', '--help']]) {
    const { status, stdout, stderr } = await runCli(argv)
    assert.equal(status, 0)
    assert.match(stdout, /^Usage: x0x/)
    assert.equal(stderr, '')
  }
  const none = await runCli([])
  assert.equal(none.status, 2)
  assert.match(none.stderr, /^Usage: x0x/)
})

test('every command has a description and answers --help', async () => {
  const walk = async ({ text, commands = [] }: CommandSpec, words: readonly string[]): Promise<void> => {
    assert.ok(text.length > 0, words.join(' '))
    const { status, stdout } = await runCli([...words, '--help'])
    assert.equal(status, 0)
    assert.ok(stdout.startsWith(`Usage: ${['x0x', ...words].join(' ')} `))
    for (const command of commands) await walk(command, [...words, command.name])
  }
  await walk(X0X, [])
})

test('requests carry the API token', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, link: 'x0x://agent/x' }))
  assert.equal((await runCli(['--data-dir', dir, 'card'])).stdout, 'x0x://agent/x\n')
  assert.equal(seen[0]?.headers.authorization, `Bearer ${'7'.repeat(64)}`)
  assert.equal(seen[0]?.headers.host, 'localhost')
})

test('a change of contacts carries an operator proof over the bytes that are sent', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true }))
  await runCli(['--data-dir', dir, 'contacts', 'trust', 'bob', 'trusted'])
  const [request] = seen
  assert.equal(request?.path, '/contacts/trust')
  assert.deepEqual(JSON.parse(request?.body ?? ''), { contact: 'bob', level: 'trusted' })
  const proof = String(request?.headers['x-x0x-operator-proof'])
  const key = Buffer.from('8'.repeat(64), 'hex')
  assert.ok(checkOperatorProof(key, 'contact_trust', Buffer.from(request?.body ?? ''), proof, Date.now()))
  assert.equal(checkOperatorProof(key, 'contact_pin', Buffer.from(request?.body ?? ''), proof, Date.now()), null)
})

test('without the operator key, a change is refused before it is sent', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true }))
  await rm(join(dir, 'operator.key'))
  const { status, stderr } = await runCli(['--data-dir', dir, 'contacts', 'remove', 'bob'])
  assert.equal(status, 1)
  assert.match(stderr, /operator\.key is missing/)
  assert.deepEqual(
    seen.map(({ path }) => path),
    ['/agent'],
  )
})

test('diagnostics prints text without zero counters, and JSON with --json', async (t) => {
  const answer = {
    ok: true,
    enabled: true,
    totals: { requests_received: 3, requests_denied: 0, denial_breakdown: { argv_not_allowed: 2 } },
    recent_warnings: [{ kind: 'stdout_cap_hit', argv_summary: 'cat \u001b[2J', bytes_at_warn: null }],
    active_per_agent: {},
  }
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, answer))
  for (const what of ['exec', 'dm', 'mesh']) {
    const { status, stdout } = await runCli(['--data-dir', dir, 'diagnostics', what])
    assert.equal(status, 0)
    assert.deepEqual(stdout.split('\n'), [
      'enabled  yes',
      'totals',
      '  requests_received  3',
      '  denial_breakdown',
      '    argv_not_allowed  2',
      'recent_warnings',
      '  KIND            ARGV_SUMMARY  BYTES_AT_WARN',
      '  stdout_cap_hit  cat \\x1b[2J   -',
      '',
    ])
    assert.deepEqual(JSON.parse((await runCli(['--data-dir', dir, '--json', 'diagnostics', what])).stdout), answer)
  }
})

test('each error of the daemon is one line, and --json prints it unchanged', async (t) => {
  const { dir } = await fakeDaemon(t, (request, response) => {
    const code = request.path.slice('/diagnostics/'.length)
    json(response, 418, { ok: false, error: code === 'exec' ? 'rate_limited' : 'unheard_of', message: 'too much\u001b[2J' })
  })
  const { status, stderr } = await runCli(['--data-dir', dir, 'diagnostics', 'exec'])
  assert.equal(status, ERROR_TABLE.rate_limited.exit)
  assert.equal(stderr, 'x0x: too much\\x1b[2J\n')
  const machine = await runCli(['--data-dir', dir, '--json', 'diagnostics', 'exec'])
  assert.deepEqual(JSON.parse(machine.stdout), { ok: false, error: 'rate_limited', message: 'too much\u001b[2J' })
  assert.equal((await runCli(['--data-dir', dir, 'diagnostics', 'dm'])).status, ERROR_TABLE.internal.exit)
})

test('an ambiguous agent lists the candidates, and an unreachable agent the addresses tried', async (t) => {
  const { dir } = await fakeDaemon(t, (request, response) => {
    const { agent } = JSON.parse(request.body) as { agent: string }
    if (agent === 'two')
      json(response, 409, {
        ok: false,
        error: 'ambiguous_agent',
        message: 'two',
        data: {
          candidates: [
            { name: 'a', agent_id: 'aa' },
            { name: null, agent_id: 'ab' },
          ],
        },
      })
    else
      json(response, 502, {
        ok: false,
        error: 'peer_unreachable',
        message: 'no answer: /ip4/192.0.2.1/tcp/1: refused',
        data: { addresses: [{ address: '/ip4/192.0.2.1/tcp/1', error: 'connect ECONNREFUSED 192.0.2.1:1' }] },
      })
  })
  const two = await runCli(['--data-dir', dir, 'exec', 'two', '--', 'x'])
  assert.equal(two.status, 255)
  assert.match(two.stderr, / {2}a {2}aa\n {7}ab\n$/)
  const far = await runCli(['--data-dir', dir, 'exec', 'far', '--', 'x'])
  assert.match(
    far.stderr,
    /^x0x: cannot connect to far \(peer_unreachable\)\n {7}192\.0\.2\.1:1: connection refused\n {5}Try: on far, check that x0xd is running and port 1 is open\n/,
  )
  assert.equal(far.stderr.match(/refused/g)?.length, 1)
})

test('output is unchanged in a pipe, and escaped on a terminal unless --raw is set', async (t) => {
  const text = 'a\u001b[31mb\u202ec\n'
  const { dir } = await fakeDaemon(t, (_request, response) => runAnswer(response, data(text), data(text, 'stderr'), exit))
  const argv = ['--data-dir', dir, 'exec', 'bob', '--', 'x']
  assert.deepEqual(await runCli(argv), { status: 0, stdout: text, stderr: text })
  const shown = 'a\\x1b[31mb\\u202ec\n'
  assert.deepEqual(await runCli(argv, { terminal: true }), { status: 0, stdout: shown, stderr: shown })
  assert.deepEqual(await runCli(['--data-dir', dir, 'exec', 'bob', '--raw', '--', 'x'], { terminal: true }), {
    status: 0,
    stdout: text,
    stderr: text,
  })
})

test('a character split over two frames is complete on a terminal', async (t) => {
  const bytes = Buffer.from('世')
  const { dir } = await fakeDaemon(t, (_request, response) =>
    runAnswer(response, data(bytes.subarray(0, 1)), data(bytes.subarray(1)), exit),
  )
  assert.equal((await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'x'], { terminal: true })).stdout, '世')
})

test('an answer without an exit is incomplete and not a success', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => runAnswer(response, data('half')))
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'x'])
  assert.equal(status, 255)
  assert.equal(stdout, 'half')
  assert.match(stderr, /^x0x: incomplete: /)
})

test('an error in the middle of the stream exits with 255', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) =>
    runAnswer(response, data('half'), { type: 'error', request_id: ID, error: 'internal', message: 'broke', data: { next: 'ask again' } }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'x'])
  assert.equal(status, 255)
  assert.equal(stderr, 'x0x: broke\n     ask again\n')
})

test('the first signal cancels the run by the request ID that x0x chose, and waits for its end', async (t) => {
  let interrupt: (signal: NodeJS.Signals) => void = () => undefined
  let waiting: { write(text: string): void; end(text: string): void } | null = null
  const { dir, seen } = await fakeDaemon(t, (request, response) => {
    if (request.path === '/exec/run') {
      waiting = beginRunAnswer(response)
      response.write(
        `${JSON.stringify({ type: 'started', request_id: ID, agent_id: exit.agent_id, machine_id: exit.machine_id, pid: 7 })}\n`,
      )
      setImmediate(() => interrupt('SIGINT'))
    } else {
      json(response, 200, { ok: true })
      waiting?.end(`${JSON.stringify({ ...exit, code: null, signal: 15, warnings: ['cancelled'] })}\n`)
    }
  })
  const onSignal = (listener: (signal: NodeJS.Signals) => void) => {
    interrupt = listener
    return () => undefined
  }
  const result = await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'x'], { onSignal })
  assert.equal(result.status, 143)
  const [run, cancel] = seen.map((request) => JSON.parse(request.body) as { request_id: string })
  assert.equal(seen[1]?.path, '/exec/cancel')
  assert.equal(cancel?.request_id, run?.request_id)
})

test('if the daemon does not accept the cancellation, the first signal ends the wait and the result is unknown', async (t) => {
  let interrupt: (signal: NodeJS.Signals) => void = () => undefined
  const { dir } = await fakeDaemon(t, (request, response) => {
    if (request.path !== '/exec/run') return json(response, 500, { ok: false, error: 'internal', message: 'no' })
    beginRunAnswer(response).write(runEventBytes(data('up\n')))
  })
  const onSignal = (listener: (signal: NodeJS.Signals) => void) => {
    interrupt = listener
    return () => undefined
  }
  const result = await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'x'], { onSignal, onOutput: () => interrupt('SIGINT') })
  assert.equal(result.status, 130)
  assert.equal(result.stdout, 'up\n')
  assert.equal(result.stderr, 'x0x: interrupted; the daemon did not answer, so the result of the command is not known\n')
})

test('length and hash of stdin from a file are sent first, and stdin from a pipe is streamed', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => runAnswer(response, exit))
  await writeFile(join(dir, 'payload'), 'hello')
  await runCli(['--data-dir', dir, 'exec', 'bob', '--stdin-file', join(dir, 'payload'), '--', 'cat'])
  await runCli(['--data-dir', dir, 'exec', 'bob', '--stdin-file', '-', '--', 'cat'], { stdin: 'hello' })
  const bodies = seen.map((request) =>
    request.body
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>),
  )
  assert.equal(bodies[0]?.[0]?.['stdin_len'], 5)
  assert.deepEqual(bodies[0]?.[0]?.['stdin_sha256'], [HELLO_SHA256])
  assert.equal(bodies[1]?.[0]?.['stdin_len'], undefined)
  for (const body of bodies) assert.deepEqual(body[1], { stdin_b64: 'aGVsbG8=' })
})

test('acl check says that exec is off if the file does not enable it', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => runAnswer(response, exit))
  const file = join(dir, 'acl.toml')
  const head = 'audit_log_path = "/var/log/x0x/exec.log"\n'
  for (const [text, off] of [
    [`[exec]\n${head}enabled = false\n`, true],
    [`[exec]\n${head}`, true],
    ['', true],
    [`[exec]\n${head}enabled = true\n`, false],
  ] as const) {
    await writeFile(file, text, { mode: 0o600 })
    const { status, stdout } = await runCli(['acl', 'check', file])
    assert.deepEqual([status, stdout.includes('exec is off')], [0, off], text)
  }
  const ids = `agent_id = "${'a1'.repeat(32)}"\nmachine_id = "${'b2'.repeat(32)}"\n`
  const asking = `ask = "on-miss"\napprovers = [{ agent_id = "${'c3'.repeat(32)}" }]\n[[exec.allow.ask_patterns]]\nargv = ["ls", "<ANY...>"]\n`
  await writeFile(file, `[exec]\n${head}enabled = true\n[[exec.allow]]\n${ids}${asking}`, { mode: 0o600 })
  const counts = /: 1 allow entry, 0 commands, 1 entry with approval, 1 ask pattern, 1 approver, up to 1 needed$/m
  assert.match((await runCli(['acl', 'check', file])).stdout, counts)
})

const RULES = {
  ok: true,
  request_id: ID,
  agent_id: 'a1'.repeat(32),
  machine_id: 'b2'.repeat(32),
  denial_reason: null,
  rules: [] as object[],
  left_out: 0,
}
const RULE = {
  description: null,
  argv: ['echo', 'a b', '<INT>'],
  timeout_ms: 1500,
  max_stdout_bytes: 1025,
  max_stderr_bytes: 2048,
  max_stdin_bytes: 0,
  detach: null,
  terminal: false,
  record: false,
  watch: false,
}
const LASTING = { ...RULE, argv: ['make', 'all'], detach: { lifetime_ms: 7_200_000, keep_bytes: 8_388_608 } }

test('acl mine escapes control characters from a hostile target', async (t) => {
  const description = '\u001b[2J\u202eevil\r\nx0x: all is well'
  const hostile = { ...RULE, argv: ['echo', '\u001b[31mred\u0007', 'x\rrm<URL_PATH>'], description }
  const { dir } = await fakeDaemon(t, (_request, response) =>
    json(response, 200, { ...RULES, rules: [RULE, hostile, LASTING], left_out: 3 }),
  )
  for (const terminal of [true, false]) {
    const { status, stdout } = await runCli(['--data-dir', dir, 'acl', 'mine', 'bob'], { terminal })
    assert.equal(status, 0)
    const lines = stdout.split('\n')
    assert.ok(lines.every(isVisible), stdout)
    assert.match(lines[1] ?? '', /^echo 'a b' <INT> +1500 ms +1025 B +2 KiB +none +no +no +-$/)
    assert.match(lines[3] ?? '', /^make all +1500 ms +1025 B +2 KiB +none +7200 s, 8 MiB +no +-$/)
    assert.ok(lines[2]?.includes('\\u001b') || lines[2]?.includes('\\x1b'), stdout)
    assert.ok(!lines.some((line) => line.startsWith('x0x:')), stdout)
    assert.match(stdout, /^3 commands more are not listed/m)
  }
})

test('acl mine refuses an invalid answer, and reports an older agent separately', async (t) => {
  const answers: object[] = [
    {},
    { ...RULES, ok: false },
    { ...RULES, rules: [{ ...RULE, argv: [] }] },
    { ...RULES, rules: [{ ...RULE, argv: [7] }] },
    { ...RULES, rules: [{ ...RULE, argv: ['sh', '-c', '<ANY>'] }] },
    { ...RULES, rules: [{ ...RULE, argv: ['<INT>'] }] },
    { ...RULES, rules: [{ ...RULE, argv: [''] }] },
    { ...RULES, rules: [{ ...RULE, argv: ['echo', 'x\nrm'] }] },
    { ...RULES, agent_id: 'a1' },
    { ...RULES, rules: [{ ...RULE, description: undefined }] },
    { ...RULES, rules: [{ ...RULE, timeout_ms: -1 }] },
    { ...RULES, rules: [{ ...RULE, detach: { lifetime_ms: 1 } }] },
    { ...RULES, rules: {} },
  ]
  const { dir, seen } = await fakeDaemon(t, (_request, response) => {
    const next = answers.shift()
    if (next === undefined) json(response, 502, { ok: false, error: 'upgrade', message: 'it is of a version before that' })
    else json(response, 200, next)
  })
  for (let left = answers.length; left > 0; left--) {
    const { status, stderr } = await runCli(['--data-dir', dir, 'acl', 'mine', 'b&b'])
    assert.deepEqual([status, stderr.includes('its answer has no rules')], [255, true])
  }
  assert.equal(seen[0]?.path, '/exec/rules?agent=b%26b')
  const { status, stderr } = await runCli(['--data-dir', dir, 'acl', 'mine', 'bob'])
  assert.deepEqual([status, stderr.includes('of a version before that')], [255, true])
})

const provenBody = (request: SeenRequest | undefined): boolean => {
  const header = request?.headers['x-x0x-operator-proof']
  const [head = ''] = request?.body.split('\n') ?? []
  return typeof header === 'string' && checkOperatorProof(OPERATOR_KEY, 'exec_run', Buffer.from(head), header, Date.now()) !== null
}

test('a run carries an operator proof over its request object, even if stdin from a file follows', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => runAnswer(response, exit))
  await writeFile(join(dir, 'payload'), 'hello')
  await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'echo', '42'])
  await runCli(['--data-dir', dir, 'exec', 'b'.repeat(64), '--stdin-file', join(dir, 'payload'), '--', 'cat'])
  assert.deepEqual(seen.map(provenBody), [true, true])
  const proofs = new Set(seen.map(({ headers }) => headers['x-x0x-operator-proof']))
  assert.equal(proofs.size, 2)
})

test('x0x repeats a request with a proof if the daemon requires one for a short ID or piped stdin', async (t) => {
  let insist = true
  const { dir, seen } = await fakeDaemon(t, (request, response) => {
    if (insist && request.headers['x-x0x-operator-proof'] === undefined)
      json(response, 403, { ok: false, error: 'operator_proof_required', message: 'operators only' })
    else runAnswer(response, exit)
  })
  const ask = async (agent: string, ...more: string[]): Promise<number> =>
    (await runCli(['--data-dir', dir, 'exec', agent, ...more, '--', 'cat'], { stdin: 'hello' })).status
  const statuses = [await ask('b0b0b0'), await ask('bob', '--stdin-file', '-')]
  insist = false
  statuses.push(await ask('b0b0b0'), await ask('bob', '--stdin-file', '-'))
  assert.deepEqual(statuses, [0, 0, 0, 0])
  assert.deepEqual(seen.map(provenBody), [false, true, false, true, false, false])
  const [head = '', stdin] = seen[3]!.body.trimEnd().split('\n')
  const { stdin_len, stdin_sha256 } = JSON.parse(head) as Record<string, unknown>
  assert.deepEqual([stdin_len, stdin_sha256, stdin], [5, [HELLO_SHA256], '{"stdin_b64":"aGVsbG8="}'])
  const ids = seen.map(({ body }) => (JSON.parse(body.split('\n')[0]!) as { request_id: string }).request_id)
  assert.equal(new Set(ids).size, 4)
})

test('without a usable operator key, a daemon that requires a proof leads to status 255 and the next step', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) =>
    json(response, 403, { ok: false, error: 'operator_proof_required', message: 'operators only' }),
  )
  await rm(join(dir, 'operator.key'))
  const missing = await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'x'])
  assert.equal(missing.status, 255)
  assert.match(missing.stderr, /^x0x: .*operator\.key is missing\n +Try: run this as the user of the daemon, who can read operator\.key/)
  await writeFile(join(dir, 'operator.key'), 'nonsense')
  const broken = await runCli(['--data-dir', dir, '--json', 'exec', 'bob', '--', 'x'])
  assert.deepEqual([broken.status, (JSON.parse(broken.stdout) as { error: string }).error], [255, 'bad_key_file'])
  assert.deepEqual(
    seen.map(({ headers }) => headers['x-x0x-operator-proof']),
    [undefined, undefined],
  )
})

test('an operator proof goes only to the daemon of this data directory, even if --api names another one', async (t) => {
  const seen: (string | undefined)[] = []
  const server = createServer((request, response) => {
    seen.push(request.headers['x-x0x-operator-proof']?.slice(0, 3) as string | undefined)
    json(response, 403, { ok: false, error: 'operator_proof_required', message: 'operators only' })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const { port } = server.address() as AddressInfo
  const { dir } = await fakeDaemon(t, (_request, response) => runAnswer(response, exit))
  const ask = async () => runCli(['--data-dir', dir, '--api', `http://127.0.0.1:${port}`, 'exec', 'bob', '--', 'x'])
  assert.match((await ask()).stderr, /--api is not the daemon of this data directory/)
  await writeFile(join(dir, 'api.port'), `127.0.0.1:${port === 1 ? 2 : port - 1}\n`)
  await ask()
  await writeFile(join(dir, 'api.port'), `127.0.0.1:${port}\n`)
  assert.match((await ask()).stderr, /operators only/)
  assert.deepEqual(seen, [undefined, undefined, 'v1.'])
})

test('piped stdin above the limit exits with 255 and says to use a file', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => runAnswer(response, exit))
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', 'bob', '--stdin-file', '-', '--', 'cat'], {
    stdin: 'x'.repeat(MAX_STDIN_SPOOL + 1),
  })
  assert.equal(status, 255)
  assert.match(stderr, /^x0x: stdin is longer than 67108864 bytes: give it as a file/)
})

test('a request asks to clamp its timeout, which is in milliseconds', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => runAnswer(response, exit))
  await runCli(['--data-dir', dir, 'exec', 'bob', '--timeout', '1.5', '--session', 'turn-7', '--', 'echo', '--timeout', '9', ''])
  const { request_id: _, ...body } = JSON.parse(seen[0]?.body ?? '') as Record<string, unknown>
  assert.deepEqual(body, { agent: 'bob', argv: ['echo', '--timeout', '9', ''], clamp: true, session: 'turn-7', timeout_ms: 1500 })
})

test('contacts import reads a card from a pipe, and accepts wrapped, quoted and quoted-printable cards', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true }))
  for (const stdin of ['x0x://agent/abc\n', 'x0x://ag\nent/abc\n', '> x0x://agent/a\r\n> bc\r\n', 'x0x://agent/=\r\nabc=\r\n']) {
    await runCli(['--data-dir', dir, 'contacts', 'import', '-', '--as', 'bob'], { stdin })
    assert.deepEqual(JSON.parse(seen.at(-1)?.body ?? ''), { card: 'x0x://agent/abc', name: 'bob' })
  }
  await runCli(['--data-dir', dir, 'contacts', 'import', 'x0x://agent/=', 'abc', '--as', 'bob'])
  assert.deepEqual(JSON.parse(seen.at(-1)?.body ?? ''), { card: 'x0x://agent/abc', name: 'bob' })
})

test('a bad card says to ask for a new one, and mentions if the terminal cut the line', async (t) => {
  const answer = { ok: false, error: 'bad_card', message: 'cut short', data: { next: 'Try, on the other machine: x0x card' } }
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 400, answer))
  const argv = ['--data-dir', dir, 'contacts', 'import', '-']
  const stdin = 'x'.repeat(4095)
  const piped = await runCli(argv, { stdin })
  assert.equal(piped.status, 1)
  assert.equal(piped.stderr, 'x0x: cut short\n     Try, on the other machine: x0x card\n')
  const typed = await runCli(argv, { stdin, terminal: true })
  assert.equal(typed.status, 1)
  assert.match(
    typed.stderr,
    /^x0x: cut short\n {5}the terminal cut the line after 4095 characters\n.*\n {5}Try, on the other machine: x0x card/,
  )
})

test('exec sessions shows a running fan-out, and exec cancel stops it by its ID', async (t) => {
  const fanout = { fanout_id: ID, argv: ['make', 'all'], started_at: '2026-01-01T00:00:00.000Z', asked: 3, begun: 2, ended: 1 }
  const { dir, seen } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path === '/exec/sessions') json(response, 200, { ok: true, sessions: [], fanouts: [fanout] })
    else if (body.includes('request_id')) json(response, 404, { ok: false, error: 'unknown_run', message: 'none' })
    else json(response, 200, { ok: true, fanout_id: ID })
  })
  const shown = await runCli(['--data-dir', dir, 'exec', 'sessions'])
  assert.equal(shown.stdout, `fan-out ${ID}: of 3 hosts 2 begun, 1 ended: make all\nTo stop one: x0x --data-dir ${dir} exec cancel ID\n`)
  assert.equal((await runCli(['--data-dir', dir, 'exec', 'cancel', ID])).status, 0)
  assert.deepEqual(JSON.parse(seen.at(-1)!.body), { fanout_id: ID })
})

test('exec --cancel needs no agent', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true }))
  assert.equal((await runCli(['--data-dir', dir, 'exec', '--cancel', ID])).status, 0)
  assert.equal(seen[0]?.path, '/exec/cancel')
  assert.deepEqual(JSON.parse(seen[0]?.body ?? ''), { request_id: ID })
})

test('direct send reads standard input for - and without a text', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, outcome: 'delivered' }))
  for (const text of [['-'], []]) await runCli(['--data-dir', dir, 'direct', 'send', 'bob', ...text], { stdin: 'hi' })
  assert.deepEqual(
    seen.map(({ body }) => (JSON.parse(body) as { payload_b64: string }).payload_b64),
    ['aGk=', 'aGk='],
  )
})

test('a message that was not delivered gets a next step', async (t) => {
  for (const [outcome, next] of [
    ['no_listener', /x0x direct listen/],
    ['rejected', /x0x contacts trust/],
  ] as const) {
    const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, outcome }))
    const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'direct', 'send', 'bob', 'hi'])
    assert.deepEqual([status, stdout], [1, `${outcome}\n`])
    assert.match(stderr, next)
  }
})

test('direct listen names the contact that sent a message', async (t) => {
  const message = (from_agent: string): string =>
    `data: ${JSON.stringify({ type: 'message', from_agent, content_type: 'text/plain', payload_b64: 'aGk=' })}\n\n`
  const { dir } = await fakeDaemon(t, (request, response) => {
    if (request.path === '/contacts') json(response, 200, { ok: true, contacts: [{ name: 'bob', agent_id: 'a'.repeat(64) }] })
    else response.writeHead(200, { 'content-type': 'text/event-stream' }).end(message('a'.repeat(64)) + message('b'.repeat(64)))
  })
  const { stdout } = await runCli(['--data-dir', dir, 'direct', 'listen'])
  assert.equal(stdout, `${'a'.repeat(12)} (bob)  hi\n${'b'.repeat(12)}  hi\n`)
})

test('without an audit log, x0x names the audit command that takes a file', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, journal: null }))
  for (const command of ['tail', 'verify'])
    assert.match((await runCli(['--data-dir', dir, 'audit', command])).stderr, new RegExp(`Try: x0x .*audit ${command} FILE`))
})

/** A journal with one daemon lifetime and one further line. */
const journalText = (event: JournalEvent): string => {
  const began: JournalEvent = { event: 'began', version: '0.1.0', policy_sha256: null, signer: null, after: null }
  const lines = new Chain({ id: ID }).encode([began, event].map((one) => prepareLine(one, 0)))
  return lines.map(({ bytes }) => `${bytes.toString()}\n`).join('')
}

test('audit --outgoing reads the request log, and refuses a file argument', async (t) => {
  const path = join(await tempDir(t), 'requests.jsonl')
  const asked = {
    event: 'asked',
    request_id: ID,
    agent_id: exit.agent_id,
    machine_id: exit.machine_id,
    argv: ['x'],
    stdin_bytes: 0,
    timeout_ms: null,
    proven: true,
  } as const
  await writeFile(path, journalText(asked))
  const { dir } = await fakeDaemon(t, (_request, response) =>
    json(response, 200, { ok: true, agent_id: exit.agent_id, journal: null, outgoing_journal: { path, writable: true } }),
  )
  const tail = await runCli(['--data-dir', dir, 'audit', 'tail', '--outgoing'])
  assert.match(tail.stdout, /asked .*argv=\["x"\] {2}stdin_bytes=0 {2}timeout_ms=null {2}proven=true\n$/)
  // The journal of the daemon is checked against the agent of the daemon.
  const verify = await runCli(['--data-dir', dir, 'audit', 'verify', '--outgoing'])
  assert.equal(verify.status, 1)
  assert.match(verify.stdout, /chain .* is not signed/)
  assert.match((await runCli(['audit', 'verify', path])).stdout, /no break found: 2 lines/)
  for (const command of ['tail', 'verify'])
    assert.equal((await runCli(['--data-dir', dir, 'audit', command, '--outgoing', path])).status, 2)
})

test('audit verify prints the head of the journal and says that it is not signed', async (t) => {
  const file = join(await tempDir(t), 'exec.log')
  await writeFile(file, journalText(denialEvent(0)))
  const { status, stdout } = await runCli(['audit', 'verify', file])
  assert.equal(status, 0)
  const sha256 = createHash('sha256')
    .update(journalText(denialEvent(0)).split('\n')[1]!)
    .digest('hex')
  assert.equal(
    stdout,
    [
      `head     chain ${ID}: 2 lines, SHA-256 of the last ${sha256}`,
      'signed   none: anyone who can write the file can have rewritten it',
      'note     1 daemon lifetime without an end: still running, killed, or cut off',
      'ok       no break found: 2 lines, 1 daemon lifetime, 0 runs active\n',
    ].join('\n'),
  )
  assert.equal((await runCli(['audit', 'verify', '--agent', 'bob', file])).status, 2)
  assert.equal((await runCli(['audit', 'verify', '--agent', exit.agent_id, file])).status, 1)
})

test('a direct message above its limit is refused before it is sent, with the limit', async (t) => {
  const { dir, seen } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, outcome: 'delivered' }))
  const whole = 'x'.repeat(48 * 1024)
  for (const [argv, stdin] of [
    [[`${whole}x`], ''],
    [[], `${whole}x`],
  ] as const) {
    const { status, stderr } = await runCli(['--data-dir', dir, 'direct', 'send', 'bob', ...argv], { stdin })
    assert.deepEqual([status, stderr], [ERROR_TABLE.too_large.exit, 'x0x: a message has at most 49152 bytes (48 KiB)\n'])
  }
  assert.equal(seen.length, 0)
  assert.equal((await runCli(['--data-dir', dir, 'direct', 'send', 'bob'], { stdin: whole })).status, 0)
})

test('a blocked contact is reported by the name that was typed, with the command that unblocks it', async (t) => {
  const data = { decision: 'reject_blocked', agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64), next: 'by its id' }
  const { dir } = await fakeDaemon(t, (_request, response) =>
    json(response, 502, { ok: false, error: 'peer_rejected', message: 'agent aaaaaaaa is blocked in your contacts', data }),
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', 'bob', '--', 'x'])
  assert.equal(status, 255)
  assert.equal(
    stderr,
    `x0x: bob is blocked in your contacts (reject_blocked)\n     Try: x0x --data-dir ${dir} contacts trust bob trusted\n`,
  )
})

test('if the URL of --api does not answer, x0x does not suggest starting a daemon', async () => {
  const { status, stderr } = await runCli(['--api', 'http://127.0.0.1:9', 'peers'])
  assert.equal(status, 255)
  assert.match(stderr, /Check --api/)
  assert.doesNotMatch(stderr, /x0xd/)
})

test('trust evaluate and doctor report an unknown agent with a suggestion', async (t) => {
  const contacts = [{ name: 'carola', agent_id: 'c'.repeat(64), trust: 'known', machines: [], addresses: [] }]
  const { dir } = await fakeDaemon(t, ({ path }, response) => {
    if (path === '/contacts') json(response, 200, { contacts })
    else if (path === '/peers')
      json(response, 200, { peers: [{ agent_id: 'd'.repeat(64), machine_id: '1234'.padEnd(64, '0'), name: null, addresses: [] }] })
    else if (path === '/agent') json(response, 200, { agent_id: 'e'.repeat(64), machine_id: 'f'.repeat(64), version: '1', revoked: false })
    else
      json(response, 404, {
        ok: false,
        error: 'unknown_agent',
        message: 'no contact matches "carol" (unknown_agent). Did you mean carola?',
      })
  })
  for (const argv of [
    ['trust', 'evaluate', 'carol', '123400'],
    ['doctor', 'carol'],
  ]) {
    const { status, stdout, stderr } = await runCli(['--data-dir', dir, ...argv])
    assert.deepEqual([status, stdout], [255, ''], argv.join(' '))
    assert.match(stderr, /"carol" \(unknown_agent\)\. Did you mean carola\?/)
  }
})

test('exec cancel accepts the first characters of a run or fan-out ID, and lists several matches', async (t) => {
  const [one, two, fanout] = [
    '01890a5d-ac96-774b-bcce-b302099a8057',
    '01890a5d-ac96-774b-bcce-b302099a8058',
    '02990a5d-ac96-774b-bcce-b302099a8059',
  ]
  const { dir, seen } = await fakeDaemon(t, ({ path, body }, response) => {
    if (path === '/exec/sessions')
      json(response, 200, { ok: true, sessions: [{ request_id: one }, { request_id: two }], fanouts: [{ fanout_id: fanout }] })
    else if (path === '/exec/cancel' && !body.includes(`"request_id":"${fanout}"`)) json(response, 200, { ok: true })
    else if (path === '/exec/cancel') json(response, 404, { ok: false, error: 'unknown_run', message: 'none' })
    else json(response, 200, { ok: true, sessions: [] })
  })
  const cancel = async (...words: string[]) => runCli(['--data-dir', dir, 'exec', ...words])
  for (const [words, id] of [
    [['cancel', one], one],
    [['cancel', '0299'], fanout],
    [['--cancel', one.slice(0, -1) + '7'], one],
    [['--cancel', '029'.padEnd(4, '9')], fanout],
  ] as const) {
    assert.equal((await cancel(...words)).status, 0, words.join(' '))
    assert.ok(seen.at(-1)?.body.includes(id), words.join(' '))
  }
  const several = await cancel('cancel', '01890a5d')
  assert.equal(several.status, 1)
  assert.match(several.stderr, new RegExp(`2 runs match "01890a5d"\n {5}It could be: ${one}, ${two}`))
  assert.equal((await cancel('cancel', 'ffff')).status, 1)
  assert.equal((await cancel('cancel', 'xyz')).status, 2)
})
