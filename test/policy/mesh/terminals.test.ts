import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { authorize, isListed, type Verdict } from '../../../src/policy/mesh/authorize.ts'
import { checkAclFile } from '../../../src/policy/mesh/check-acl.ts'
import { compareAcl } from '../../../src/policy/mesh/compare-acl.ts'
import { explain, explanationText } from '../../../src/policy/mesh/explain.ts'
import { Slots } from '../../../src/policy/slots.ts'
import { ALICE, LAPTOP, aclOf, aclText, alice, asking, entryText, readText } from '../../support/acl-text.ts'
import { tempDir } from '../../support/temp-dir.ts'

const TERMINAL = { columns: 132, rows: 50, term: 'xterm-256color' }
const ENV = { PATH: '/usr/bin:/bin', TERM: 'none' }

/** A file with one command, `true`, with these lines. */
const text = (lines: string): string => aclText([entryText([['true']]) + lines])
const ALLOWED = aclOf(text('terminal = true\n'))
const REFUSED = aclOf(text(''))

const decide = (acl: typeof ALLOWED, more: Parameters<typeof asking>[1]): Verdict =>
  authorize(asking(['true'], more), alice, { acl, slots: new Slots(acl.caps), env: ENV })

test('terminal is false by default, and must be true or false', () => {
  assert.equal(REFUSED.allow[0]?.commands[0]?.terminal, false)
  assert.equal(aclOf(text('terminal = false\n')).allow[0]?.commands[0]?.terminal, false)
  assert.equal(ALLOWED.allow[0]?.commands[0]?.terminal, true)
  assert.match(readText(text('terminal = "yes"\n')).problems[0] ?? '', /terminal: must be/)
  for (const key of ['record', 'watch'] as const) {
    assert.match(readText(text(`${key} = true\n`)).problems[0] ?? '', new RegExp(`${key}: .*terminal = true`))
    assert.match(readText(text(`terminal = true\n${key} = 1\n`)).problems[0] ?? '', new RegExp(`${key}: must be`))
    assert.equal(ALLOWED.allow[0]?.commands[0]?.[key], false)
    assert.equal(aclOf(text(`terminal = true\n${key} = true\n`)).allow[0]?.commands[0]?.[key], true)
  }
})

test('only a command with terminal = true runs on a terminal, with its size and TERM', () => {
  const denied = decide(REFUSED, { terminal: TERMINAL })
  assert.deepEqual([denied.kind, denied.kind === 'denied' && denied.reason], ['denied', 'terminal_not_allowed'])
  const onTerminal = decide(ALLOWED, { terminal: TERMINAL })
  assert.ok(onTerminal.kind === 'permit')
  assert.deepEqual(onTerminal.permit.terminal, { cols: 132, rows: 50 })
  assert.deepEqual(onTerminal.permit.env, { ...ENV, TERM: 'xterm-256color' })
  const onPipes = decide(ALLOWED, {})
  assert.ok(onPipes.kind === 'permit')
  assert.deepEqual([onPipes.permit.terminal, onPipes.permit.env], [null, ENV])
})

test('a detached run and a command of ask_patterns have no terminal', () => {
  const detached = aclOf(aclText([entryText([['true']], { detach: true as never }) + 'terminal = true\n']))
  const verdict = decide(detached, { terminal: TERMINAL, detach: { lifetime_ms: null, keep_bytes: null } })
  assert.deepEqual(verdict.kind === 'denied' && verdict.reason, 'terminal_not_allowed')
  const pattern = '[[exec.allow.ask_patterns]]\nargv = ["true", "<ANY...>"]\n'
  const asked = aclOf(aclText([entryText([['false']], { ask: 'on-miss' }) + pattern]))
  const miss = decide(asked, { terminal: TERMINAL })
  assert.deepEqual(miss.kind === 'denied' && miss.reason, 'terminal_not_allowed')
  assert.match(
    readText(aclText([entryText([['false']], { ask: 'on-miss' }) + pattern + 'terminal = true\n'])).problems[0] ?? '',
    /unknown key/,
  )
})

test('an ACL with a terminal is wider, and one without it is narrower', () => {
  assert.deepEqual(compareAcl(REFUSED, ALLOWED).verdict, 'widens')
  assert.match(compareAcl(REFUSED, ALLOWED).more[0]?.why ?? '', /terminal is true, and was not/)
  assert.deepEqual(compareAcl(ALLOWED, REFUSED).verdict, 'narrows')
  assert.deepEqual(compareAcl(ALLOWED, ALLOWED).verdict, 'equal')
  const run = { argv: ['true'], detached: false, terminal: true }
  const pair = { agentId: ALICE, machineId: LAPTOP }
  assert.deepEqual([isListed(run, pair, ALLOWED), isListed(run, pair, REFUSED)], [true, false])
})

test('an ACL that records less or allows no watching is wider, and a permit contains both keys', () => {
  const [both, record] = [aclOf(text('terminal = true\nrecord = true\nwatch = true\n')), aclOf(text('terminal = true\nrecord = true\n'))]
  assert.equal(compareAcl(ALLOWED, both).verdict, 'narrows')
  assert.match(compareAcl(both, record).more[0]?.why ?? '', /^watch is no longer true$/)
  assert.match(compareAcl(both, ALLOWED).more[0]?.why ?? '', /^record is no longer true; watch is no longer true$/)
  for (const terminal of [TERMINAL, null]) {
    const permitted = decide(both, { terminal })
    assert.ok(permitted.kind === 'permit')
    assert.deepEqual([permitted.permit.record, permitted.permit.watch], [true, true])
  }
  const pair = { agentId: ALICE, machineId: LAPTOP }
  const listed = (recorded: boolean, acl = both): boolean => isListed({ argv: ['true'], detached: false, recorded }, pair, acl)
  assert.deepEqual([listed(true), listed(false), listed(false, ALLOWED)], [true, false, true])
})

test('acl explain reports whether a command may run on a terminal', () => {
  const of = { agent_id: ALICE, machine_id: LAPTOP, argv: ['true'], terminal: true }
  assert.equal(explain({ acl: ALLOWED, ...of }).allowed, true)
  assert.equal(explain({ acl: REFUSED, ...of }).reason, 'terminal_not_allowed')
  const explained = explain({ acl: aclOf(text('terminal = true\nrecord = true\nwatch = true\n')), ...of })
  assert.match(explanationText(explained, ['true']), /^terminal allowed, runs are recorded, operators may look on$/m)
})

test('acl check warns about each opaque program on a terminal', async (t) => {
  const file = join(await tempDir(t), 'acl.toml')
  const commands = [['less', '/etc/motd'], ['htop'], ['uptime'], ['true']].map((argv) => `${entryText([argv])}terminal = true\n`)
  await writeFile(file, aclText(commands), { mode: 0o600 })
  const { warnings } = await checkAclFile(file)
  const found = warnings.filter((warning) => warning.includes('terminal = true'))
  assert.deepEqual(
    found.map((warning) => /argv: \["?(\w+)/.exec(warning)?.[1]),
    ['less', 'htop'],
    warnings.join('\n'),
  )
  assert.match(found[0] ?? '', /as good as a shell for the requester; record = true keeps what it shows$/)
})
