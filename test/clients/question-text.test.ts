import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isVisible } from '../../src/base/visible-text.ts'
import { countdown, questionLines } from '../../src/clients/approval-text.ts'
import { MAX_SHOWN_QUESTION, MAX_SHOWN_STDIN } from '../../src/protocol/limits/approvals.ts'
import { shownVariables, unallowable } from '../../src/protocol/desk/approval-request-size.ts'
import { OUTLIVES_REQUESTER, type RequestedFile } from '../../src/protocol/desk/approval-request.ts'
import { questionOf } from '../support/approval-request.ts'

const textOf = (...of: Parameters<typeof questionLines>): string => questionLines(...of).join('\n')

test('an approval request shows the requester, its proof, the target, all tokens and the settings of the run', () => {
  assert.deepEqual(questionLines(questionOf({ env_names: ['CI', 'TOKEN'], session_id: 's1' }), 120), [
    'asked by    "reviewer" through mcp, session "s1" (an unverified label)',
    'runs on     this host (gateway)',
    'executable  "/usr/bin/git"',
    '         0  "git"',
    '         1  "push"',
    '         2  "origin"',
    'directory   "/srv/app"',
    'variables   "CI" "TOKEN"',
    'stdin       none',
    'timeout     30 s',
    'mode        security allowlist, ask on-miss, no approver connected: deny',
    'reason      no pattern of the allowlist fits it',
    `permit      sha256 ${'a'.repeat(64)}`,
  ])
})

test('an approval request shows optional facts: script, programs, warnings, always_ask and approvers', () => {
  const text = textOf(
    questionOf({
      argv: ['sh', 'deploy.sh'],
      executable: '/usr/bin/dash',
      programs: ['/usr/bin/dash', '/srv/app/deploy.sh'],
      opaque: 'a shell runs what the script says',
      script: { path: '/srv/app/deploy.sh', sha256: 'c'.repeat(64) },
      stdin: 'open',
      always_ask: 'publishes',
      approvers: { agent_ids: ['d'.repeat(64), 'e'.repeat(64)], needed: 2 },
      asker: { kind: 'mesh', agent_id: '1'.repeat(64), machine_id: '2'.repeat(64), name: 'alice' },
      door: 'mesh',
      outlives: true,
    }),
    400,
  )
  for (const line of [
    `asked by    "alice", agent ${'1'.repeat(64)} on machine ${'2'.repeat(64)}: proven by its signature and its connection`,
    'starts      "/srv/app/deploy.sh"',
    'beware      a shell runs what the script says',
    `script      "/srv/app/deploy.sh" sha256 ${'c'.repeat(64)}`,
    'stdin       open: it can receive more, which is not shown',
    `outlives    ${OUTLIVES_REQUESTER}`,
    'always asks publishes',
    `also needs  2 of ${'d'.repeat(64)}, ${'e'.repeat(64)}`,
  ])
    assert.ok(text.split('\n').includes(line), line)
})

test('no text in an approval request can add a line, move the cursor or hide a part of itself', () => {
  const hostile = '"\n         1  "true\u001b[2K\u001b[1A\u202etxt\u2066\u200b\u00a0\u2800\u{e0041}\r'
  const question = questionOf({
    argv: ['sh', hostile],
    cwd: `/${hostile}`,
    executable: `/${hostile}`,
    env_names: [hostile],
    session_id: hostile,
    asker: { kind: 'local', label: hostile },
    script: { path: `/${hostile}`, sha256: 'c'.repeat(64) },
    why: hostile,
    always_ask: hostile,
    opaque: hostile,
    programs: [`/${hostile}`, '/usr/bin/env'],
  })
  const lines = questionLines(question, 4_000)
  for (const line of lines) assert.ok(isVisible(line), line)
  assert.equal(lines.filter((line) => /^ {9}[0-9] {2}"/.test(line)).length, question.argv.length)
  assert.ok(
    lines.includes(
      `         1  "\\"\\n \\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x201 \\x20\\"true\\x1b[2K\\x1b[1A\\u202etxt\\u2066\\u200b\\xa0\\u2800\\u{e0041}\\r"`,
    ),
  )
})

test('a long token wraps at the width of the terminal with marked continuation lines, and stays complete', () => {
  const token = Array.from({ length: 500 }, (_one, at) => String(at)).join(',')
  for (const columns of [20, 80, 200, 4_000]) {
    const lines = questionLines(questionOf({ argv: ['echo', token] }), columns)
    const from = lines.findIndex((line) => line.startsWith('         1  '))
    let whole = lines[from]!.slice(12)
    for (let at = from + 1; lines[at]!.startsWith(`${' '.repeat(12)}| `); at++) whole += lines[at]!.slice(14)
    assert.equal(whole, `"${token}"`)
    if (columns >= 80) assert.ok(lines.every((line) => line.length < columns))
  }
})

test('letters of other scripts are listed next to their token', () => {
  assert.ok(
    questionLines(questionOf({ argv: ['cat', '/etc/p\u0430sswd'] })).includes(
      `${' '.repeat(12)}not ASCII, and may look like others: U+0430`,
    ),
  )
  assert.ok(!textOf(questionOf()).includes('not ASCII'))
})

test('an approval request that is too long to read cannot be allowed, whichever part is long', () => {
  assert.equal(unallowable(questionOf()), null)
  assert.equal(unallowable(questionOf({ argv: ['x', 'a'.repeat(MAX_SHOWN_QUESTION / 2)] })), null)
  assert.match(unallowable(questionOf({ argv: ['x', 'a'.repeat(MAX_SHOWN_QUESTION)] })) ?? '', /too long/)
  assert.match(unallowable(questionOf({ argv: ['x', '\u200b'.repeat(MAX_SHOWN_QUESTION / 5)] })) ?? '', /too long/)
  assert.match(unallowable(questionOf({ argv: Array.from({ length: MAX_SHOWN_QUESTION / 3 }, () => '') })) ?? '', /too long/)
  assert.match(unallowable(questionOf({ env_names: ['a'.repeat(MAX_SHOWN_QUESTION)] })) ?? '', /too long/)
})

test('an approval request with open, long or binary stdin, or with long variables, cannot be allowed', () => {
  const sha256 = 'e'.repeat(64)
  const problemOf = (fields: Parameters<typeof questionOf>[0]): string => unallowable(questionOf(fields)) ?? 'none'
  assert.match(problemOf({ stdin: 'open' }), /stays open/)
  assert.match(problemOf({ stdin: { bytes: MAX_SHOWN_STDIN + 1, sha256, text: null } }), /an approver sees at most 32 KiB/)
  assert.match(problemOf({ stdin: { bytes: 1, sha256, text: null } }), /not readable text/)
  assert.equal(problemOf({ stdin: { bytes: 1, sha256, text: 'x' } }), 'none')
  const valuesOf = (...lengths: number[]) => shownVariables(lengths.map((length) => ({ name: 'A', value: 'x'.repeat(length - 1) })))
  assert.equal(valuesOf(MAX_SHOWN_QUESTION)[0]?.value?.length, MAX_SHOWN_QUESTION - 1)
  assert.equal(valuesOf(MAX_SHOWN_QUESTION + 1)[0]?.value, null)
  assert.match(problemOf({ variables: valuesOf(1, MAX_SHOWN_QUESTION) }), /the values of its variables are too long to show/)
  assert.equal(problemOf({ variables: valuesOf(1, 2) }), 'none')
})

test('a countdown shows whole seconds, and never less than zero', () => {
  assert.equal(countdown(10_000, 8_999), '2 s')
  assert.equal(countdown(10_000, 11_000), '0 s')
})

test('a requester that only another host names is shown as a statement of that host', () => {
  const [host, named] = ['e'.repeat(64), '1'.repeat(64)]
  const asker = { kind: 'mesh', agent_id: named, machine_id: '2'.repeat(64), name: null } as const
  const text = questionLines(questionOf({ door: 'mesh', asker, target: { host: 'node', agent_id: host } }), 400).join('\n')
  const who = `asked by    agent ${named} on machine ${'2'.repeat(64)}: so says the host that asks, ${host}; that one is proven by its signature and its connection`
  assert.ok(text.split('\n').includes(who), text)
})

const FILE = {
  action: 'write',
  path: '/srv/app/app.tar',
  leads_to: null,
  size: 1_258_291,
  sha256: 'c'.repeat(64),
  present: { size: 900, mtime: '2026-01-01T00:00:00.000000000Z' },
  creates: [],
  mode: null,
  owner: null,
} as const

test('a file command is one sentence, and file names cannot control the terminal or imitate a fact', () => {
  const lines = (file: Partial<RequestedFile>): string[] =>
    questionLines(questionOf({ argv: ['@write'], file: { ...FILE, ...file } }), 1_000)
  const wants = (file: Partial<RequestedFile>): string => lines(file).find((line) => line.startsWith('wants to')) ?? ''
  assert.equal(
    wants({}),
    `wants to    write "/srv/app/app.tar" (1.2 MiB, 1258291 bytes, SHA-256 ${'c'.repeat(64)}), which replaces the present file (900 bytes, changed 2026-01-01T00:00:00.000000000Z) and keeps its owner and mode`,
  )
  assert.match(
    wants({ present: null, mode: '0644', creates: ['/srv/a'] }),
    /, a new file with mode 0644, owned by the user of x0xd, and create "\/srv\/a"$/,
  )
  assert.match(wants({ action: 'read', sha256: null }), /^wants to {4}read "\/srv\/app\/app\.tar" \(900 bytes, changed /)
  assert.match(
    wants({ action: 'append', size: 5, sha256: null }),
    /append to "\/srv\/app\/app\.tar" \(5 bytes\), which has 900 bytes, changed /,
  )
  assert.match(
    wants({ action: 'mkdir', present: null, mode: '0755', owner: 'app' }),
    /create the directory .* with mode 0755, owned by "app"/,
  )
  assert.match(wants({ leads_to: '/srv/other' }), /, which leads to "\/srv\/other",/)
  const evil = '/srv/a\u001b[2J"\nmode        security full\u202e'
  for (const file of [{ path: evil }, { leads_to: evil }, { creates: [evil] }]) {
    const shown = lines(file)
    assert.ok(shown.every(isVisible))
    assert.deepEqual(
      shown.filter((line) => line.startsWith('mode')),
      ['mode        security allowlist, ask on-miss, no approver connected: deny'],
    )
  }
  assert.ok(lines({ path: '/srv/\u0430' }).some((line) => line.includes('not ASCII, and may look like others: U+0430')))
  assert.equal(unallowable(questionOf({ file: { ...FILE, path: `/${'\u001b'.repeat(MAX_SHOWN_QUESTION)}` } })) === null, false)
})
