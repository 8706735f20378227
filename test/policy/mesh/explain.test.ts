import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { authorize } from '../../../src/policy/mesh/authorize.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import { explain, explanationText, type Explanation } from '../../../src/policy/mesh/explain.ts'
import { Slots } from '../../../src/policy/slots.ts'
import {
  ALICE,
  aclAllowing,
  aclOf,
  aclText,
  alice,
  asking,
  ELSEWHERE,
  entryText,
  filesText,
  LAPTOP,
  MALLORY,
} from '../../support/acl-text.ts'

const acl = aclOf(
  aclText([
    entryText([['true']], { agent_id: MALLORY }),
    entryText([
      ['systemctl', 'status', 'x0xd'],
      ['echo', '-n', '<INT>'],
    ]),
    entryText([['echo', '-n', 'done']], { description: 'second' }),
  ]),
)

const ask = (...argv: string[]): Explanation => explain({ acl, agent_id: ALICE, machine_id: LAPTOP, argv })

test('an allowed command is shown with its entry, its line and the program that would run', () => {
  const answer = ask('echo', '-n', 'done')
  assert.equal(answer.allowed, true)
  assert.equal(answer.reason, null)
  assert.deepEqual(answer.matched, {
    entry: 2,
    command: 0,
    pattern: false,
    description: 'second',
    discoverable: false,
    line: 24,
    argv: ['echo', '-n', 'done'],
    terminal: false,
    record: false,
    watch: false,
  })
  assert.equal(answer.nearest, null)
  assert.match(answer.run?.executable ?? '', /\/echo$/)
  assert.equal(answer.run?.caps.timeout_ms, 300_000)
  assert.ok(answer.gates.every(({ result }) => result === 'pass'))
})

test('a refused command is shown with the nearest rule and the first token that differs', () => {
  const answer = ask('echo', '-n', 'hello')
  assert.equal(answer.allowed, false)
  assert.equal(answer.reason, 'argv_not_allowed')
  assert.deepEqual(answer.nearest, {
    entry: 1,
    command: 1,
    pattern: false,
    description: 'alice on her laptop',
    discoverable: false,
    line: 18,
    argv: ['echo', '-n', '<INT>'],
    terminal: false,
    record: false,
    watch: false,
    token: 2,
    why: 'token 2 is "hello", the command has "<INT>" (1 to 999999, no sign, no leading zero)',
  })
  assert.equal(answer.detail, answer.nearest?.why)
  assert.equal(answer.run, null)
})

test('a refusal after the command check shows which command matched', () => {
  const answer = explain({ acl, agent_id: ALICE, machine_id: LAPTOP, argv: ['systemctl', 'status', 'x0xd'], cwd: '/' })
  assert.equal(answer.reason, 'cwd_not_allowed')
  assert.equal(answer.matched?.line, 16)
})

test('explain distinguishes a listed agent on another machine from an unlisted pair', () => {
  assert.match(explain({ acl, agent_id: ALICE, machine_id: ELSEWHERE, argv: ['true'] }).detail ?? '', /on another machine/)
  assert.match(explain({ acl, agent_id: ELSEWHERE, machine_id: LAPTOP, argv: ['true'] }).detail ?? '', /with another agent/)
  assert.match(explain({ acl, agent_id: ELSEWHERE, machine_id: ELSEWHERE, argv: ['true'] }).detail ?? '', /neither/)
})

test('the text shows verdict, reason, place and checks, one per line', () => {
  const denied = explanationText(ask('echo', '-n', 'hello'), ['echo', '-n', 'hello'])
  assert.deepEqual(denied.split('\n'), [
    'denied   ["echo", "-n", "hello"]',
    'reason   argv_not_allowed',
    'why      token 2 is "hello", the command has "<INT>" (1 to 999999, no sign, no leading zero)',
    'nearest  acl.toml:18: ["echo", "-n", "<INT>"] of "alice on her laptop"',
    'gates    sender > trust > enabled > argv > pair > metacharacters > command DENIES > (cwd) > (detach) > (terminal) > (stdin) > (timeout) > (slots) > (executable) > (approval)',
    'assumed  the sender is verified, trust accepts it, and no other run is going on',
  ])
  const allowed = explanationText(ask('echo', '-n', '5'), ['echo', '-n', '5'])
  assert.match(
    allowed,
    /^allowed {2}\["echo", "-n", "5"\]\nmatched {2}acl\.toml:18: .*\nlisted {3}no: its entry is not discoverable\nruns {5}\/.*\/echo in \/.*\nlimits {3}300000 ms, /,
  )
})

test('the text contains no control characters and no change of text direction', () => {
  const argv = ['echo', '\u001b[2J', '\u202egnp.exe', '\u200b', '\r', '\u009b', '\ud800']
  const text = explanationText(ask(...argv), argv)
  assert.doesNotMatch(text.replaceAll('\n', ''), /\p{C}/u)
})

test('property: explain and authorize always give the same result', () => {
  const file = aclAllowing(['echo', '<INT>'], ['true'], ['echo', 'http://h<URL_PATH>', '-q'], ['x0x-no-such-tool'])
  const argvs = fc.array(fc.constantFrom('echo', 'true', '1', '0', 'http://h/a', '-q', ';', 'x0x-no-such-tool', ''), { maxLength: 4 })
  const intents = fc.record({
    argv: argvs,
    cwd: fc.option(fc.constant('/'), { freq: 8 }),
    stdin_len: fc.option(fc.integer({ min: 0, max: 2_000_000 })),
    timeout_ms: fc.option(fc.integer({ min: 0, max: 600_000 })),
    clamp: fc.boolean(),
  })
  const seen = new Set<string | null>()
  fc.assert(
    fc.property(intents, fc.constantFrom(ALICE, MALLORY), (intent, agent_id) => {
      const verdict = authorize(
        asking(intent.argv, intent),
        { ...alice, agent_id },
        { acl: file, slots: new Slots(file.caps), env: scrubbedEnvironment() },
      )
      const answer = explain({ acl: file, agent_id, machine_id: LAPTOP, ...intent })
      assert.equal(answer.allowed, verdict.kind === 'permit')
      assert.equal(answer.reason, verdict.kind === 'denied' ? verdict.reason : null)
      assert.equal(answer.nearest !== null, verdict.kind === 'denied' && verdict.gate === 'command')
      if (verdict.kind === 'permit') assert.deepEqual(answer.run?.caps, verdict.permit.caps)
      seen.add(answer.reason)
    }),
    { seed: 20_260_104, numRuns: 3_000 },
  )
  assert.ok(seen.size >= 8, `only saw ${[...seen].join(' ')}`)
})

const files = aclOf(
  aclText([
    entryText([], { description: 'readers' }) + filesText('/usr'),
    entryText([], { description: 'writers' }) +
      filesText('/usr', { read: false, write: true, create_dirs: true, max_file_bytes: 5, max_total_bytes: 9, mode: '0600' }),
  ]),
)
const WRITE = ['@write', '/usr/lib/x', `upload=${'0'.repeat(32)}`, 'offset=0']

test('an allowed file command is shown with its table and its limits, and starts no program', () => {
  const argv = ['@read', '/usr/lib', 'offset=0', 'length=1']
  const answer = explain({ acl: files, agent_id: ALICE, machine_id: LAPTOP, argv })
  assert.deepEqual([answer.allowed, answer.run, answer.matched, answer.nearest], [true, null, null, null])
  assert.deepEqual([answer.grant?.entry, answer.grant?.table, answer.grant?.line, answer.grant?.root], [0, 0, 9, '/usr'])
  assert.deepEqual(explanationText(answer, argv).split('\n').slice(0, 4), [
    'allowed  ["@read", "/usr/lib"]',
    'matched  acl.toml:9: root "/usr" of "readers"',
    'listed   no: its entry is not discoverable',
    'rights   read',
  ])
  const written = explain({ acl: files, agent_id: ALICE, machine_id: LAPTOP, argv: WRITE })
  assert.match(
    explanationText(written, WRITE),
    /of "writers"\n.*\nrights {3}write, create_dirs\nlimits {3}5 B per file, 9 B below the root, mode 0600\ngates/,
  )
})

test('a refused file command is shown with the missing root or entry', () => {
  const answer = explain({ acl: files, agent_id: ALICE, machine_id: LAPTOP, argv: ['@stat', '/etc/passwd'] })
  assert.deepEqual([answer.allowed, answer.reason, answer.grant], [false, 'argv_not_allowed', null])
  assert.equal(answer.detail, '"/etc/passwd" is below none of the roots "/usr", "/usr"')
  assert.equal(explain({ acl: files, agent_id: MALLORY, machine_id: LAPTOP, argv: ['@stat', '/usr'] }).reason, 'agent_machine_not_in_acl')
  const late = explain({ acl: files, agent_id: ALICE, machine_id: LAPTOP, argv: ['@stat', '/usr'], cwd: '/' })
  assert.deepEqual([late.reason, late.grant?.line], ['cwd_not_allowed', 9], 'a later gate shows the table')
  assert.equal(explain({ acl, agent_id: ALICE, machine_id: LAPTOP, argv: ['@nothing'] }).detail, 'it is not a valid file command')
})
