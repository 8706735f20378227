import assert from 'node:assert/strict'
import { userInfo } from 'node:os'
import { test } from 'node:test'

import { scrubbedEnvironment } from '../../src/policy/environment.ts'

test('a child gets four variables and nothing of the daemon', (t) => {
  const before = { ...process.env }
  t.after(() => (process.env = before))
  Object.assign(process.env, { HOME: '/tmp/evil', PATH: '/tmp/evil', LD_PRELOAD: 'x', NODE_OPTIONS: 'x', BASH_ENV: 'x', LANG: 'de_DE' })
  assert.deepEqual(scrubbedEnvironment(), {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: userInfo().homedir,
    LANG: 'C.UTF-8',
    LC_ALL: 'C.UTF-8',
  })
})
