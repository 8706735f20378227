import assert from 'node:assert/strict'
import { homedir } from 'node:os'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { scrubbedEnvironment } from '../../src/policy/environment.ts'

const withVariables = (t: TestContext, variables: Record<string, string>): void => {
  const before = { ...process.env }
  t.after(() => {
    for (const key of Object.keys(variables)) delete process.env[key]
    Object.assign(process.env, before)
  })
  Object.assign(process.env, variables)
}

test('a child process gets four variables, and only HOME comes from the daemon', (t) => {
  withVariables(t, { HOME: '/srv/x0x', PATH: '/tmp/evil', LD_PRELOAD: 'x', NODE_OPTIONS: 'x', BASH_ENV: 'x', LANG: 'de_DE' })
  assert.deepEqual(scrubbedEnvironment(), {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: '/srv/x0x',
    LANG: 'C.UTF-8',
    LC_ALL: 'C.UTF-8',
  })
})

test('HOME of a child process is the home directory of the user of the daemon', () => {
  assert.equal(scrubbedEnvironment()['HOME'], homedir())
})

test('a HOME that is not an absolute path is refused', (t) => {
  withVariables(t, { HOME: 'somewhere' })
  assert.throws(
    () => scrubbedEnvironment(),
    (error) => isAppError(error, 'bad_config') && error.message.includes('HOME: "somewhere"'),
  )
})
