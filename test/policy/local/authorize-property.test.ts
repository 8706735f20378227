import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { authorizeFile } from '../../../src/policy/local/authorize.ts'
import type { SessionIntent, SessionRights } from '../../../src/policy/local/intent.ts'
import type { Root } from '../../../src/policy/local/file-permit.ts'
import type { LocalLimits, LocalPolicy } from '../../../src/policy/local/policy.ts'
import { CAPABILITY_NAMES, type Capability } from '../../../src/protocol/rexd/fields.ts'
import { askRun, askSession, EVERY_GRANT, policyOf, ruleText } from '../../support/local-policy.ts'

const runs = (seed: number, numRuns = 1_000) => ({ seed: 20_260_300 + seed, numRuns })

const base = policyOf(['/usr'], {
  security: `${EVERY_GRANT}\nallow_env = ["A", "B"]`,
  rules: ruleText('deny_commands', ['false'], 'any') + ruleText('deny_commands', ['echo', 'x']),
})

const name = fc.constantFrom('a', 'b', 'ab', 'a b', '...', 'é')
const step = fc.oneof({ weight: 3, arbitrary: name }, fc.constantFrom('', '.', '..'))
/** Any path that a client may write. */
const anyPath = fc
  .tuple(fc.constantFrom('', '/', '//', '/./', '../'), fc.array(step, { maxLength: 7 }), fc.constantFrom('', '/'))
  .map(([head, steps, tail]) => head + steps.join('/') + tail)
const plainPath = fc.array(name, { maxLength: 3 }).map((names) => `/${names.join('/')}`)

const rootOf = (path: string, real = path): Root => ({ path, real, dev: 1n, ino: BigInt(real.length) })
const anyRoot = fc.oneof(
  plainPath.map((path) => rootOf(path)),
  fc.tuple(plainPath, plainPath).map(([path, real]) => rootOf(path, `/real${real}`.replace(/\/$/, ''))),
)
const anyRoots = fc.array(anyRoot, { minLength: 1, maxLength: 3 })

/** A simple reference that follows a path name by name. */
const namesOf = (path: string, from: string): string[] => {
  const names: string[] = []
  for (const part of (path.startsWith('/') ? path : `${from}/${path}`).split('/')) {
    if (part === '..') names.pop()
    else if (part !== '' && part !== '.') names.push(part)
  }
  return names
}

const isBelow = (names: readonly string[], directory: string): boolean => namesOf(directory, '/').every((part, at) => names[at] === part)

const anyCapabilities = fc.option(fc.subarray([...CAPABILITY_NAMES]), { nil: null })
const keys = Object.keys(base.limits) as (keyof LocalLimits)[]
const amount = fc.oneof(
  fc.integer({ min: 1, max: 400_000 }),
  fc.constantFrom(1, 8, 16, 17, 30_000, 1_048_576, 1_048_577, Number.MAX_SAFE_INTEGER),
)
const anyLimits = fc.dictionary(fc.constantFrom(...keys), amount, { maxKeys: 3 }) as fc.Arbitrary<Partial<LocalLimits>>
const anyIntent: fc.Arbitrary<SessionIntent> = fc.record({
  roots: fc.option(fc.array(anyRoot, { maxLength: 3 }), { nil: null }),
  capabilities: anyCapabilities,
  limits: anyLimits,
  target: fc.constant(null),
})
const anyPolicy: fc.Arbitrary<LocalPolicy> = fc
  .tuple(anyRoots, fc.oneof(fc.constant(CAPABILITY_NAMES), fc.subarray([...CAPABILITY_NAMES])), anyLimits)
  .map(([roots, granted, limits]) => ({ ...base, roots, granted: new Set(granted), limits: { ...base.limits, ...limits } }))
const anyDoor = fc.subarray([...CAPABILITY_NAMES]).map((names) => new Set<Capability>(names))

/** Asserts that these rights never exceed those of the policy. */
const isWithin = ({ roots, capabilities, limits }: SessionRights, policy: LocalPolicy): void => {
  for (const { real } of roots)
    assert.ok(
      policy.roots.some((root) => isBelow(namesOf(real, '/'), root.real)),
      real,
    )
  for (const capability of capabilities) assert.ok(policy.granted.has(capability), capability)
  assert.deepEqual(Object.keys(limits), keys)
  for (const key of keys) assert.ok(limits[key] <= policy.limits[key], `${key}: ${limits[key]}`)
  assert.ok(limits.default_timeout_ms <= limits.hard_timeout_ms)
}

const READS: ReadonlySet<Capability> = new Set(['fs.read'])

test('property: a path is permitted exactly if its names, followed one by one, are below a root', () => {
  fc.assert(
    fc.property(anyRoots, anyPath, (roots, path) => {
      fc.pre(path !== '')
      const rights: SessionRights = { roots, capabilities: READS, limits: base.limits, target: null }
      const verdict = authorizeFile({ path, access: 'read' }, rights)
      const names = namesOf(path, roots[0]!.path)
      const root = roots.find(({ path, real }) => isBelow(names, path) || isBelow(names, real))
      if (root === undefined) return assert.equal(verdict.kind, 'refused')
      assert.ok(verdict.kind === 'permit')
      assert.deepEqual(verdict.permit.root, root)
      const { names: rest } = verdict.permit
      assert.ok(rest.every((one) => one !== '' && one !== '.' && one !== '..' && !one.includes('/')))
      const whole = [root.path, root.real].map((way) => [...namesOf(way, '/'), ...rest].join('/'))
      assert.ok(whole.includes(names.join('/')))
    }),
    runs(1, 5_000),
  )
})

test('property: roots never widen, limits never rise and capabilities never grow, for any session request', () => {
  fc.assert(
    fc.property(anyPolicy, anyIntent, anyDoor, (policy, intent, available) => {
      const verdict = askSession(policy, intent, available)
      if (verdict.kind === 'refused') {
        const tooMuch = Object.entries(intent.limits).some(([key, value]) => value > policy.limits[key as keyof LocalLimits])
        const outside = intent.roots?.some(({ real }) => !policy.roots.some((root) => isBelow(namesOf(real, '/'), root.real))) ?? false
        assert.ok(tooMuch || outside, verdict.message)
        return
      }
      isWithin(verdict.rights, policy)
      // A session that may run programs also gets their events. No other capability comes without a request.
      const runs = intent.capabilities?.some((name) => name === 'exec' || name === 'pty') ?? true
      for (const capability of verdict.rights.capabilities)
        assert.ok(
          available.has(capability) && (capability === 'events' && runs ? true : (intent.capabilities?.includes(capability) ?? true)),
          capability,
        )
    }),
    runs(2, 2_000),
  )
})

test('property: a session narrowed twice never gets back a right that it lost', () => {
  fc.assert(
    fc.property(anyPolicy, anyIntent, anyIntent, (policy, first, second) => {
      const once = askSession(policy, first)
      if (once.kind === 'refused') return
      const { roots, capabilities, limits } = once.rights
      const twice = askSession({ ...policy, roots, granted: capabilities, limits }, second)
      if (twice.kind === 'refused') return
      isWithin(twice.rights, { ...policy, roots, granted: capabilities, limits })
      isWithin(twice.rights, policy)
    }),
    runs(3, 2_000),
  )
})

const program = fc.constantFrom('true', 'echo', '/bin/echo', 'false', '/bin/false', './echo', 'no-such-x0x', '')
const word = fc.constantFrom('x', 'y', '', '-c', ';')
const anyRun = fc.record({
  argv: fc.tuple(program, fc.array(word, { maxLength: 2 })).map(([first, rest]) => [first, ...rest]),
  shell: fc.boolean(),
  terminal: fc.constantFrom(null, { cols: 1, rows: 1 }),
  detach: fc.boolean(),
  input: fc.boolean(),
  env: fc.dictionary(fc.constantFrom('A', 'A', 'A', 'B', 'PATH', 'LD_PRELOAD'), fc.string(), { maxKeys: 1 }),
  timeout_ms: fc.option(amount, { nil: null }),
  max_output_bytes: fc.option(amount, { nil: null }),
})

test('property: a permit is exactly the requested run, within the rights of the session, and no denied program', () => {
  let allowed = 0
  fc.assert(
    fc.property(anyPolicy, anyRun, (policy, intent) => {
      const narrow = askSession(policy)
      assert.ok(narrow.kind === 'rights')
      const verdict = askRun(policy, intent, { rights: narrow.rights })
      if (verdict.kind === 'refused') return
      allowed += 1
      const { limits, capabilities } = narrow.rights
      const { argv, caps, env, executable } = verdict.permit
      assert.deepEqual(argv, intent.argv)
      assert.deepEqual(env, { ...policy.env, ...(intent.terminal === null ? {} : { TERM: env['TERM'] }), ...intent.env })
      assert.ok(Object.keys(intent.env).every((one) => (policy.allow_env ?? []).includes(one)))
      const longest = intent.detach ? limits.max_detached_ms : limits.hard_timeout_ms
      assert.ok(caps.timeout_ms <= longest && caps.max_duration_ms === longest)
      for (const bytes of [caps.max_output_bytes, caps.max_stdout_bytes, caps.max_stderr_bytes])
        assert.ok((bytes ?? Number.NaN) <= limits.max_output_bytes)
      assert.ok(
        capabilities.has('exec') &&
          (!intent.shell || capabilities.has('exec.shell')) &&
          (!intent.detach || capabilities.has('exec.detach')),
      )
      assert.ok((intent.terminal === null || capabilities.has('pty')) && (!intent.input || capabilities.has('exec.input')))
      assert.doesNotMatch(executable.path, /false$/)
      assert.notDeepEqual([executable.path.endsWith('/echo'), ...argv.slice(1)], [true, 'x'])
    }),
    runs(5, 3_000),
  )
  assert.ok(allowed >= 200, `only ${allowed} were permitted`)
})
