import assert from 'node:assert/strict'
import { test } from 'node:test'

import { authorizeFile } from '../../../src/policy/local/authorize.ts'
import { authorizeTargetFile, authorizeTargetRun } from '../../../src/policy/local/authorize-target.ts'
import type { LocalRunIntent, SessionIntent, SessionRights } from '../../../src/policy/local/intent.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS } from '../../../src/protocol/limits/wire.ts'
import { CAPABILITY_NAMES, type Capability } from '../../../src/protocol/rexd/fields.ts'
import { ASKING, askSession, EVERY_GRANT, policyOf, readPolicy, refused, rightsOf, slotsOf } from '../../support/local-policy.ts'

const GRANTS = 'allow_shell = true\nallow_pty = true\nallow_detach = true\nallow_env = ["CI"]\nallow_targets = ["bob", "carol"]'
const policy = policyOf(['/usr'], { security: GRANTS })

const forTarget = (target: string, intent: Partial<SessionIntent> = {}, from = policy, available?: ReadonlySet<Capability>) =>
  askSession(from, { ...intent, target }, available)

const targetRights = (): SessionRights => {
  const verdict = forTarget('bob')
  assert.ok(verdict.kind === 'rights')
  return verdict.rights
}

const askTarget = (intent: Partial<LocalRunIntent & { cwd: string | null }>, rights = targetRights(), slots = slotsOf(rights.limits)) =>
  authorizeTargetRun({ ...ASKING, cwd: null, ...intent }, { rights, slots })

test('a session of a target has commands, terminals, files and events, no root, and the name of its target', () => {
  const { roots, capabilities, target, limits } = targetRights()
  assert.deepEqual(
    [roots, capabilities, target, limits],
    [[], new Set(['exec', 'pty', 'fs.read', 'fs.write', 'events']), 'bob', policy.limits],
  )
})

test('a session opens only for targets in security.allow_targets, for any with "*", and for no others', () => {
  refused(forTarget('dave'), 'unsupported_capability', /"dave" is not in security\.allow_targets/, {
    capability: 'target',
    target: 'dave',
  })
  refused(forTarget('BOB'), 'unsupported_capability', /"BOB"/, { capability: 'target', target: 'BOB' })
  const none = policyOf(['/usr'], { security: 'allow_shell = true' })
  refused(forTarget('bob', {}, none), 'unsupported_capability', /security\.allow_targets grants it/, { capability: 'target' })
  const any = policyOf(['/usr'], { security: 'allow_targets = ["*"]' })
  assert.equal(forTarget('whoever', {}, any).kind, 'rights')
})

test('an interface without access to the mesh opens no session for a target', () => {
  const others = new Set(CAPABILITY_NAMES.filter((name) => name !== 'target'))
  refused(forTarget('bob', {}, policy, others), 'unsupported_capability', /target/, { capability: 'target' })
})

test('a client cannot ask for roots of this host together with a target', () => {
  refused(forTarget('bob', { roots: policy.roots }), 'bad_request', /workspace_roots/, { target: 'bob' })
})

test('names of targets have 1 to 64 bytes', () => {
  for (const name of ['', 'x'.repeat(65), 'é'.repeat(33)]) {
    const { problems } = readPolicy(['/usr'], { security: `allow_targets = [${JSON.stringify(name)}]` })
    assert.equal(problems.length, 1)
    assert.match(problems[0]!, /security\.allow_targets\[0\]: .*1 to 64 bytes/)
  }
  assert.deepEqual(policyOf(['/usr'], { security: `allow_targets = ["${'x'.repeat(64)}"]` }).targets, ['x'.repeat(64)])
})

test('a feature that a target does not support is refused, even if the configuration grants it on this host', () => {
  const cases: readonly [Partial<LocalRunIntent & { cwd: string | null }>, string][] = [
    [{ shell: true }, 'exec.shell'],
    [{ terminal: { cols: 80, rows: 24, raw: true } }, 'pty'],
    [{ detach: true }, 'exec.detach'],
    [{ input: true }, 'exec.input'],
    [{ env: { CI: '1' } }, 'env'],
    [{ cwd: '/usr' }, 'cwd'],
  ]
  for (const [intent, capability] of cases) refused(askTarget(intent), 'unsupported_capability', /target/, { capability })
})

test('a file of a target needs an absolute path and the capability, but no root of this host', () => {
  const rights = targetRights()
  const cases = [
    ['/srv/a', '/srv/a'],
    ['/srv//x/../a/', '/srv/a'],
    ['/', '/'],
  ] as const
  for (const access of ['read', 'write'] as const) {
    for (const [path, plain] of cases) assert.deepEqual(authorizeTargetFile({ path, access }, rights), { kind: 'permit', path: plain })
    for (const path of ['', '.', 'a', '/a\0b', `/${'x'.repeat(5_000)}`])
      refused(authorizeTargetFile({ path, access }, rights), 'bad_request', /path/, {})
    // The functions for this host and for a target refuse the sessions of each other.
    refused(authorizeFile({ path: '/usr', access }, rights), 'forbidden_path', /outside/, { path: '/usr', allowed_roots: [] })
    const verdict = askSession(policy)
    assert.ok(verdict.kind === 'rights')
    refused(authorizeTargetFile({ path: '/usr', access }, verdict.rights), 'unsupported_capability', /fs/, { capability: `fs.${access}` })
  }
  const reader = forTarget('bob', { capabilities: ['fs.read'] })
  assert.ok(reader.kind === 'rights')
  refused(authorizeTargetFile({ path: '/a', access: 'write' }, reader.rights), 'unsupported_capability', /fs\.write/, {
    capability: 'fs.write',
  })
})

test('a command for a target has the limits of its session and uses one of its slots', () => {
  const rights = targetRights()
  const slots = slotsOf(rights.limits)
  const granted = askTarget({ argv: ['echo', '1'], timeout_ms: 5, max_output_bytes: 7 }, rights, slots)
  assert.ok(granted.kind === 'permit')
  assert.deepEqual(granted.grant, { target: 'bob', argv: ['echo', '1'], timeout_ms: 5, max_output_bytes: 7 })
  assert.ok(Object.isFrozen(granted.grant))
  assert.equal(slots.active, 1)
  const usual = askTarget({})
  assert.ok(usual.kind === 'permit')
  assert.deepEqual([usual.grant.timeout_ms, usual.grant.max_output_bytes], [30_000, 1_048_576])
  const cut = askTarget({ timeout_ms: 300_001, max_output_bytes: 1_048_577 })
  assert.ok(cut.kind === 'permit')
  assert.deepEqual([cut.grant.timeout_ms, cut.grant.max_output_bytes], [300_000, 1_048_576])
  for (const text of ['a\0b', 'a\ud800b']) refused(askTarget({ argv: [text] }), 'bad_request', /Unicode, or with a NUL/, {})
  for (let more = 1; more < rights.limits.max_processes_per_session; more++) assert.equal(askTarget({}, rights, slots).kind, 'permit')
  refused(askTarget({}, rights, slots), 'resource_limit', /8 processes/, { limit: 'max_processes_per_session', max: 8 })
})

test('a terminal on a target needs pty in the configuration, accepts input, and excludes a detached run', () => {
  const terminal = { cols: 80, rows: 24 }
  const granted = askTarget({ terminal, input: true })
  assert.ok(granted.kind === 'permit')
  assert.deepEqual([granted.grant.terminal, Object.isFrozen(granted.grant.terminal)], [terminal, true])
  const verdict = forTarget('bob', {}, policyOf(['/usr'], { security: 'allow_targets = ["bob"]' }))
  assert.ok(verdict.kind === 'rights')
  refused(askTarget({ terminal, input: true }, verdict.rights), 'unsupported_capability', /security\.allow_pty grants it/, {
    capability: 'pty',
  })
  const detached = { ...ASKING, cwd: null, terminal, input: true, detached_id: '0198f3c2-0000-7000-8000-000000000000' }
  const rights = targetRights()
  const asked = authorizeTargetRun(detached, { rights, slots: slotsOf(rights.limits), may_detach: true })
  refused(asked, 'unsupported_capability', /no terminal/, { capability: 'pty' })
})

test('an argv that exceeds the limits of the mesh is refused with these limits', () => {
  const most = Array.from({ length: MAX_ARGV_TOKENS }, () => 'x'.repeat(MAX_ARGV_BYTES / MAX_ARGV_TOKENS))
  assert.equal(askTarget({ argv: most }).kind, 'permit')
  const data = { limit: 'argv', asked: MAX_ARGV_BYTES + 1, max: MAX_ARGV_BYTES }
  refused(askTarget({ argv: ['true', 'é'.repeat((MAX_ARGV_BYTES - 4) / 2), 'x'] }), 'resource_limit', /^argv: 3 texts of 32769 bytes/, data)
  const many = { ...data, asked: 2 * (MAX_ARGV_TOKENS + 1) }
  refused(askTarget({ argv: Array.from({ length: MAX_ARGV_TOKENS + 1 }, () => 'xx') }), 'resource_limit', /^argv: 1025 texts/, many)
})

test('a detached run on a target needs exec.detach, has its own time limit, and is marked as detached', () => {
  const rights = targetRights()
  const intent = { ...ASKING, cwd: null, timeout_ms: 86_400_001, detached_id: '0198f3c2-0000-7000-8000-000000000000' }
  const ask = (may_detach?: true) =>
    authorizeTargetRun(intent, { rights, slots: slotsOf(rights.limits), ...(may_detach && { may_detach }) })
  refused(ask(), 'unsupported_capability', /exec\.detach; security\.allow_detach grants it/, { capability: 'exec.detach' })
  const allowed = ask(true)
  assert.ok(allowed.kind === 'permit')
  assert.deepEqual([allowed.grant.detach, allowed.grant.timeout_ms], [true, 86_400_000])
  const attached = askTarget({ timeout_ms: 86_400_001 })
  assert.ok(attached.kind === 'permit')
  assert.ok(!('detach' in attached.grant) && attached.grant.timeout_ms < 86_400_000)
})

test('a session of this host gets no rights on a target', () => {
  const rights = rightsOf(policyOf(['/usr'], { security: EVERY_GRANT }))
  assert.equal(rights.target, null)
  refused(askTarget({}, rights), 'unsupported_capability', /target/, { capability: 'target' })
})
