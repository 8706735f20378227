import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { systemClock, type Clock } from '../../../src/base/clock.ts'
import { TimeSlicer } from '../../../src/base/time-slices.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import type { Acl } from '../../../src/policy/mesh/acl.ts'
import { authorize } from '../../../src/policy/mesh/authorize.ts'
import { RuleBook, type TellableRules } from '../../../src/policy/mesh/tellable-rules.ts'
import { Slots } from '../../../src/policy/slots.ts'
import { matchesToken, parseToken } from '../../../src/protocol/argv-template.ts'
import { execDetachRules } from '../../../src/protocol/wire/exec.ts'
import { MAX_DESCRIPTION_BYTES, MAX_FRAME_DATA, MAX_RULES } from '../../../src/protocol/limits/wire.ts'
import { aclOf, aclText, alice, asking, ELSEWHERE, entryText, filesText, MALLORY, readText } from '../../support/acl-text.ts'

/** A discoverable entry of ALICE on LAPTOP. */
const told = (commands: readonly (readonly string[])[], keys: Record<string, string | number> = {}): string =>
  entryText(commands, keys).replace('[[exec.allow]]\n', '[[exec.allow]]\ndiscoverable = true\n')

const bookOf = (acl: Acl, clock: Pick<Clock, 'monotonic'> = systemClock): RuleBook =>
  new RuleBook({ policy: { acl }, time: new TimeSlicer({ clock }).share(new AbortController().signal) })

const rulesOf = async (acl: Acl, principal = alice): Promise<TellableRules> => {
  const rules = await bookOf(acl).rulesOf(principal)
  assert.ok('rules' in rules, JSON.stringify(rules))
  return rules
}

const argvs = ({ rules }: TellableRules): (readonly string[])[] => rules.map(({ argv }) => argv)

test('the answer lists only discoverable entries, with templates, description and limits in force', async () => {
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
  const caps = {
    timeout_ms: 10_000,
    max_stdout_bytes: 1000,
    max_stderr_bytes: 16_777_216,
    max_stdin_bytes: 7,
    detach: null,
    terminal: false,
    record: false,
    watch: false,
  }
  const description = 'Health. Reads only.'
  assert.deepEqual(await rulesOf(aclOf(text)), {
    rules: [
      { description, argv: ['uptime'], ...caps },
      { description, argv: ['journalctl', '-n', '<INT>'], ...caps },
      { description: null, argv: ['curl', '-q', 'http://127.0.0.1<URL_PATH>'], ...caps, timeout_ms: 300_000, max_stdin_bytes: 0 },
    ],
    left_out: 0,
  })
})

test('the answer lists only commands that a request can reach and that can run', async () => {
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
  assert.deepEqual(argvs(await rulesOf(acl)), [['echo', '7'], ['echo', 'x'], ['ls']])
})

test('a template that overlaps an earlier, narrower command is listed with the lower limits of both', async () => {
  const wide = told([['sleep', '<INT>'], ['sleep', 'x<URL_PATH>'], ['sleep']], { max_stdout_bytes: 50, max_stdin_bytes: 5 })
  const capsTold = async (...narrow: string[]): Promise<unknown[]> =>
    (await rulesOf(aclOf(aclText([...narrow, wide])))).rules
      .slice(-3)
      .map((rule) => [rule.timeout_ms, rule.max_stdout_bytes, rule.max_stdin_bytes])
  const own = [300_000, 50, 5]
  const least = [1_000, 50, 5]
  const short = { max_duration_secs: 1, max_stdout_bytes: 100 }
  assert.deepEqual(await capsTold(), [own, own, own])
  assert.deepEqual(await capsTold(told([['sleep', '5']], short)), [least, own, own])
  assert.deepEqual(await capsTold(entryText([['sleep', '5']], short)), [least, own, own])
  assert.deepEqual(await capsTold(entryText([['sleep', 'x/y<URL_PATH>']], short)), [own, least, own])
  for (const other of [
    ['sleep', '0'],
    ['sleep', '5', '6'],
    ['sleep', '/5'],
    ['sleep', 'x'],
    ['sleep', 'x/..<URL_PATH>'],
    ['sheep', '5'],
  ])
    assert.deepEqual(await capsTold(entryText([other], short)), [own, own, own], other.join(' '))
  assert.deepEqual(await capsTold(entryText([['sleep', '5']], { max_stdin_bytes: 3 }), `${entryText([['sleep', '6']])}stdin = false\n`), [
    [300_000, 50, 0],
    own,
    own,
  ])
  const later = aclOf(aclText([wide, told([['sleep', '5']], short)]))
  assert.equal((await rulesOf(later)).rules[0]?.timeout_ms, 300_000)
})

test('a long file is read in slices between other work, and once for simultaneous requests', async () => {
  let now = 0
  const book = bookOf(aclOf(aclText([told(Array.from({ length: 200 }, (_, at) => ['echo', `n${at}`, '<INT>']))])), {
    monotonic: () => now++,
  })
  let rounds = 0
  let over = false
  const round = (): void => {
    rounds += 1
    if (!over) setImmediate(round)
  }
  round()
  const asked = [book.rulesOf(alice), book.rulesOf(alice)]
  assert.equal(asked[0], asked[1])
  const rules = await asked[0]!
  over = true
  assert.ok('rules' in rules && rules.rules.length === 200)
  assert.ok(rounds > 15, `${rounds}`)
})

test('the answer is equally empty for an unlisted pair, an entry that is not discoverable, and disabled exec', async () => {
  const empty = { rules: [], left_out: 0 }
  const acl = aclOf(aclText([told([['uptime']])]))
  assert.deepEqual(await rulesOf(acl, { ...alice, agent_id: MALLORY }), empty)
  assert.deepEqual(await rulesOf(acl, { ...alice, machine_id: ELSEWHERE }), empty)
  assert.deepEqual(await rulesOf(aclOf(aclText([entryText([['uptime']])]))), empty)
  assert.deepEqual(await rulesOf(aclOf(aclText([told([['uptime']])]).replace('enabled = true', 'enabled = false'))), empty)
})

test('a requester on another machine of a listed agent gets an empty answer', async () => {
  const book = bookOf(aclOf(aclText([told([['uptime']])])))
  const listed = async (machine_id: string): Promise<number> => {
    const rules = await book.rulesOf({ ...alice, machine_id })
    return 'rules' in rules ? rules.rules.length : -1
  }
  assert.deepEqual([await listed(alice.machine_id), await listed(ELSEWHERE), await listed(alice.machine_id)], [1, 0, 1])
})

test('an unverified or untrusted sender is denied, with any ACL', () => {
  for (const acl of [aclOf(aclText([told([['uptime']])])), aclOf(aclText([]).replace('enabled = true', 'enabled = false'))])
    for (const [principal, reason] of [
      [{ ...alice, verified: false }, 'unverified_sender'],
      [{ ...alice, trust: 'known' as never }, 'trust_rejected'],
      [{ ...alice, trust: 'reject_blocked' as const }, 'trust_rejected'],
      [{ ...alice, trust: 'accept_with_flag' as const }, 'trust_rejected'],
    ] as const) {
      const answer = bookOf(acl).rulesOf(principal)
      assert.equal('reason' in answer && answer.reason, reason)
    }
})

test('rules that exceed the size of an answer are left out and counted, and the rest fits a frame', async () => {
  const many = Array.from({ length: 300 }, (_, at) => ['echo', `n${at}`])
  const first = await rulesOf(aclOf(aclText([told(many)])))
  assert.deepEqual([first.rules.length, first.left_out], [MAX_RULES, 44])
  const described = { description: 'd'.repeat(MAX_DESCRIPTION_BYTES) }
  const long = await rulesOf(aclOf(aclText([told([['echo', 'y'.repeat(40_000)], ...many, ['ls']], described)])))
  assert.equal(long.rules.length + long.left_out, 302)
  assert.ok(long.rules.length > 70 && long.left_out > 100)
  const wide = await rulesOf(
    aclOf(aclText([told(Array.from({ length: 8 }, (_, at) => [`p${at}`, ...Array.from({ length: 900 }, () => '')]))])),
  )
  assert.deepEqual([wide.rules.length, wide.left_out], [4, 4])
  for (const { rules, left_out } of [first, long, wide]) {
    const ids = { from_agent: MALLORY, from_machine: MALLORY, to_agent: MALLORY, to_machine: MALLORY }
    const body = execDetachRules.encode({
      version: 1,
      request_id: '0192d3a0-0000-7000-8000-000000000001',
      ...ids,
      request_sha256: new Uint8Array(32),
      rules: [...rules],
      left_out,
    })
    assert.ok(body.length < MAX_FRAME_DATA)
    assert.equal(execDetachRules.decode(body).rules.length, rules.length)
  }
})

const tokens = fc.constantFrom('a', '7', '/x', '<INT>', '<URL_PATH>', 'p<URL_PATH>', 'p/x', 'a;b')
const capped = fc.record({
  commands: fc.array(fc.tuple(fc.constant('echo'), tokens, tokens), { minLength: 1, maxLength: 4 }),
  stdin: fc.boolean(),
  discoverable: fc.boolean(),
  detach: fc.option(
    fc.record({ max_detach_secs: fc.integer({ min: 1, max: 5 }), max_detach_output_bytes: fc.integer({ min: 1, max: 5 }) }),
  ),
  keys: fc.record({
    max_duration_secs: fc.integer({ min: 1, max: 5 }),
    max_stdout_bytes: fc.integer({ min: 1, max: 5 }),
    max_stderr_bytes: fc.integer({ min: 1, max: 5 }),
    max_stdin_bytes: fc.integer({ min: 0, max: 5 }),
  }),
})
/** Words that match several of the tokens above. */
const words = fc.constantFrom('a', '7', '8', '/x', '/y', 'p/x', 'p/x/x', 'p/y')

test('property: each request that matches a listed rule is permitted with at least the listed limits', async () => {
  const env = scrubbedEnvironment('/home/x0x')
  let fitting = 0
  let elsewhere = 0
  let detachable = 0
  await fc.assert(
    fc.asyncProperty(
      fc.array(capped, { minLength: 2, maxLength: 5 }),
      fc.array(fc.tuple(words, words), { minLength: 30, maxLength: 60 }),
      async (all, asked) => {
        const text = all.map(({ commands: some, keys, discoverable, detach, stdin }) => {
          const entry = (discoverable ? told : entryText)(some, { ...keys, ...detach }).replace(
            '\nmax_detach',
            '\ndetach = true\nmax_detach',
          )
          return stdin ? entry : entry.replaceAll(/^argv.*$/gm, '$&\nstdin = false')
        })
        const acl = aclOf(aclText(text))
        for (const rule of (await rulesOf(acl)).rules)
          for (const argv of asked.map((rest) => [rule.argv[0]!, ...rest])) {
            if (!rule.argv.every((token, at) => fits(token, argv[at]!))) continue
            fitting += 1
            const { timeout_ms, max_stdin_bytes, max_stdout_bytes, max_stderr_bytes } = rule
            const intent = asking(argv, { timeout_ms, stdin_len: max_stdin_bytes > 0 ? max_stdin_bytes : null })
            const verdict = authorize(intent, alice, { acl, slots: new Slots(acl.caps), env })
            assert.ok(verdict.kind === 'permit', verdict.kind === 'denied' ? verdict.detail : '')
            const { caps } = verdict.permit
            assert.equal(caps.timeout_ms, timeout_ms)
            assert.ok(caps.max_duration_ms >= timeout_ms)
            assert.ok(caps.max_stdout_bytes >= max_stdout_bytes)
            assert.ok(caps.max_stderr_bytes >= max_stderr_bytes)
            assert.ok(caps.max_stdin_bytes >= max_stdin_bytes)
            if (verdict.place.command.argv.join(' ') !== rule.argv.join(' ')) elsewhere += 1
            if (rule.detach === null) continue
            const left = authorize(asking(argv, { detach: rule.detach }), alice, { acl, slots: new Slots(acl.caps), env })
            assert.ok(left.kind === 'permit', left.kind === 'denied' ? left.detail : '')
            assert.equal(left.permit.caps.timeout_ms, rule.detach.lifetime_ms)
            detachable += 1
          }
      },
    ),
    { seed: 20_261_124, numRuns: 150 },
  )
  assert.ok(fitting > 150, `${fitting}`)
  assert.ok(elsewhere > 15, `${elsewhere}`)
  assert.ok(detachable > 15, `${detachable}`)
})

const fits = (pattern: string, text: string): boolean => {
  const token = parseToken(pattern)
  return typeof token !== 'string' && matchesToken(token, text)
}

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

/** The discoverable entry of `told`, with files tables. */
const toldFiles = (tables: string, commands: readonly (readonly string[])[] = []): string => told(commands) + tables

test('files are listed as rules of their roots, after the commands of the entry', async () => {
  const both = filesText('/srv/app', { write: true, max_file_bytes: 5 })
  const { rules, left_out } = await rulesOf(
    aclOf(aclText([toldFiles(both, [['uptime']]), entryText([]) + filesText('/secret'), toldFiles(filesText('/'))])),
  )
  assert.equal(left_out, 0)
  assert.deepEqual(
    rules.map(({ argv }) => argv),
    [['uptime'], ['@read', '/srv/app/'], ['@write', '/srv/app/'], ['@read', '/']],
  )
  const chunk = 64 * 1024 * 1024
  const caps = {
    description: 'alice on her laptop',
    timeout_ms: 300_000,
    max_stdout_bytes: chunk,
    max_stderr_bytes: 16_384,
    detach: null,
    terminal: false,
    record: false,
    watch: false,
  }
  assert.deepEqual(rules[1], { argv: ['@read', '/srv/app/'], ...caps, max_stdin_bytes: 0 })
  assert.deepEqual(rules[2], { argv: ['@write', '/srv/app/'], ...caps, max_stdin_bytes: chunk })
})

test('a root below an earlier one is not listed, and the shortest time of the tables below a root is', async () => {
  assert.deepEqual(
    argvs(await rulesOf(aclOf(aclText([entryText([]) + filesText('/srv'), toldFiles(filesText('/srv/app', { write: true }))])))),
    [['@write', '/srv/app/']],
  )
  const short = entryText([], { max_duration_secs: 7 }) + filesText('/srv/app')
  const { rules } = await rulesOf(aclOf(aclText([short, toldFiles(filesText('/srv', { write: true }) + filesText('/application'))])))
  assert.deepEqual(
    rules.map(({ argv, timeout_ms }) => [argv.join(' '), timeout_ms]),
    [
      ['@read /srv/', 7_000],
      ['@read /application/', 300_000],
      ['@write /srv/', 300_000],
    ],
  )
})

test('a root that looks like a template or contains a metacharacter is left out and counted', async () => {
  for (const root of ['/srv/<INT>', '/srv/a;b', '/srv/<URL_PATH>', '/srv/$HOME']) {
    const answer = await rulesOf(aclOf(aclText([toldFiles(filesText(root) + filesText('/a'))])))
    assert.deepEqual([argvs(answer), answer.left_out], [[['@read', '/a/']], 1], root)
  }
})
