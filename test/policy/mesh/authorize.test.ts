import assert from 'node:assert/strict'
import { chmod, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { closedAcl, type Acl } from '../../../src/policy/mesh/acl.ts'
import { authorize, GATES, type Denied, type Permitted, type Principal, type Verdict } from '../../../src/policy/mesh/authorize.ts'
import type { Intent } from '../../../src/policy/mesh/intent.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import { firstMismatch } from '../../../src/policy/mesh/match.ts'
import { isPermit } from '../../../src/policy/permit.ts'
import { Slots } from '../../../src/policy/slots.ts'
import { TRUST_DECISIONS } from '../../../src/protocol/reasons.ts'
import { aclAllowing, aclOf, aclText, alice, asking, ELSEWHERE, entryText, MALLORY } from '../../support/acl-text.ts'

const env = scrubbedEnvironment('/home/x0x')

const decide = (acl: Acl, intent: Intent, principal: Principal = alice, slots: Slots = new Slots(acl.caps)): Verdict =>
  authorize(intent, principal, { acl, slots, env })

const permitted = (verdict: Verdict): Permitted => {
  assert.ok(verdict.kind === 'permit', verdict.kind === 'denied' ? `${verdict.reason}: ${verdict.detail}` : '')
  return verdict
}

const denied = (verdict: Verdict, reason: Denied['reason']): Denied => {
  assert.ok(verdict.kind === 'denied', 'permitted')
  assert.equal(verdict.reason, reason, verdict.detail)
  return verdict
}

const temporary = async (t: TestContext): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-authorize-'))
  t.after(() => rm(dir, { recursive: true }))
  return dir
}

const acl = aclAllowing(['echo', '<INT>'], ['printenv', 'PATH'])

test('a listed command gets a permit with everything that will run', () => {
  const file = aclOf(aclText([entryText([['echo', '<INT>']], { max_duration_secs: 30 })], 'default_cwd = "/"\nmax_stdin_bytes = 7'))
  const { permit, slot } = permitted(decide(file, asking(['echo', '42'], { stdin_len: 7, timeout_ms: 1500 })))
  assert.ok(isPermit(permit))
  assert.deepEqual(permit.argv, ['echo', '42'])
  assert.match(permit.executable.path, /^\/.*\/echo$/)
  assert.equal(permit.cwd, '/')
  assert.deepEqual(permit.env, {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: '/home/x0x',
    LANG: 'C.UTF-8',
    LC_ALL: 'C.UTF-8',
  })
  assert.deepEqual(permit.caps, {
    max_stdout_bytes: 16_777_216,
    max_stderr_bytes: 16_777_216,
    max_output_bytes: null,
    max_stdin_bytes: 7,
    warn_stdout_bytes: 8_388_608,
    warn_stderr_bytes: 8_388_608,
    warn_duration_ms: 15_000,
    max_duration_ms: 30_000,
    timeout_ms: 1500,
    timeout_clamped: false,
    keep_bytes: null,
  })
  assert.equal(permit.matched_acl, 'alice on her laptop')
  assert.deepEqual(permit.principal, { kind: 'mesh', agent_id: alice.agent_id, machine_id: alice.machine_id })
  slot.release()
})

test('without default_cwd, a program starts in the working directory of the daemon', () => {
  assert.equal(permitted(decide(acl, asking(['echo', '1']))).permit.cwd, process.cwd())
})

test('an unverified requester is refused before any other check', () => {
  for (const verified of [false, undefined, 1, 'true'])
    denied(decide(closedAcl(null), asking([]), { ...alice, verified: verified as boolean }), 'unverified_sender')
})

test('only the trust decision accept passes the check of trust', () => {
  for (const trust of TRUST_DECISIONS) {
    const verdict = decide(acl, asking(['echo', '1']), { ...alice, trust })
    if (trust === 'accept') permitted(verdict)
    else denied(verdict, 'trust_rejected')
  }
})

test('unverified and untrusted requesters learn nothing about the ACL', () => {
  const principals: Principal[] = [
    { ...alice, verified: false },
    { ...alice, trust: 'known' as Principal['trust'] },
    { ...alice, trust: 'unknown' },
  ]
  for (const principal of principals) {
    const answers = [
      decide(acl, asking(['echo', '1']), principal),
      decide(acl, asking(['rm', '-rf', '/']), principal),
      decide(acl, asking([]), principal),
      decide(closedAcl(null), asking(['echo', '1']), principal),
      decide(acl, asking(['echo', ';']), { ...principal, agent_id: MALLORY }),
    ]
    assert.equal(new Set(answers.map((answer) => JSON.stringify(answer))).size, 1)
  }
})

test('a disabled ACL refuses every requester, including listed ones', () => {
  const off = aclOf(aclText([entryText([['true']])]).replace('enabled = true', 'enabled = false'))
  denied(decide(off, asking(['true'])), 'exec_disabled')
  denied(decide(closedAcl(null), asking(['true'])), 'exec_disabled')
})

test('an empty argv is refused', () => {
  assert.equal(denied(decide(acl, asking([])), 'argv_not_allowed').gate, 'argv')
})

test('the agent and its machine must both be listed in the same entry', () => {
  const two = aclOf(aclText([entryText([['true']]), entryText([['true']], { agent_id: MALLORY, machine_id: ELSEWHERE })]))
  permitted(decide(two, asking(['true'])))
  const stolen = denied(decide(two, asking(['true']), { ...alice, machine_id: ELSEWHERE }), 'agent_machine_not_in_acl')
  assert.match(stolen.detail, /on another machine/)
  denied(decide(two, asking(['true']), { ...alice, agent_id: 'e5'.repeat(32) }), 'agent_machine_not_in_acl')
  denied(decide(two, asking(['true']), { ...alice, agent_id: alice.agent_id.toUpperCase() }), 'agent_machine_not_in_acl')
  denied(decide(aclOf(aclText([])), asking(['true'])), 'agent_machine_not_in_acl')
})

test('a metacharacter in any token is refused, even if a literal contains it', () => {
  for (const character of [';', '|', '&', '>', '<', '`', '$', '\n', '\0']) {
    const token = `a${character}b`
    const open = aclAllowing(['echo', token], [`p${character}`, 'x'])
    const verdict = denied(decide(open, asking(['echo', token])), 'shell_metachar_in_argv')
    assert.equal(verdict.gate, 'metacharacters')
    denied(decide(open, asking([`p${character}`, 'x'])), 'shell_metachar_in_argv')
  }
  denied(decide(acl, asking(['echo', '99', ';', 'ls'])), 'shell_metachar_in_argv')
})

test('a pair that is not listed gets that reason before the check of metacharacters', () => {
  denied(decide(acl, asking(['echo', ';']), { ...alice, agent_id: MALLORY }), 'agent_machine_not_in_acl')
})

test('an argv that no command matches is refused, and the detail names the token', () => {
  assert.match(
    denied(decide(acl, asking(['echo', 'hello'])), 'argv_not_allowed').detail,
    /token 1 is "hello", the command has "<INT>" \(1 to 999999/,
  )
  assert.match(denied(decide(acl, asking(['rm', '-rf', '/'])), 'argv_not_allowed').detail, /token 0 is "rm", the command has "echo"/)
  assert.match(denied(decide(acl, asking(['echo'])), 'argv_not_allowed').detail, /token 1 is missing: the rule has "<INT>"/)
  assert.match(
    denied(decide(acl, asking(['echo', '1', '2'])), 'argv_not_allowed').detail,
    /token 2 \("2"\) is one too many: the command has 2/,
  )
  for (const argv of [['echo 1'], ['echo', '1', ''], ['', 'echo', '1'], ['/bin/echo', '1'], ['ECHO', '1'], ['echo', '-1']])
    denied(decide(acl, asking(argv)), 'argv_not_allowed')
})

test('the detail of a denial has no control characters and a bounded length', () => {
  const { detail } = denied(decide(acl, asking(['echo', `\u001b[31m\u202e${'x'.repeat(10_000)}`])), 'argv_not_allowed')
  assert.match(detail, /\\u001b\[31m\\u\{202e\}x/)
  assert.doesNotMatch(detail, /\p{C}/u)
  assert.ok(detail.length < 400)
})

test('policy searches the entries of a pair in order, and the first matching command sets the limits', () => {
  const file = aclOf(
    aclText([
      entryText([['true']], { description: 'first', max_duration_secs: 10 }),
      entryText([['echo', '<INT>']], { description: 'second', max_duration_secs: 20 }),
      entryText([['echo', '7'], ['false']], { description: 'third', max_duration_secs: 30 }),
    ]),
  )
  const caps = (argv: string[]): [string, number] => {
    const { permit } = permitted(decide(file, asking(argv)))
    return [permit.matched_acl, permit.caps.timeout_ms]
  }
  assert.deepEqual(caps(['true']), ['first', 10_000])
  assert.deepEqual(caps(['echo', '7']), ['second', 20_000])
  assert.deepEqual(caps(['false']), ['third', 30_000])
})

test('a requester cannot choose a working directory, not even an empty one', () => {
  for (const cwd of ['/', '', '/var/lib/x0x', undefined]) {
    const verdict = denied(decide(acl, asking(['echo', '1'], { cwd: cwd as string })), 'cwd_not_allowed')
    assert.equal(verdict.matched_acl, 'alice on her laptop')
  }
})

test('stdin is allowed up to its limit and not one byte above', () => {
  const file = aclOf(aclText([entryText([['cat']])], 'max_stdin_bytes = 10'))
  for (const stdin_len of [null, 0, 1, 10]) permitted(decide(file, asking(['cat'], { stdin_len })))
  for (const stdin_len of [11, 2 ** 53, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])
    denied(decide(file, asking(['cat'], { stdin_len })), 'stdin_too_large')
})

test('a run with stdin is refused if the file, the entry or the command closes stdin', () => {
  const command = `[[exec.allow.commands]]\nargv = ["cat", "-"]\nstdin = false\n`
  for (const [file, argv, open] of [
    [aclText([entryText([['cat']])], 'max_stdin_bytes = 0'), ['cat'], false],
    [aclText([entryText([['cat']], { max_stdin_bytes: 0 })]), ['cat'], false],
    [aclText([`${entryText([['cat']])}${command}`]), ['cat', '-'], false],
    [aclText([`${entryText([['cat']])}${command}`]), ['cat'], true],
  ] as const) {
    const { permit } = permitted(decide(aclOf(file), asking(argv, { stdin_len: null })))
    assert.equal(permit.caps.max_stdin_bytes === 0, !open)
    for (const stdin_len of [0, 1]) {
      const verdict = decide(aclOf(file), asking(argv, { stdin_len }))
      if (open) permitted(verdict)
      else assert.match(denied(verdict, 'stdin_too_large').detail, /stdin is closed/)
    }
  }
})

test('a timeout from one millisecond to the limit is allowed, and the limit is the default', () => {
  const file = aclOf(aclText([entryText([['true']])], 'max_duration_secs = 20'))
  const timeoutOf = (timeout_ms: number | null): number => permitted(decide(file, asking(['true'], { timeout_ms }))).permit.caps.timeout_ms
  assert.equal(timeoutOf(null), 20_000)
  assert.equal(timeoutOf(20_000), 20_000)
  assert.equal(timeoutOf(1), 1)
  for (const timeout_ms of [20_001, 0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])
    denied(decide(file, asking(['true'], { timeout_ms })), 'timeout_too_large')
})

test('a timeout above the limit is reduced to it if the requester agrees', () => {
  const file = aclOf(aclText([entryText([['true']])], 'max_duration_secs = 20'))
  const capsOf = (timeout_ms: number): unknown => {
    const { caps } = permitted(decide(file, asking(['true'], { timeout_ms, clamp: true }))).permit
    return [caps.timeout_ms, caps.timeout_clamped]
  }
  assert.deepEqual(capsOf(20_001), [20_000, true])
  assert.deepEqual(capsOf(20_000), [20_000, false])
  assert.deepEqual(capsOf(5), [5, false])
  for (const timeout_ms of [0, -1, Number.NaN]) denied(decide(file, asking(['true'], { timeout_ms, clamp: true })), 'timeout_too_large')
})

test('the fifth simultaneous run of an agent is refused, and a released slot allows the next', () => {
  const slots = new Slots(acl.caps)
  const held = Array.from({ length: 4 }, () => permitted(decide(acl, asking(['echo', '1']), alice, slots)))
  const verdict = denied(decide(acl, asking(['echo', '1']), alice, slots), 'concurrency_limit_reached')
  assert.match(verdict.detail, /4 of 4 runs of this agent, 4 of 32 in all/)
  held[0]?.slot.release()
  permitted(decide(acl, asking(['echo', '1']), alice, slots))
})

test('a denied run uses no slot', async (t) => {
  const dir = await temporary(t)
  const file = aclAllowing([join(dir, 'gone')], ['true'])
  const slots = new Slots(file.caps)
  const intents = [
    asking([join(dir, 'gone')]),
    asking([]),
    asking(['false']),
    asking(['true', ';']),
    asking(['true'], { cwd: '/' }),
    asking(['true'], { timeout_ms: 0 }),
  ]
  for (const intent of intents) assert.equal(decide(file, intent, alice, slots).kind, 'denied')
  assert.equal(slots.active, 0)
})

test('the checks run in a fixed order, and the first refusal hides the later ones', () => {
  const full = new Slots({ max_concurrent_per_agent: 1, max_concurrent_total: 1 })
  full.reserve('somebody')
  const off = closedAcl(null)
  const gone = aclAllowing(['no-such-program-x0x'])
  const bad = { cwd: '/', stdin_len: 2 ** 40, timeout_ms: 0 }
  const run = ['no-such-program-x0x']
  const nobody: Principal = { ...alice, agent_id: MALLORY, verified: false, trust: 'unknown' }
  const order: Denied[] = [
    decide(off, asking([], bad), nobody, full),
    decide(off, asking([], bad), { ...nobody, verified: true }, full),
    decide(off, asking([], bad), { ...nobody, verified: true, trust: 'accept' }, full),
    decide(gone, asking([], bad), { ...nobody, verified: true, trust: 'accept' }, full),
    decide(gone, asking([';'], bad), { ...nobody, verified: true, trust: 'accept' }, full),
    decide(gone, asking([';'], bad), alice, full),
    decide(gone, asking(['other'], bad), alice, full),
    decide(gone, asking(run, bad), alice, full),
    decide(gone, asking(run, { ...bad, cwd: null, detach: { lifetime_ms: 0, keep_bytes: 0 } }), alice, full),
    decide(gone, asking(run, { ...bad, cwd: null, terminal: { columns: 80, rows: 24, term: 'xterm' } }), alice, full),
    decide(gone, asking(run, { ...bad, cwd: null }), alice, full),
    decide(gone, asking(run, { timeout_ms: 0 }), alice, full),
    decide(gone, asking(run), alice, full),
    decide(gone, asking(run), alice),
  ].map((verdict) => {
    assert.ok(verdict.kind === 'denied')
    return verdict
  })
  assert.deepEqual(
    order.map(({ gate }) => gate),
    // test/policy/mesh/asking.test.ts covers the last check, which asks for an approval.
    GATES.slice(0, -1),
  )
  assert.deepEqual(
    order.map(({ reason }) => reason),
    [
      'unverified_sender',
      'trust_rejected',
      'exec_disabled',
      'argv_not_allowed',
      'agent_machine_not_in_acl',
      'shell_metachar_in_argv',
      'argv_not_allowed',
      'cwd_not_allowed',
      'detach_not_allowed',
      'terminal_not_allowed',
      'stdin_too_large',
      'timeout_too_large',
      'concurrency_limit_reached',
      'spawn_failed',
    ],
  )
})

test('a program that others could replace is not started', async (t) => {
  const dir = await temporary(t)
  const program = join(dir, 'tool')
  await writeFile(program, '#!/bin/sh\n', { mode: 0o755 })
  const file = aclAllowing([program])
  permitted(decide(file, asking([program])))
  await chmod(program, 0o777)
  assert.match(denied(decide(file, asking([program])), 'spawn_failed').detail, /writable by other users.*chmod/)
  await chmod(program, 0o755)
  await chmod(dir, 0o777)
  assert.match(denied(decide(file, asking([program])), 'spawn_failed').detail, /writable by other users/)
})

test('a program that is missing, a directory, or not executable is not started', async (t) => {
  const dir = await temporary(t)
  const plain = join(dir, 'plain')
  await writeFile(plain, '', { mode: 0o644 })
  for (const path of [join(dir, 'gone'), dir, plain, join(plain, 'below')])
    assert.match(denied(decide(aclAllowing([path]), asking([path])), 'spawn_failed').detail, /does not exist|exists, but is not executable/)
})

test('a permit pins the program that is at the path at that moment', async (t) => {
  const dir = await temporary(t)
  const program = join(dir, 'tool')
  await writeFile(program, '#!/bin/sh\n', { mode: 0o755 })
  const file = aclAllowing([program])
  const before = permitted(decide(file, asking([program]))).permit.executable
  await writeFile(join(dir, 'other'), '#!/bin/sh\n', { mode: 0o755 })
  await rename(join(dir, 'other'), program)
  const after = permitted(decide(file, asking([program]))).permit.executable
  assert.equal(after.path, before.path)
  assert.notEqual(after.ino, before.ino)
})

test('a link to a program pins the target of the link and keeps its own name', async (t) => {
  const dir = await temporary(t)
  await writeFile(join(dir, 'real'), '#!/bin/sh\n', { mode: 0o755 })
  await symlink('real', join(dir, 'name'))
  const real = permitted(decide(aclAllowing([join(dir, 'real')]), asking([join(dir, 'real')]))).permit.executable
  const link = permitted(decide(aclAllowing([join(dir, 'name')]), asking([join(dir, 'name')]))).permit.executable
  assert.equal(link.path, join(dir, 'name'))
  assert.deepEqual([link.dev, link.ino], [real.dev, real.ino])
})

test('the PATH of the daemon has no effect on the lookup of programs', async (t) => {
  const dir = await temporary(t)
  await writeFile(join(dir, 'x0x-shadow-tool'), '#!/bin/sh\n', { mode: 0o755 })
  const path = process.env['PATH']
  t.after(() => (process.env['PATH'] = path))
  process.env['PATH'] = `${dir}:${path}`
  denied(decide(aclAllowing(['x0x-shadow-tool']), asking(['x0x-shadow-tool'])), 'spawn_failed')
})

const token = fc.oneof(
  fc.constantFrom('echo', 'true', '1', '42', '0', '-n', '', 'printenv', 'PATH', '/health', 'http://h', 'http://h/a', '..'),
  fc.string({ unit: 'binary', maxLength: 6 }),
  fc.constantFrom(...';|&><`$\n\0').map((character) => `1${character}`),
)

test('property: a permit has no metacharacter and matches a command of the ACL', () => {
  const file = aclAllowing(['echo', '<INT>'], ['true'], ['printenv', 'PATH'], ['echo', 'http://h<URL_PATH>'], ['echo', '1;'])
  let permits = 0
  fc.assert(
    fc.property(fc.array(token, { maxLength: 4 }), (argv) => {
      const verdict = decide(file, asking(argv))
      if (verdict.kind === 'denied') return
      assert.ok(verdict.kind === 'permit')
      permits += 1
      assert.ok(!argv.some((text) => /[;|&><`$\n\0]/.test(text)))
      assert.deepEqual(verdict.permit.argv, argv)
      assert.ok(file.allow.some((entry) => entry.commands.some((command) => firstMismatch(command.tokens, argv) === null)))
    }),
    { seed: 20_260_103, numRuns: 6_000 },
  )
  assert.ok(permits > 15, `only ${permits} were permitted`)
})
