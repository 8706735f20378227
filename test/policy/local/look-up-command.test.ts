import assert from 'node:assert/strict'
import { chmod, mkdir, realpath, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { LocalPolicy } from '../../../src/policy/local/policy.ts'
import { lookUpCommand } from '../../../src/policy/local/look-up-command.ts'
import { askRun, policyOf, rightsOf, ruleText, type RulesText } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

const lookUp = (policy: LocalPolicy, command: string) => lookUpCommand(command, policy, rightsOf(policy))

/** Two directories of programs. PATH lists `first` before `second`. */
const placeOf = async (t: TestContext, rules: RulesText = {}) => {
  const dir = await realpath(await tempDir(t))
  const [first, second] = [join(dir, 'first'), join(dir, 'second')]
  for (const one of [first, second]) await mkdir(one)
  const program = async (path: string, mode = 0o755): Promise<string> => {
    await writeFile(path, '#!/bin/sh\n')
    await chmod(path, mode)
    return path
  }
  const policy = policyOf(['/var'], { ...rules, security: `path = ${JSON.stringify([first, second])}\n${rules.security ?? ''}` })
  return { dir, first, second, program, policy }
}

test('a lookup finds a bare name like a run does, in the first directory of PATH with an executable file', async (t) => {
  const { first, second, program, policy } = await placeOf(t)
  await program(join(first, 'tool'), 0o644)
  const real = await program(join(second, 'tool-1.2'))
  await symlink(real, join(second, 'tool'))
  const found = lookUp(policy, 'tool')
  assert.deepEqual(found, {
    found: true,
    path: join(second, 'tool'),
    real_path: real,
    searched: [first, second],
    problem: null,
    allowed_arguments: 'any',
    denial: null,
  })
  const verdict = askRun(policy, { argv: ['tool'] })
  assert.ok(verdict.kind === 'permit')
  assert.equal(verdict.permit.executable.path, found.path)
})

test('a lookup reports whether a program is missing or not executable, also if others could replace it', async (t) => {
  const { first, program, policy } = await placeOf(t)
  await program(join(first, 'plain'), 0o644)
  await program(join(first, 'loose'), 0o777)
  const told = ['missing', 'plain', 'loose', join(first, 'missing'), './plain', ''].map((command) => {
    const { found, path, problem } = lookUp(policy, command)
    return [found, path, problem?.kind]
  })
  assert.deepEqual(told, [
    [false, null, 'not_found'],
    [false, join(first, 'plain'), 'not_executable'],
    [false, join(first, 'loose'), 'not_executable'],
    [false, null, 'not_found'],
    [false, null, 'not_found'],
    [false, null, 'not_found'],
  ])
  // A run gives the same reasons.
  for (const [command, why] of [
    ['missing', 'not_found'],
    ['plain', 'not_executable'],
    ['loose', 'not_executable'],
  ] as const) {
    const verdict = askRun(policy, { argv: [command] })
    assert.ok(verdict.kind === 'refused')
    assert.equal(verdict.data['why'], why)
  }
})

test('a lookup of a program without allowed arguments does not report whether it exists', async (t) => {
  const rules = `${ruleText('allow_commands', ['tool', 'status'])}${ruleText('allow_commands', ['other'], 'any')}`
  const { first, program, policy } = await placeOf(t, { rules })
  for (const name of ['tool', 'other', 'third']) await program(join(first, name))
  const allowed = (command: string) => lookUp(policy, command).allowed_arguments
  assert.deepEqual([allowed('tool'), allowed('other')], ['some', 'any'])
  for (const command of ['third', join(first, 'third'), 'no-such-x0x', '/etc/shadow'])
    assert.deepEqual(lookUp(policy, command), {
      found: null,
      path: null,
      real_path: null,
      searched: null,
      problem: null,
      allowed_arguments: 'none',
      denial: { code: 'command_denied', detail: 'no entry of security.allow_commands allows this command' },
    })
})

test('a denied program is denied under every name, and a denial with arguments leaves other arguments allowed', async (t) => {
  const rules = `${ruleText('deny_commands', ['tool'], 'any')}${ruleText('deny_commands', ['other', '--force'])}`
  const { first, program, policy } = await placeOf(t, { rules })
  await symlink(await program(join(first, 'tool')), join(first, 'alias'))
  await program(join(first, 'other'))
  for (const command of ['tool', 'alias', join(first, 'alias')])
    assert.deepEqual(lookUp(policy, command).denial, {
      code: 'command_denied',
      detail: 'security.deny_commands[0] forbids this command',
    })
  assert.deepEqual([lookUp(policy, 'other').found, lookUp(policy, 'other').allowed_arguments], [true, 'some'])
})

test('a lookup in a session without exec reports the missing capability', async (t) => {
  const { policy } = await placeOf(t)
  const rights = rightsOf(policy, { capabilities: ['fs'] })
  assert.equal(lookUpCommand('true', policy, rights).denial?.code, 'unsupported_capability')
})
