import assert from 'node:assert/strict'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { LocalRunIntent } from '../../../src/policy/local/intent.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import type { LocalLimits } from '../../../src/policy/local/policy.ts'
import { CAPABILITY_NAMES, type Capability } from '../../../src/protocol/rexd/fields.ts'
import { rootAt } from '../../support/file-permit.ts'
import { askRun, askSession, EVERY_GRANT, permitted, policyOf, refused, rightsOf, ruleText, slotsOf } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

/** Creates `/…/app`, its sibling `/…/app2`, and the link `/…/link` to the first. */
const scene = async (t: TestContext) => {
  const base = await tempDir(t)
  for (const name of ['app', 'app/sub', 'app2']) await mkdir(join(base, name))
  await symlink('app', join(base, 'link'))
  return { base, app: join(base, 'app') }
}

const codeOf = (verdict: ReturnType<typeof askRun>): string => (verdict.kind === 'refused' ? verdict.code : verdict.kind)

test('a session that asks for nothing gets all rights of the policy that the interface supports', () => {
  const policy = policyOf(['/usr'], { security: EVERY_GRANT })
  const { roots, capabilities, limits } = rightsOf(policy)
  assert.deepEqual([roots, limits], [policy.roots, policy.limits])
  assert.deepEqual(capabilities, new Set(CAPABILITY_NAMES))
  assert.deepEqual(rightsOf(policy, {}, new Set(['exec', 'pty'])).capabilities, new Set(['exec', 'pty']))
})

test('capabilities narrow to the requested ones, without those that are not granted or not supported', () => {
  const policy = policyOf(['/usr'], { security: 'allow_write = false' })
  const names = (capabilities: readonly string[]) => rightsOf(policy, { capabilities }).capabilities
  assert.deepEqual(names(['exec', 'exec.shell', 'fs.write', 'exec']), new Set(['exec', 'events']))
  assert.deepEqual(names(['fs']), new Set(['fs.read']))
  assert.deepEqual(names([]), new Set())
  assert.deepEqual(rightsOf(policy, { capabilities: ['exec'] }, new Set(['fs.read'])).capabilities, new Set())
})

test('an unknown capability is refused by its name', () => {
  const policy = policyOf(['/usr'], { security: EVERY_GRANT })
  for (const capability of ['fs.', '*', '', '__proto__', 'constructor', 'EXEC', 'exec ', 'exec.'])
    refused(askSession(policy, { capabilities: ['exec', capability] }), 'unsupported_capability', /^unknown capability "/, {
      capability,
    })
})

test('limits fall to the requested values, and the default time limit never exceeds the hard one', () => {
  const policy = policyOf(['/usr'])
  assert.deepEqual(rightsOf(policy, { limits: { max_output_bytes: 7, max_processes_per_session: 8 } }).limits, {
    ...policy.limits,
    max_output_bytes: 7,
  })
  const { default_timeout_ms, hard_timeout_ms } = rightsOf(policy, { limits: { hard_timeout_ms: 1_000 } }).limits
  assert.deepEqual([default_timeout_ms, hard_timeout_ms], [1_000, 1_000])
})

test('a requested limit above the limit of the server is refused, with its name and the maximum', () => {
  const policy = policyOf(['/usr'])
  for (const [limit, max] of Object.entries(policy.limits) as [keyof LocalLimits, number][]) {
    const asked = max + 1
    refused(
      askSession(policy, { limits: { [limit]: asked } }),
      'resource_limit',
      new RegExp(`^${limit}: ${asked} is above the limit ${max} of the server$`),
      {
        limit,
        asked,
        max,
      },
    )
  }
})

test('a limit that is not a positive integer is refused', () => {
  const policy = policyOf(['/usr'])
  for (const asked of [Number.NaN, 0, -1, 0.5, Number.NEGATIVE_INFINITY])
    assert.equal(askSession(policy, { limits: { max_output_bytes: asked } }).kind, 'refused', String(asked))
})

test('roots narrow to directories below those of the policy, compared by whole names', async (t) => {
  const { base, app } = await scene(t)
  const policy = policyOf([join(base, 'link')])
  const below = await rootAt(join(app, 'sub'))
  assert.deepEqual(rightsOf(policy, { roots: [below] }).roots, [below])
  assert.deepEqual(rightsOf(policy, { roots: [await rootAt(app)] }).roots[0]?.real, app)
  for (const path of [join(base, 'app2'), base, '/']) {
    const root = await rootAt(path)
    for (const roots of [[root], [below, root]])
      refused(askSession(policy, { roots }), 'forbidden_path', /is outside the allowed roots$/, {
        path,
        allowed_roots: [join(base, 'link')],
      })
  }
})

test('rights are frozen and do not change with the request object', async (t) => {
  const { base, app } = await scene(t)
  const asked = { roots: [await rootAt(app)], capabilities: ['exec'], limits: { max_output_bytes: 5 } }
  const rights = rightsOf(policyOf([base], { security: EVERY_GRANT }), asked)
  asked.roots.push(await rootAt(base))
  asked.capabilities.push('exec.shell')
  asked.limits.max_output_bytes = 1_000
  assert.deepEqual([rights.capabilities.has('exec.shell'), rights.limits.max_output_bytes], [false, 5])
  assert.ok(Object.isFrozen(rights) && Object.isFrozen(rights.limits))
  assert.deepEqual(
    rights.roots.map(({ path }) => path),
    [app],
  )
})

test('a permit contains everything that will run', async (t) => {
  const dir = await tempDir(t)
  await writeFile(join(dir, 'tool'), '#!/bin/sh\n', { mode: 0o755 })
  const policy = policyOf(['/usr'], {
    security: `path = ["${dir}"]\nallow_env = ["CI"]`,
    limits: 'max_output_bytes = 100\nhard_timeout_ms = 9000',
  })
  const intent = { argv: ['tool', ';', '$(id)', ''], env: { CI: '1' }, timeout_ms: 8_000, max_output_bytes: 50 }
  const permit = permitted(askRun(policy, intent, { cwd: { path: '/usr/share', descriptor: 77 } }))
  assert.deepEqual([permit.argv, permit.executable.path], [['tool', ';', '$(id)', ''], join(dir, 'tool')])
  assert.deepEqual([permit.cwd, permit.cwd_descriptor], ['/usr/share', 77])
  assert.deepEqual(permit.env, { ...scrubbedEnvironment(), PATH: dir, CI: '1' })
  const { max_output_bytes, max_stdout_bytes, max_stderr_bytes, timeout_ms, max_duration_ms, timeout_clamped } = permit.caps
  assert.deepEqual([max_output_bytes, max_stdout_bytes, max_stderr_bytes], [50, 50, 50])
  assert.deepEqual([timeout_ms, max_duration_ms, timeout_clamped], [8_000, 9_000, false])
  assert.deepEqual([permit.account, permit.terminal, permit.matched_acl], [null, null, 'security'])
  assert.deepEqual(permit.principal, { kind: 'local', session_id: 's_1' })
})

test('each feature of a run needs its own capability, and the refusal names the key that grants it', () => {
  const policy = policyOf(['/usr'])
  const all = rightsOf(policyOf(['/usr'], { security: EVERY_GRANT }))
  const size = { cols: 80, rows: 24 }
  const asked: [Capability, Partial<LocalRunIntent>, RegExp][] = [
    ['exec', {}, /^this session may not use exec$/],
    ['exec.input', { input: true }, /^this session may not use exec\.input$/],
    ['exec.shell', { shell: true, argv: ['/bin/sh', '-c', 'true'] }, /; security\.allow_shell grants it$/],
    ['exec.detach', { detach: true }, /; security\.allow_detach grants it, over HTTP and WebSocket, and to x0x mcp for a target$/],
    ['pty', { terminal: size }, /; security\.allow_pty grants it$/],
  ]
  for (const [capability, intent, message] of asked) {
    const capabilities = new Set(all.capabilities)
    permitted(askRun(policy, intent, { rights: all }))
    capabilities.delete(capability)
    refused(askRun(policy, intent, { rights: { ...all, capabilities } }), 'unsupported_capability', message, { capability })
  }
})

test('a client may set a variable only if its exact name is listed', () => {
  const policy = policyOf(['/usr'], { security: 'allow_env = ["CI", "RUST_LOG"]' })
  assert.equal(permitted(askRun(policy, { env: { CI: 'a=b\nc', RUST_LOG: '' } })).env['CI'], 'a=b\nc')
  for (const variable of ['ci', 'CI ', 'CI2', 'C', '', 'LD_PRELOAD', 'PATH', 'HOME', 'constructor'])
    refused(
      askRun(policy, { env: { CI: '1', [variable]: 'x' } }),
      'command_denied',
      /^env: .* may not be set; security\.allow_env lists those that may$/,
      { variable, allow_env: ['CI', 'RUST_LOG'] },
    )
  assert.equal(askRun(policy, { env: Object.fromEntries([['__proto__', 'x']]) }).kind, 'refused')
})

test('a command may ask for at most the time and output of its session, and larger values are reduced', () => {
  const policy = policyOf(['/usr'], { limits: 'max_output_bytes = 100\ndefault_timeout_ms = 40\nhard_timeout_ms = 50' })
  const capsOf = (intent: Partial<LocalRunIntent>) => permitted(askRun(policy, intent)).caps
  assert.deepEqual([capsOf({}).timeout_ms, capsOf({ timeout_ms: 50 }).timeout_ms, capsOf({ timeout_ms: 1 }).timeout_ms], [40, 50, 1])
  assert.deepEqual([capsOf({}).max_output_bytes, capsOf({ max_output_bytes: 100 }).max_output_bytes], [100, 100])
  assert.deepEqual([capsOf({ timeout_ms: 51 }).timeout_ms, capsOf({ timeout_ms: Number.MAX_SAFE_INTEGER }).timeout_ms], [50, 50])
  assert.equal(capsOf({ timeout_ms: 51 }).max_duration_ms, 50)
  const { max_output_bytes, max_stdout_bytes, max_stderr_bytes } = capsOf({ max_output_bytes: 101 })
  assert.deepEqual([max_output_bytes, max_stdout_bytes, max_stderr_bytes], [100, 100, 100])
})

test('a time or an output limit that is not a positive integer is refused', () => {
  const policy = policyOf(['/usr'])
  for (const asked of [Number.NaN, 0, -1, 0.5, Number.NEGATIVE_INFINITY]) {
    assert.equal(askRun(policy, { timeout_ms: asked }).kind, 'refused', `timeout_ms ${asked}`)
    assert.equal(askRun(policy, { max_output_bytes: asked }).kind, 'refused', `max_output_bytes ${asked}`)
  }
})

test('a session runs as many programs at once as its limit, and the next after one ends', () => {
  const policy = policyOf(['/usr'], { limits: 'max_processes_per_session = 2' })
  const slots = slotsOf(policy.limits)
  const held = [askRun(policy, {}, { slots }), askRun(policy, {}, { slots })]
  const limit = { limit: 'max_processes_per_session', max: 2 }
  refused(askRun(policy, {}, { slots }), 'resource_limit', /^this session runs 2 processes; no others are allowed$/, limit)
  assert.ok(held[0]?.kind === 'permit')
  held[0].slot.release()
  permitted(askRun(policy, {}, { slots }))
})

test('a refused command uses no slot of the session', () => {
  const policy = policyOf(['/usr'], { rules: ruleText('deny_commands', ['false']) })
  const slots = slotsOf(policy.limits)
  const wrong: Partial<LocalRunIntent>[] = [
    { argv: [] },
    { argv: ['false'] },
    { argv: ['no-such-program-x0x'] },
    { shell: true },
    { env: { A: '1' } },
    { timeout_ms: -1 },
    { max_output_bytes: -1 },
  ]
  for (const intent of wrong) assert.equal(askRun(policy, intent, { slots }).kind, 'refused')
  assert.equal(slots.active, 0)
})

test('the checks run in a fixed order, and the first refusal hides the later ones', () => {
  const policy = policyOf(['/var'], { limits: 'max_processes_per_session = 1', rules: ruleText('allow_commands', ['no-such-program-x0x']) })
  const slots = slotsOf(policy.limits)
  slots.reserve('')
  const wrong: Partial<LocalRunIntent>[] = [{ shell: true }, { env: { A: '1' } }, { timeout_ms: -1 }, { argv: ['other'] }]
  const codes = wrong.map((_one, at) => {
    const intent = Object.assign({ argv: ['no-such-program-x0x'] }, ...wrong.slice(at)) as Partial<LocalRunIntent>
    return codeOf(askRun(policy, intent, { slots }))
  })
  assert.deepEqual(codes, ['unsupported_capability', 'command_denied', 'bad_request', 'command_denied'])
  assert.equal(codeOf(askRun(policy, { argv: ['no-such-program-x0x'] }, { slots })), 'file_not_found')
  assert.equal(codeOf(askRun(policyOf(['/usr']), {}, { slots })), 'resource_limit')
})
