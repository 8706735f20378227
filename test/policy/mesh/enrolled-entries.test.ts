import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../../src/base/errors.ts'
import { isUntouched, ownedEntries, ownedEntriesProblem, withEntries } from '../../../src/policy/mesh/enrolled-entries.ts'
import { AclInForce, type LoadedAcl } from '../../../src/policy/mesh/load-acl.ts'
import { ALICE, ELSEWHERE, LAPTOP, MALLORY, aclOf, aclText, commandText, entryText } from '../../support/acl-text.ts'

const OWNER = { agent_id: ALICE, machine_id: LAPTOP }
const ENTRY = `[[exec.allow]] # for all\ndescription = "ops"\n\n${commandText(['uname', '-r'])}`

const refuses = (text: string, expected: RegExp): void => {
  assert.throws(
    () => ownedEntries(text, OWNER, 'web.toml'),
    (error) => isAppError(error, 'bad_acl') && expected.test(error.message),
  )
}

test('each entry of the operator gets the agent and machine ID of the operator', () => {
  const owned = ownedEntries(`${ENTRY}\n${ENTRY.replace('[[exec.allow]]', '[[ exec . allow ]]')}`, OWNER, 'web.toml')
  const acl = aclOf(aclText([owned]))
  assert.deepEqual(
    acl.allow.map(({ agent_id, machine_id }) => [agent_id, machine_id]),
    [
      [ALICE, LAPTOP],
      [ALICE, LAPTOP],
    ],
  )
  assert.equal(ownedEntriesProblem(owned, OWNER), null)
})

test('a file with an agent, a machine, settings of [exec] or another table is refused with the reason', () => {
  refuses(entryText([['df']]), /an entry names an agent or a machine: leave both out/)
  refuses(`[exec]\nenabled = true\n${ENTRY}`, /has exec\.enabled; it may have only \[\[exec\.allow\]\] entries/)
  refuses(`[other]\na = 1\n${ENTRY}`, /has "other"/)
  refuses('', /has no \[\[exec\.allow\]\] entry/)
  refuses('[[exec.allow]\n', /web\.toml:1:/)
  refuses('exec = { allow = [ { description = "ops" } ] }', /begin each with a line \[\[exec\.allow\]\]/)
  refuses(`[[exec.allow]]\ndescription = """\n[[exec.allow]]\n"""\n["exec"]\nx = 1\n`, /bad|has exec\.x|web\.toml/)
})

test('entries for another agent or machine than the operator are refused', () => {
  for (const keys of [{ agent_id: MALLORY }, { machine_id: ELSEWHERE }])
    assert.match(ownedEntriesProblem(entryText([['df']]) + entryText([['df']], keys), OWNER) ?? '', /not for the agent and the machine/)
  assert.match(ownedEntriesProblem(`${entryText([['df']])}\n[exec]\nenabled = true\n`, OWNER) ?? '', /has exec\.enabled/)
  assert.match(ownedEntriesProblem(`# ${'x'.repeat(20_000)}\n${entryText([['df']])}`, OWNER) ?? '', /more than 16384 bytes/)
})

test('property: an accepted text contains only entries of the operator', () => {
  const part = fc.constantFrom(
    ENTRY,
    entryText([['df']]),
    entryText([['df']], { agent_id: MALLORY }),
    '[exec]\n',
    'enabled = true\n',
    '"""\n',
    "'''\n",
    '[[exec.allow]]\n',
    '[[exec]]\n',
    'x = 1\n',
    '# c\r\n',
  )
  fc.assert(
    fc.property(fc.array(part, { maxLength: 6 }), (parts) => {
      let owned: string
      try {
        owned = ownedEntries(parts.join(''), OWNER, 'web.toml')
      } catch (error) {
        assert.ok(isAppError(error, 'bad_acl'))
        return
      }
      assert.equal(ownedEntriesProblem(owned, OWNER), null)
    }),
  )
})

test('entries are added only once, and an edited file is detected', () => {
  const [initial, entries] = [aclText([]), ownedEntries(ENTRY, OWNER, 'web.toml')]
  const once = withEntries(initial, entries)
  assert.equal(withEntries(once, entries), once)
  assert.ok(isUntouched(initial, initial, entries) && isUntouched(once, initial, entries))
  assert.ok(!isUntouched(`${initial}# mine\n`, initial, entries))
  assert.equal(aclOf(once).allow.length, 1)
})

const loaded = (text: string): LoadedAcl => ({
  acl: aclOf(text),
  status: 'enabled',
  loaded_from: 'acl.toml',
  sha256: null,
  bytes: null,
  loaded_at: '',
  warnings: [],
  signature: null,
})

test('an enrolment extends the active ACL only for the operator', () => {
  const other = entryText([['df']], { agent_id: MALLORY })
  const mine = entryText([['uname']])
  const extended = (before: string, after: string): boolean => new AclInForce(loaded(before)).extend(loaded(after), OWNER)
  assert.ok(extended(aclText([]), aclText([mine])))
  assert.ok(extended(aclText([other]), aclText([other, mine])))
  assert.ok(extended(aclText([mine]), aclText([mine])))
  const wider: readonly (readonly [string, string])[] = [
    [aclText([]), aclText([other])],
    [aclText([]), aclText([mine, other])],
    [aclText([other]), aclText([mine])],
    [aclText([]), aclText([entryText([['uname']], { machine_id: ELSEWHERE })])],
    [aclText([]), aclText([mine], 'max_concurrent_total = 999\n')],
    [aclText([]), aclText([mine], 'max_concurrent_total = 1\n')],
    [aclText([]), aclText([mine], 'default_cwd = "/tmp"\n')],
    [aclText([]).replace('enabled = true', 'enabled = false'), aclText([mine])],
    [aclText([]), aclText([mine]).replace('exec.log', 'other.log')],
  ]
  for (const [before, after] of wider) assert.ok(!extended(before, after), after)
})
