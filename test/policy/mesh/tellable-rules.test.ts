import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import type { Acl } from '../../../src/policy/mesh/acl.ts'
import { searchCommands } from '../../../src/policy/mesh/match.ts'
import { RuleBook, type TellableRules } from '../../../src/policy/mesh/tellable-rules.ts'
import { execRules } from '../../../src/protocol/exec.ts'
import { MAX_DESCRIPTION_BYTES, MAX_FRAME_DATA, MAX_RULES } from '../../../src/protocol/limits.ts'
import { aclOf, aclText, alice, ELSEWHERE, entryText, MALLORY, readText } from '../../support/acl-text.ts'

/** One discoverable entry of ALICE on LAPTOP. */
const told = (commands: readonly (readonly string[])[], keys: Record<string, string | number> = {}): string =>
  entryText(commands, keys).replace('[[exec.allow]]\n', '[[exec.allow]]\ndiscoverable = true\n')

const rulesOf = (acl: Acl, principal = alice): TellableRules => {
  const rules = new RuleBook(acl).rulesOf(principal)
  assert.ok('rules' in rules, JSON.stringify(rules))
  return rules
}

const argvs = ({ rules }: TellableRules): (readonly string[])[] => rules.map(({ argv }) => argv)

test('an entry is told with its templates, its description and the caps that count, and no other entry is', () => {
  const text = aclText(
    [
      entryText([['secret', 'one']]),
      told([['uptime'], ['journalctl', '-n', '<INT>']], { description: 'Health. Reads only.', max_duration_secs: 10, max_stdin_bytes: 7 }),
      entryText([['secret', 'two']]),
      told([['curl', '-q', 'http://127.0.0.1<URL_PATH>']])
        .replace('description = "alice on her laptop"\n', '')
        .replace(/$/, 'stdin = false\n'),
    ],
    'max_stdout_bytes = 1000\n',
  )
  const caps = { timeout_ms: 10_000, max_stdout_bytes: 1000, max_stderr_bytes: 16_777_216, max_stdin_bytes: 7 }
  const description = 'Health. Reads only.'
  assert.deepEqual(rulesOf(aclOf(text)), {
    rules: [
      { description, argv: ['uptime'], ...caps },
      { description, argv: ['journalctl', '-n', '<INT>'], ...caps },
      { description: null, argv: ['curl', '-q', 'http://127.0.0.1<URL_PATH>'], ...caps, timeout_ms: 300_000, max_stdin_bytes: 0 },
    ],
    left_out: 0,
  })
})

test('only the commands that a request comes to are told: none behind a wider one, told of or not, and none that can never run', () => {
  const wide = entryText([['echo', '<INT>']])
  const acl = aclOf(
    aclText([
      told([
        ['echo', '7'],
        ['echo', 'a;b'],
      ]),
      wide,
      told([['echo', '8'], ['echo', 'x'], ['echo', '7'], ['ls']]),
    ]),
  )
  assert.deepEqual(argvs(rulesOf(acl)), [['echo', '7'], ['echo', 'x'], ['ls']])
})

test('nothing to tell looks the same for a pair that is not listed, an entry that is not discoverable, and exec that is off', () => {
  const empty = { rules: [], left_out: 0 }
  const acl = aclOf(aclText([told([['uptime']])]))
  assert.deepEqual(rulesOf(acl, { ...alice, agent_id: MALLORY }), empty)
  assert.deepEqual(rulesOf(acl, { ...alice, machine_id: ELSEWHERE }), empty)
  assert.deepEqual(rulesOf(aclOf(aclText([entryText([['uptime']])]))), empty)
  assert.deepEqual(rulesOf(aclOf(aclText([told([['uptime']])]).replace('enabled = true', 'enabled = false'))), empty)
})

test('a sender that is not verified or not trusted is denied alike, whatever the file says', () => {
  for (const acl of [aclOf(aclText([told([['uptime']])])), aclOf(aclText([]).replace('enabled = true', 'enabled = false'))])
    for (const [principal, reason] of [
      [{ ...alice, verified: false }, 'unverified_sender'],
      [{ ...alice, trust: 'known' as never }, 'trust_rejected'],
      [{ ...alice, trust: 'reject_blocked' as const }, 'trust_rejected'],
      [{ ...alice, trust: 'accept_with_flag' as const }, 'trust_rejected'],
    ] as const) {
      const answer = new RuleBook(acl).rulesOf(principal)
      assert.equal('reason' in answer && answer.reason, reason)
    }
})

test('what does not fit one answer is left out and counted, and what is left fits a frame', () => {
  const many = Array.from({ length: 300 }, (_, at) => ['echo', `n${at}`])
  const first = rulesOf(aclOf(aclText([told(many)])))
  assert.deepEqual([first.rules.length, first.left_out], [MAX_RULES, 44])
  const described = { description: 'd'.repeat(MAX_DESCRIPTION_BYTES) }
  const long = rulesOf(aclOf(aclText([told([['echo', 'y'.repeat(40_000)], ...many, ['ls']], described)])))
  assert.equal(long.rules.length + long.left_out, 302)
  assert.ok(long.rules.length > 70 && long.left_out > 100)
  const wide = rulesOf(aclOf(aclText([told(Array.from({ length: 8 }, (_, at) => [`p${at}`, ...Array.from({ length: 900 }, () => '')]))])))
  assert.deepEqual([wide.rules.length, wide.left_out], [3, 5])
  for (const { rules, left_out } of [first, long, wide]) {
    const ids = { from_agent: MALLORY, from_machine: MALLORY, to_agent: MALLORY, to_machine: MALLORY }
    const body = execRules.encode({
      version: 1,
      request_id: '0192d3a0-0000-7000-8000-000000000001',
      ...ids,
      request_sha256: new Uint8Array(32),
      rules: [...rules],
      left_out,
    })
    assert.ok(body.length < MAX_FRAME_DATA)
    assert.equal(execRules.decode(body).rules.length, rules.length)
  }
})

const tokens = fc.constantFrom('a', '7', '/x', '<INT>', '<URL_PATH>', 'p<URL_PATH>', 'p/x', 'a;b')
const commands = fc.array(fc.tuple(fc.constantFrom('one', 'two'), tokens, tokens), { minLength: 1, maxLength: 6 })
const entries = fc.array(fc.record({ commands, discoverable: fc.boolean() }), { minLength: 1, maxLength: 4 })

/** What stands in a slot for the narrowest request that fits it and few others. */
const filled = (argv: readonly string[]): string[] => argv.map((token) => token.replace('<INT>', '414243').replace('<URL_PATH>', '/q.w'))

test('every rule that is told is the one that decides a request for it, in the order of the file', () => {
  fc.assert(
    fc.property(entries, (all) => {
      const acl = aclOf(aclText(all.map((entry) => (entry.discoverable ? told : entryText)(entry.commands))))
      const { rules } = rulesOf(acl)
      const order = acl.allow.flatMap((entry) => entry.commands.map((command) => ({ entry, command })))
      const places = rules.map(({ argv }) => {
        const { match } = searchCommands(acl.allow, filled(argv))
        assert.ok(match)
        assert.deepEqual([match.command.argv, match.entry.discoverable], [argv, true])
        return order.findIndex(({ command }) => command === match.command)
      })
      assert.deepEqual(
        places,
        [...new Set(places)].toSorted((a, b) => a - b),
      )
    }),
    { seed: 20_261_123, numRuns: 500 },
  )
})

test('discoverable and description are read strictly, with file, line and key', () => {
  const problemsOf = (line: string): string[] =>
    readText(
      aclText([
        entryText([['uptime']])
          .replace('[[exec.allow]]\n', `[[exec.allow]]\n${line}\n`)
          .replace(/description = "alice.*\n/, ''),
      ]),
    ).problems
  assert.deepEqual(problemsOf('discoverable = true\ndescription = "é"'), [])
  assert.match(
    problemsOf('discoverable = "yes"').join(),
    /^acl\.toml:\d+: exec\.allow\[0\]\.discoverable: must be true or false, not "yes"$/,
  )
  assert.match(problemsOf('discoverable = 1').join(), /discoverable: must be true or false/)
  assert.match(
    problemsOf(`description = "${'é'.repeat(257)}"`).join(),
    /^acl\.toml:\d+: exec\.allow\[0\]\.description: has 514 bytes; .*at most 512$/,
  )
  assert.deepEqual(problemsOf(`description = "${'é'.repeat(256)}"`), [])
  for (const text of ['a\\u001bb', 'a\\nb', 'a\\u202eb', 'a\\u200bb'])
    assert.match(problemsOf(`description = "${text}"`).join(), /contains a control or invisible character/)
  assert.match(problemsOf('description = ""').join(), /is empty/)
})
