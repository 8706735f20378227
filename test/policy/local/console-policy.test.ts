import assert from 'node:assert/strict'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { consolePolicy } from '../../../src/policy/local/read-policy.ts'
import { unattendedVariables } from '../../../src/policy/local/unattended.ts'
import { askRun, askSession, permitted, policyOf, refused, rightsOf } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

const OWN = { PATH: '/usr/bin:/bin', OF_HOST: 'yes', PWD: '/somewhere', OLDPWD: '/else', UNSET: undefined }
const TERMINAL = { cols: 80, rows: 24, raw: true }

test('a console grants commands on terminals, but no shells, files, targets or detached runs', () => {
  const { capabilities, target } = rightsOf(consolePolicy(OWN))
  assert.deepEqual([[...capabilities].toSorted(), target], [['events', 'exec', 'exec.input', 'pty'], null])
  const target_asked = askSession(consolePolicy(OWN), { target: 'bob' })
  assert.equal(target_asked.kind, 'refused')
})

test('a command inherits the environment of the host under that of its client, and only the latter with clear_env', () => {
  const policy = consolePolicy(OWN)
  const env = { OF_HOST: 'no', LD_PRELOAD: '/x.so' }
  assert.deepEqual(permitted(askRun(policy, { env, terminal: TERMINAL })).env, {
    ...unattendedVariables({}),
    PATH: '/usr/bin:/bin',
    OF_HOST: 'no',
    TERM: 'xterm-256color',
    LD_PRELOAD: '/x.so',
  })
  const cleared = permitted(askRun(policy, { env: { A: '1' }, clear_env: true, terminal: TERMINAL }))
  assert.deepEqual(cleared.env, { TERM: 'xterm-256color', A: '1' })
  assert.deepEqual(cleared.terminal, TERMINAL)
})

test('a relative path starts at the working directory, and a bare name is found in the PATH of the command', async (t) => {
  const [dir, policy] = [await tempDir(t), consolePolicy(OWN)]
  const file = join(dir, 'here.sh')
  await writeFile(file, '#!/bin/sh\n', { mode: 0o755 })
  const cwd = { path: dir, descriptor: null }
  assert.equal(permitted(askRun(policy, { argv: ['./here.sh'] }, { cwd })).executable.path, file)
  assert.equal(permitted(askRun(policy, { argv: ['here.sh'], env: { PATH: `/nowhere:${dir}` } }, { cwd })).executable.path, file)
  assert.equal(permitted(askRun(policy, { argv: ['here.sh'], env: { PATH: '' } }, { cwd })).executable.path, file)
  refused(askRun(policy, { argv: ['here.sh'] }, { cwd }), 'file_not_found', /here\.sh/, { argv0: 'here.sh', why: 'not_found' })
})

test('a console runs programs that others may replace, and a configured interface refuses them', async (t) => {
  const dir = await tempDir(t)
  const file = join(dir, 'shared.sh')
  await writeFile(file, '#!/bin/sh\n')
  await chmod(file, 0o777)
  assert.equal(permitted(askRun(consolePolicy(OWN), { argv: [file] })).executable.path, file)
  assert.equal(askRun(policyOf([dir]), { argv: [file] }).kind, 'refused')
  assert.equal(askRun(policyOf([dir]), { argv: ['./shared.sh'] }, { cwd: { path: dir, descriptor: null } }).kind, 'refused')
})
