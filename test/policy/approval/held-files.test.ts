import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmod, link, mkdir, rename, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { ANSWER_FRESH_MS, openApproval, sealAnswer, SpentAnswers } from '../../../src/policy/approval/approval.ts'
import type { Approval, ApprovalRequest } from '../../../src/policy/approval/approval.ts'
import { MAX_HASHED_BYTES } from '../../../src/policy/file-mark.ts'
import { authorizeLocalRun } from '../../../src/policy/local/authorize.ts'
import type { ExecInForce } from '../../../src/policy/local/local-asking.ts'
import type { StandIn } from '../../../src/policy/permit.ts'
import { sandboxGrant } from '../../../src/policy/sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../../../src/policy/sandbox/sandbox-settings.ts'
import { unallowable } from '../../../src/protocol/desk/approval-request-size.ts'
import { ASKING, policyOf, rightsOf, slotsOf } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

// Copies and links that replace files which the requester can write. `work` is a root of the requester. `away` is not.

const KEY = Buffer.alloc(32, 1)

const FORCE: ExecInForce = {
  host: 'gateway',
  security: 'allowlist',
  ask: 'on-miss',
  ask_fallback: 'deny',
  door: 'mcp',
  label: 'coder',
  stdin: null,
  always_ask: [],
}

const approvalOf = ({ permit_sha256 }: ApprovalRequest, by: string): Approval => {
  const answer = { question_id: 'q_1', permit_sha256, by, reason: '', nonce: 'n', expires_at_ms: ANSWER_FRESH_MS }
  const opened = openApproval(sealAnswer({ ...answer, decision: 'allow' }, KEY), answer, { key: KEY, now: 1, spent: new SpentAnswers() })
  assert.ok(opened.kind === 'approval')
  return opened.approval
}

const program = async (path: string, text: string): Promise<string> => {
  await writeFile(path, text)
  await chmod(path, 0o755)
  return path
}

const setUp = async (t: TestContext, security = 'allow_write = true') => {
  const dir = await tempDir(t)
  const [work, away] = [join(dir, 'work'), join(dir, 'away')]
  await Promise.all([mkdir(work), mkdir(away)])
  const policy = { ...policyOf([work], { security }), allow_env: null, env: { PATH: `/usr/bin:/bin:${away}` } }
  const rights = rightsOf(policy)
  const slots = slotsOf(rights.limits)
  const run = (argv: readonly string[], approval: Approval | null, host: 'gateway' | 'sandbox' = 'gateway') => {
    const grant = host === 'sandbox' ? sandboxGrant(DEFAULT_SANDBOX, work) : null
    return authorizeLocalRun(
      { ...ASKING, argv },
      { path: work, descriptor: null },
      {
        policy,
        rights,
        slots,
        session_id: 's_1',
        exec: { ...FORCE, host, ask: 'always' },
        sandbox: grant?.kind === 'grant' ? grant.grant : null,
      },
      approval,
    )
  }
  const ask = (argv: readonly string[]): ApprovalRequest => {
    const verdict = run(argv, null)
    assert.ok(verdict.kind === 'ask', verdict.kind === 'refused' ? verdict.message : verdict.kind)
    return verdict.question
  }
  const standIn = (argv: readonly string[], by = 'human:ann'): StandIn | null => {
    const verdict = run(argv, approvalOf(ask(argv), by))
    assert.ok(verdict.kind === 'permit', verdict.kind === 'refused' ? verdict.message : verdict.kind)
    verdict.slot.release()
    return verdict.permit.stand_in
  }
  return { dir, work, away, run, ask, standIn }
}

/** The words of a command. A copied or linked file shows its path and kind. */
const wordsOf = (stand_in: StandIn | null): readonly string[] | null =>
  stand_in?.words.map((word) =>
    typeof word === 'string' ? word : `${word.sha256 === null ? 'link' : 'copy'} ${word.path} as ${word.name}`,
  ) ?? null

test('an opaque command runs a private copy of each script or program that argv names in a root', async (t) => {
  const { work, ask, standIn } = await setUp(t)
  const tool = await program(join(work, 'tool'), '#!/bin/sh\n')
  await writeFile(join(work, 'x.sh'), '')
  await writeFile(join(work, 'x.js'), '')
  const copy = (name: string): string => `copy ${join(work, name)} as ${name}`
  const cases: [argv: string[], words: string[]][] = [
    [
      [tool, 'a'],
      [copy('tool'), 'a'],
    ],
    [
      ['sh', 'x.sh', 'a'],
      ['/usr/bin/sh', copy('x.sh'), 'a'],
    ],
    [
      ['sh', '-c', './tool'],
      ['/usr/bin/sh', '-c', copy('tool')],
    ],
    [
      ['env', 'A=1', 'sh', './x.sh'],
      ['/usr/bin/env', 'A=1', 'sh', copy('x.sh')],
    ],
    [
      ['timeout', '5', tool],
      ['/usr/bin/timeout', '5', copy('tool')],
    ],
    [
      ['find', '.', '-exec', './tool', ';'],
      ['/usr/bin/find', '.', '-exec', copy('tool'), ';'],
    ],
    // An unknown option may have a value or not.
    [
      ['env', 'node', '--inspect', 'x.js', 'x.sh', 'none'],
      ['/usr/bin/env', 'node', '--inspect', copy('x.js'), copy('x.sh'), 'none'],
    ],
    [
      ['env', 'deno', 'run', 'x.js'],
      ['/usr/bin/env', 'deno', 'run', copy('x.js')],
    ],
    // The number of words before it does not matter.
    [
      ['env', ...Array<string>(200).fill('A=1'), 'sh', 'x.sh'],
      ['/usr/bin/env', ...Array<string>(200).fill('A=1'), 'sh', copy('x.sh')],
    ],
  ]
  for (const [argv, words] of cases) {
    assert.deepEqual(wordsOf(standIn(argv)), words)
    const question = ask(argv)
    assert.deepEqual([question.unheld, question.grant_sha256], [null, null])
    assert.ok(question.writable.length > 0)
  }
})

test('a transparent program, or one that only changes files, gets the files themselves', async (t) => {
  const { work, standIn } = await setUp(t)
  const tool = await program(join(work, 'tool'), '#!/bin/sh\n')
  for (const argv of [
    ['rm', tool],
    ['chmod', '600', './tool'],
    ['mv', tool, 'x'],
    ['cat', tool],
  ])
    assert.equal(standIn(argv), null, argv.join(' '))
})

test('a file keeps its path if a mode or a pattern allowed the run', async (t) => {
  const { work, standIn } = await setUp(t)
  await writeFile(join(work, 'x.sh'), '')
  const argv = ['sh', 'x.sh']
  for (const by of ['mode:full', 'fallback:full', 'allowlist:/usr/bin/*sh']) assert.equal(standIn(argv, by), null, by)
  for (const by of ['human:ann', 'human:ann+agents:a']) assert.notEqual(standIn(argv, by), null, by)
})

test('a link from a root leads to its real file, and a link into a root leads to a copy', async (t) => {
  const { work, away, standIn } = await setUp(t)
  const tool = await program(join(work, 'tool'), '#!/bin/sh\n')
  const safe = await program(join(away, 'safe'), '#!/bin/sh\n')
  await symlink(safe, join(work, 'link'))
  await symlink(tool, join(away, 'into'))
  await mkdir(join(work, 'd'))
  await writeFile(join(work, 'd', 'x.sh'), '')
  await symlink('d', join(work, 'e'))
  await link(tool, join(work, 'hard'))
  assert.deepEqual(wordsOf(standIn([join(work, 'link')])), [`link ${safe} as link`])
  assert.deepEqual(wordsOf(standIn(['env', join(work, 'link')])), ['/usr/bin/env', `link ${safe} as link`])
  assert.deepEqual(wordsOf(standIn([join(away, 'into')])), [`copy ${tool} as into`])
  // A bare name, found in PATH.
  assert.deepEqual(wordsOf(standIn(['env', 'into'])), ['/usr/bin/env', `copy ${tool} as into`])
  assert.deepEqual(wordsOf(standIn(['sh', 'e/x.sh'])), ['/usr/bin/sh', `copy ${join(work, 'd', 'x.sh')} as x.sh`])
  assert.deepEqual(wordsOf(standIn([join(work, 'hard')])), [`copy ${join(work, 'hard')} as hard`])
  assert.equal(standIn([safe]), null)
})

test('the interpreter of a script is pinned if argv can name it, otherwise the script cannot be allowed', async (t) => {
  const { work, away, ask, standIn } = await setUp(t)
  await program(join(away, 'gdb'), '')
  const own = join(work, 'own-sh')
  await symlink('/bin/sh', own)
  const script = await program(join(away, 'script'), `#!${own} -e\n`)
  const sh = standIn([script, 'a'])
  assert.equal(sh?.argv0, own)
  assert.match(wordsOf(sh)?.[0] ?? '', /^link \/.*sh as own-sh$/)
  assert.deepEqual(wordsOf(sh)?.slice(1), ['-e', script, 'a'])
  const unheld = (argv: readonly string[]): string => unallowable(ask(argv)) ?? 'it can be allowed'
  // An interpreter cannot be pinned after another program, for another interpreter, or if its path is relative.
  assert.match(unheld(['env', script]), /script runs .*own-sh, which the requester can write; start that with the script as its word/)
  await program(join(work, 'second'), `#!${script}\n`)
  assert.match(unheld([join(work, 'second')]), /runs .*own-sh, which the requester can write/)
  await program(join(work, 'relative'), '#!bin/sh\n')
  const argued = await program(join(work, 'argued'), `#!${own} -e\n`)
  assert.deepEqual(wordsOf(standIn([argued]))?.slice(1), ['-e', `copy ${argued} as argued`])
  assert.match(unheld(['env', join(work, 'relative')]), /names an interpreter that cannot be followed/)
  // The kernel reads the first line of a script. Known interpreters that the requester cannot write read the script themselves.
  assert.equal(ask(['sh', script]).unheld, null)
  const second = await program(join(work, 'script.sh'), `#!${own}\n`)
  assert.equal(ask(['sh', second]).unheld, null)
  await symlink('/usr/bin/env', join(work, 'bash'))
  await program(join(work, 'python3'), '#!/bin/sh\n')
  for (const argv of [
    ['env', '-u', 'sh', second],
    ['sh', second, './script.sh'],
    ['gdb', '--args', script],
    [join(work, 'bash'), second],
    [join(work, 'python3'), second],
  ])
    assert.match(unheld(argv), /runs .*own-sh, which the requester can write/, argv.join(' '))
  // The script is the value of an option, by its path or by a name that is found in PATH.
  assert.match(unheld(['tar', `-I${script}`, '-cf', 'x.tar', 'script.sh']), /script runs .*own-sh/)
  await program(join(away, 'x0x-pack'), `#!${own}\n`)
  assert.match(unheld(['tar', '--use-compress-program=x0x-pack', '-cf', 'x.tar', 'own-sh']), /x0x-pack runs .*own-sh/)
  await symlink(await program(join(work, 'pack'), '#!/bin/sh\n'), join(away, 'x0x-linked'))
  assert.match(unheld(['tar', '-Ix0x-linked', '-cf', 'x.tar', 'own-sh']), /x0x-linked, which is a part of the word -Ix0x-linked/)
  // An interpreter that does not resolve now may be another one when the script runs.
  await program(join(work, 'lost-sh'), '#!bin/sh\n')
  assert.match(unheld(['env', await program(join(away, 'lost'), `#!${join(work, 'lost-sh')}\n`)]), /cannot be followed/)
})

test('a file that cannot be pinned cannot be allowed, such as one under /proc or inside a word', async (t) => {
  const { work, away, ask, run } = await setUp(t)
  await writeFile(join(work, 'x.sh'), '')
  await writeFile(join(work, 'x.js'), '')
  await program(join(work, 'tool'), '#!/bin/sh\n')
  for (const name of ['expect', 'ruby']) await program(join(away, name), '')
  const cases: [argv: string[], why: RegExp][] = [
    [['sh', '/proc/self/cwd/x.sh'], /another file for each process/],
    [['env', 'node', '--require=./x.js', 'x.js'], /a part of the word --require=/],
    // No separate word follows the option that names the script.
    [['expect', '-fx.sh'], /a part of the word -fx/],
    [['ruby', '-r./x.js', 'x.sh'], /a part of the word -r/],
    [['tar', '--use-compress-program=./tool', '-cf', 'x.tar', 'x.sh'], /a part of the word --use-compress-program=/],
    [['tar', '-I./tool', '-cf', 'x.tar', 'x.sh'], /a part of the word -I/],
    [['tar', '-cvI./tool', '-f', 'x.tar', 'x.sh'], /a part of the word -cvI/],
    [['git', '-c', 'core.fsmonitor=./tool', 'status'], /a part of the word core.fsmonitor=/],
    [['env', ...Array<string>(4_096).fill('A'), 'sh', 'x.sh'], /more than the 4096 words/],
    [['sh', 'none.sh'], /cannot be followed/],
    [['sh', 'pipe'], /cannot be read whole/],
  ]
  execFileSync('mkfifo', [join(work, 'pipe')])
  for (const [argv, why] of cases) {
    const question = ask(argv)
    assert.match(unallowable(question) ?? 'it can be allowed', why)
    // An approval from the operator does not allow it either.
    const verdict = run(argv, approvalOf(question, 'human:ann'))
    assert.equal(verdict.kind === 'refused' && verdict.code, 'approval_denied')
  }
  // The value is not a program, and the program is not an interpreter.
  assert.equal(ask(['tar', '--files-from=./x.sh', '-cf', 'x.tar']).unheld, null)
})

test('policy copies files up to 64 MiB, counted over all files of a command', async (t) => {
  const { work, ask } = await setUp(t)
  const tool = await program(join(work, 'tool'), '#!/bin/sh\n')
  const more = await program(join(work, 'more'), '#!/bin/sh\n')
  await truncate(tool, MAX_HASHED_BYTES)
  assert.equal(ask([tool]).unheld, null)
  assert.match(ask([tool, more]).unheld ?? '', /more, which cannot be read whole \(at most 64 MiB, all such files together\)/)
  await truncate(tool, MAX_HASHED_BYTES + 1)
  assert.match(ask([tool]).unheld ?? '', /tool, which cannot be read whole/)
})

test('policy reads at most 64 MiB of all scripts of a command, writable or not', async (t) => {
  const { away, ask } = await setUp(t)
  const [one, other] = [join(away, 'one.sh'), join(away, 'other.sh')]
  for (const path of [one, other]) await writeFile(path, '')
  await truncate(one, MAX_HASHED_BYTES)
  // A file that argv names twice is read once.
  assert.doesNotMatch(ask(['env', 'sh', one, 'sh', one, 'sh', other]).opaque ?? '', /cannot be read whole/)
  await truncate(other, 1)
  const { opaque, grant_sha256 } = ask(['env', 'sh', one, 'sh', other])
  assert.match(opaque ?? '', /other\.sh cannot be read completely/)
  assert.equal(grant_sha256, null)
})

test('an approval is a mismatch after an exchange of a directory in the path of a script', async (t) => {
  const { work, ask, run } = await setUp(t)
  for (const [name, text] of [
    ['a', 'echo 1\n'],
    ['b', 'echo 2\n'],
  ] as const) {
    await mkdir(join(work, name))
    await writeFile(join(work, name, 'x.sh'), text)
  }
  const argv = ['env', 'sh', 'a/x.sh']
  const approval = approvalOf(ask(argv), 'human:ann')
  await rename(join(work, 'a'), join(work, 'c'))
  await rename(join(work, 'b'), join(work, 'a'))
  const verdict = run(argv, approval)
  assert.equal(verdict.kind === 'refused' && verdict.code, 'approval_mismatch')
})

test('a requester without file tools can still write its roots where a sandbox may run', async (t) => {
  const { work, away, ask, run } = await setUp(t, '')
  const tool = await program(join(work, 'tool'), '#!/bin/sh\n')
  await mkdir(join(work, 'd'))
  const inner = await program(join(work, 'd', 'inner'), '#!/bin/sh\n')
  const safe = await program(join(away, 'safe'), '#!/bin/sh\n')
  for (const path of [tool, inner])
    assert.deepEqual(
      ask([path]).writable.map((one) => one.path),
      [path],
    )
  const question = ask([safe])
  assert.deepEqual([question.writable, question.unheld], [[], null])
  // In a sandbox the result is the same.
  const asked = run([inner], null, 'sandbox')
  assert.ok(asked.kind === 'ask')
  const allowed = run([inner], approvalOf(asked.question, 'human:ann'), 'sandbox')
  assert.ok(allowed.kind === 'permit')
  assert.deepEqual(wordsOf(allowed.permit.stand_in), [`copy ${inner} as inner`])
})
