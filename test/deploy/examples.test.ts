import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { readToml } from '../../src/base/toml.ts'
import { readRexdConfig } from '../../src/config/rexd-config.ts'
import { SETTING_KEYS, SETTINGS } from '../../src/config/config.ts'
import { inspectAcl } from '../../src/policy/mesh/load-acl.ts'

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy')

test('every key of the example configuration is valid', async () => {
  const { value } = await readToml(join(DEPLOY, 'config.toml'), 'bad_config')
  assert.ok(Object.keys(value).length >= 5)
  for (const [key, raw] of Object.entries(value)) {
    const known = SETTING_KEYS.find((name) => name === key)
    assert.ok(known, key)
    assert.ok('value' in SETTINGS[known].parse(raw, DEPLOY), key)
  }
})

test('the example ACL is valid but not enabled', async () => {
  const inspection = await inspectAcl(join(DEPLOY, 'exec-acl.toml'))
  // The owner and mode of the clone do not matter for the example.
  const problems = inspection.problems.filter((problem) => !/writable by|belongs to uid/.test(problem))
  assert.deepEqual(problems, [])
  const { value } = await readToml(join(DEPLOY, 'exec-acl.toml'), 'bad_acl')
  assert.equal((value['exec'] as { enabled: unknown }).enabled, false)
})

test('the example configuration of REXD is valid except for its root, which depends on the machine', async () => {
  const { config, problems } = await readRexdConfig(join(DEPLOY, 'rexd.toml'), {})
  const others = problems.filter((problem) => !/writable by|belongs to uid/.test(problem))
  assert.deepEqual(others.length, 1, others.join('\n'))
  assert.match(others[0] ?? '', /rexd\.toml:\d+: security\.allowed_roots\[0\]\.path: .*\/srv\/myapp/)
  assert.deepEqual([...config!.policy.granted].toSorted(), ['events', 'exec', 'exec.input', 'fs.read', 'fs.write'])
})
