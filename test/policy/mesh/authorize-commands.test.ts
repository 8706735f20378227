import assert from 'node:assert/strict'
import { chmod, copyFile, link, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { LocalPolicy } from '../../../src/policy/local/policy.ts'
import { asNobody } from '../../support/file-permit.ts'
import { askRun, EVERY_GRANT, permitted, policyOf, refused, rightsOf, ruleText } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

/** The result for an argv. */
const verdictOf = (policy: LocalPolicy, argv: readonly string[]): string => {
  const verdict = askRun(policy, { argv })
  return verdict.kind === 'permit' ? `permit ${verdict.permit.matched_acl}` : verdict.code
}

const allowing = (...rules: (readonly [readonly string[], 'any'?])[]): LocalPolicy =>
  policyOf(['/var'], { rules: rules.map(([argv, args]) => ruleText('allow_commands', argv, args)).join('') })

const denying = (...rules: (readonly [readonly string[], 'any'?])[]): LocalPolicy =>
  policyOf(['/var'], { rules: rules.map(([argv, args]) => ruleText('deny_commands', argv, args)).join('') })

const program = async (directory: string, name: string): Promise<string> => {
  await mkdir(directory, { recursive: true })
  const path = join(directory, name)
  await writeFile(path, '#!/bin/sh\n', { mode: 0o755 })
  return path
}

/** Creates a program under many names, for a rule that denies it. */
const manyNames = async (t: TestContext) => {
  const dir = await tempDir(t)
  const tool = await program(join(dir, 'bin'), 'tool')
  await mkdir(join(dir, 'other'))
  await symlink(tool, join(dir, 'other/soft'))
  await symlink('soft', join(dir, 'other/softer'))
  await symlink(join(dir, 'bin'), join(dir, 'sbin'))
  await link(tool, join(dir, 'other/hard'))
  await copyFile(tool, join(dir, 'other/copy'))
  return { dir, tool, names: ['other/soft', 'other/softer', 'sbin/tool', 'other/hard', 'bin/../bin/tool'].map((name) => join(dir, name)) }
}

test('without a list of allowed commands, every command that is not denied may run', () => {
  assert.equal(verdictOf(policyOf(['/var']), ['true', '--anything', ';']), 'permit security')
})

test('with an empty list of allowed commands, no command may run', () => {
  const policy = policyOf(['/var'], { security: 'allow_commands = []' })
  refused(askRun(policy), 'command_denied', /^no entry of security\.allow_commands allows this command$/, { rule: 'allow_commands' })
})

test('an allowed command must match token by token and byte by byte, without further arguments', () => {
  const policy = allowing([['echo', 'a b', '']], [['/bin/echo', '-n']], [['sort', '--key=2']])
  assert.equal(verdictOf(policy, ['echo', 'a b', '']), 'permit allow_commands[0]')
  assert.equal(verdictOf(policy, ['/bin/echo', '-n']), 'permit allow_commands[1]')
  const others = [
    ['echo'],
    ['echo', 'a b'],
    ['echo', 'a', 'b', ''],
    ['echo', 'a b', '', ''],
    ['echo', 'A b', ''],
    ['echo', 'a b '],
    ['echo a b '],
    ['/bin/echo', 'a b', ''],
    // The option of a rule in other forms: abbreviated, with a separate value, short, and with another option.
    ['sort', '--ke=2'],
    ['sort', '--key', '2'],
    ['sort', '-k2'],
    ['sort', '--key=2', '--output=x'],
    ['sort', '--key=2 --output=x'],
    ['/bin/echo', '-ne'],
  ]
  for (const argv of [...others, ['/usr/bin/echo', '-n'], ['echo', '-n'], ['./echo', '-n']])
    assert.equal(verdictOf(policy, argv), 'command_denied', argv.join('|'))
})

test('a rule with args = "any" allows any arguments after its own tokens', () => {
  const policy = allowing([['echo', 'log'], 'any'])
  for (const argv of [
    ['echo', 'log'],
    ['echo', 'log', '--exec=sh'],
    ['echo', 'log', '', '-c', ';'],
  ])
    assert.equal(verdictOf(policy, argv), 'permit allow_commands[0]')
  for (const argv of [['echo'], ['echo', 'x', 'log'], ['echo', 'logs']]) assert.equal(verdictOf(policy, argv), 'command_denied')
})

test('the permit names the first rule that allows the command', () => {
  const policy = allowing([['echo', 'x']], [['echo'], 'any'], [['echo', 'y']])
  assert.deepEqual(
    [verdictOf(policy, ['echo', 'x']), verdictOf(policy, ['echo', 'y'])],
    ['permit allow_commands[0]', 'permit allow_commands[1]'],
  )
})

test('an argv without a program is refused', () => {
  for (const argv of [[], ['']]) refused(askRun(policyOf(['/var']), { argv }), 'bad_request', /^argv: it names at least the program$/, {})
})

test('a command that is not allowed is denied without a lookup, and a missing allowed program is reported', () => {
  const policy = allowing([['no-such-program-x0x']])
  for (const argv of [['echo'], ['another-missing-x0x'], ['./echo']]) assert.equal(verdictOf(policy, argv), 'command_denied')
  refused(
    askRun(policy, { argv: ['no-such-program-x0x'] }),
    'file_not_found',
    /"no-such-program-x0x" is in no directory of \/usr\/local\/sbin/,
    {
      argv0: 'no-such-program-x0x',
      why: 'not_found',
    },
  )
})

test('a program is not run if others could replace it or it is not executable', async (t) => {
  const dir = await tempDir(t)
  const tool = await program(dir, 'tool')
  const policy = policyOf(['/var'])
  permitted(askRun(policy, { argv: [tool] }))
  await chmod(tool, 0o777)
  refused(askRun(policy, { argv: [tool] }), 'file_not_found', /writable by other users.*chmod go-w/, { argv0: tool, why: 'not_executable' })
  await chmod(tool, 0o644)
  refused(askRun(policy, { argv: [tool] }), 'file_not_found', /exists, but is not executable/, { argv0: tool, why: 'not_executable' })
})

test('a denial names its rule and takes precedence over every rule that allows', () => {
  const rules =
    ruleText('allow_commands', ['echo'], 'any') + ruleText('deny_commands', ['false']) + ruleText('deny_commands', ['echo', 'x'])
  const policy = policyOf(['/var'], { rules })
  assert.equal(verdictOf(policy, ['echo', 'y']), 'permit allow_commands[0]')
  refused(askRun(policy, { argv: ['echo', 'x'] }), 'command_denied', /^security\.deny_commands\[1\] forbids this command$/, {
    rule: 'deny_commands[1]',
  })
})

test('a denied program is denied through every symbolic and hard link, but not as a copy', async (t) => {
  const { dir, tool, names } = await manyNames(t)
  const policy = denying([[tool], 'any'])
  for (const name of [tool, ...names]) assert.equal(verdictOf(policy, [name, '-x']), 'command_denied', name)
  assert.equal(verdictOf(policy, [join(dir, 'other/copy')]), 'permit security')
})

test('a denial with arguments covers only those arguments, under every name of the program', async (t) => {
  const { tool, names } = await manyNames(t)
  const policy = denying([[tool, 'push', '<INT>']], [[tool, 'reset'], 'any'])
  for (const name of [tool, ...names]) {
    for (const rest of [['push', '7'], ['reset'], ['reset', '--hard']]) assert.equal(verdictOf(policy, [name, ...rest]), 'command_denied')
    for (const rest of [[], ['push'], ['push', '-f'], ['push', '7', '7'], ['log', 'reset']])
      assert.equal(verdictOf(policy, [name, ...rest]), 'permit security')
  }
})

test('a denied name covers the programs of that name in all directories of PATH', async (t) => {
  const dir = await tempDir(t)
  const [first, second] = [await program(join(dir, 'a'), 'tool'), await program(join(dir, 'b'), 'tool')]
  const rules = ruleText('deny_commands', ['tool'], 'any')
  const policy = policyOf(['/var'], { security: `path = ["${dir}/a", "${dir}/b"]`, rules })
  for (const name of ['tool', first, second]) assert.equal(verdictOf(policy, [name]), 'command_denied', name)
})

test('a denial covers the file even if others could replace it at the path of the rule', async (t) => {
  const dir = await tempDir(t)
  const tool = await program(join(dir, 'open'), 'tool')
  await mkdir(join(dir, 'closed'))
  await link(tool, join(dir, 'closed/tool'))
  await chmod(join(dir, 'open'), 0o777)
  assert.equal(verdictOf(denying([[tool], 'any']), [join(dir, 'closed/tool')]), 'command_denied')
})

test('a denied name of a multi-call program leaves its other names allowed, but not the program itself', async (t) => {
  const dir = await tempDir(t)
  const busybox = await program(join(dir, 'bin'), 'busybox')
  for (const name of ['rm', 'ls', 'cat']) await symlink('busybox', join(dir, 'bin', name))
  const rules = ruleText('deny_commands', ['rm'], 'any')
  const policy = policyOf(['/var'], { security: `path = ["${dir}/bin"]`, rules })
  for (const name of ['ls', join(dir, 'bin/cat')]) assert.equal(verdictOf(policy, [name, '/']), 'permit security', name)
  for (const name of ['rm', join(dir, 'bin/rm'), 'busybox', busybox]) assert.equal(verdictOf(policy, [name, 'rm']), 'command_denied', name)
  await mkdir(join(dir, 'other'))
  await symlink('../bin/rm', join(dir, 'other/rm'))
  assert.equal(verdictOf(policy, [join(dir, 'other/rm')]), 'command_denied', 'a link of that name elsewhere')
  // The same holds for hard links. A program with one purpose stays denied under all its names.
  await mkdir(join(dir, 'hard'))
  for (const name of ['busybox', 'rm', 'ls']) await link(busybox, join(dir, 'hard', name))
  const hard = policyOf(['/var'], { security: `path = ["${dir}/hard"]`, rules })
  assert.deepEqual(
    [verdictOf(hard, ['ls']), verdictOf(hard, ['rm']), verdictOf(hard, ['busybox'])],
    ['permit security', 'command_denied', 'command_denied'],
  )
  const tool = await program(join(dir, 'one'), 'tool')
  await link(tool, join(dir, 'one/alias'))
  assert.equal(verdictOf(denying([[tool], 'any']), [join(dir, 'one/alias')]), 'command_denied')
})

test('a denied program that does not exist does not affect other programs', () => {
  const policy = denying([['no-such-program-x0x'], 'any'], [['/no/such/program'], 'any'])
  assert.equal(verdictOf(policy, ['true']), 'permit security')
  assert.equal(verdictOf(policy, ['no-such-program-x0x']), 'command_denied')
})

test('a denied program that cannot be read does not affect other programs', async (t) => {
  const dir = await tempDir(t)
  await symlink('loop', join(dir, 'loop'))
  await mkdir(join(dir, 'closed'), { mode: 0o700 })
  const rules: (readonly [readonly string[], 'any'])[] = [
    [[join(dir, 'loop')], 'any'],
    [[join(dir, 'closed/tool')], 'any'],
    [['n'.repeat(300)], 'any'],
  ]
  const policy = denying(...rules)
  await asNobody(async () => assert.equal(verdictOf(policy, ['true']), 'permit security'))
  const looping = policyOf(['/var'], { security: `path = ["/usr/bin", "${dir}"]`, rules: ruleText('deny_commands', ['loop'], 'any') })
  assert.equal(verdictOf(looping, ['true']), 'permit security')
})

test('a shell is subject to the same lists as every other program', () => {
  const shell = (rules: string, text: string): string => {
    const policy = policyOf(['/var'], { security: EVERY_GRANT, rules })
    const verdict = askRun(policy, { argv: ['/bin/sh', '-c', text], shell: true })
    return verdict.kind === 'permit' ? `permit ${verdict.permit.matched_acl}` : verdict.code
  }
  assert.equal(shell('', 'id; id'), 'permit security')
  assert.equal(shell(ruleText('allow_commands', ['echo'], 'any'), 'echo'), 'command_denied')
  assert.equal(shell(ruleText('allow_commands', ['/bin/sh', '-c', 'id']), 'id'), 'permit allow_commands[0]')
  assert.equal(shell(ruleText('allow_commands', ['/bin/sh', '-c', 'id']), 'id;id'), 'command_denied')
  for (const name of ['sh', '/bin/sh', '/usr/bin/sh'])
    assert.equal(shell(ruleText('deny_commands', [name], 'any'), 'id'), 'command_denied', name)
})

test('a shell that was not granted is refused before the lists are checked', () => {
  const policy = policyOf(['/var'], { rules: ruleText('deny_commands', ['sh'], 'any') })
  const verdict = askRun(policy, { argv: ['/bin/sh', '-c', 'id'], shell: true }, { rights: rightsOf(policy) })
  refused(verdict, 'unsupported_capability', /security\.allow_shell grants it$/, { capability: 'exec.shell' })
})
