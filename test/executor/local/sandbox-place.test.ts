import assert from 'node:assert/strict'
import { mkdir, realpath, rename, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { consoleSession, EngineModes, wishFor } from '../../../src/executor/local/exec-target.ts'
import { NO_SETTINGS } from '../../../src/policy/modes.ts'
import { sandboxGrant } from '../../../src/policy/sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../../../src/policy/sandbox/sandbox-settings.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { tempDir } from '../../support/temp-dir.ts'

test('a secret that is created or moved while an engine runs is never visible in a sandbox', async (t) => {
  const [desk, dir] = [await deskPlace(t), await realpath(await tempDir(t))]
  const [secret, project] = [join(dir, 'data'), join(dir, 'project')]
  await mkdir(project)
  const tools = { defaults: { ...NO_SETTINGS, allowed_hosts: null }, agents: {}, sandbox: DEFAULT_SANDBOX, always_ask: [] }
  const modes = new EngineModes({ tools, desk: desk.link, nodes: null, secrets: [secret] })
  const kindOf = (path: string) => sandboxGrant(DEFAULT_SANDBOX, path, modes.sandboxPlace).kind
  assert.equal(kindOf(project), 'grant')
  await mkdir(secret)
  await rename(secret, join(project, 'moved'))
  await symlink(join(project, 'moved'), secret)
  assert.deepEqual([kindOf(project), kindOf(join(project, 'moved'))], ['refused', 'refused'])
})

const OPEN = {
  defaults: { ...NO_SETTINGS, host: 'gateway', security: 'allowlist', allowed_hosts: null },
  agents: {},
  sandbox: DEFAULT_SANDBOX,
  always_ask: [],
} as const
const NOTHING = { host: null, security: null, ask: null, node: null, elevated: null } as const

test('a mode set at one console widens only that console, but a mode that narrows applies everywhere', async (t) => {
  const desk = await deskPlace(t)
  const human = await desk.human()
  const at = (console: string) => new EngineModes({ tools: OPEN, desk: desk.link, nodes: null, secrets: [], console })
  const place = async (console: string, door: 'console' | 'stdio' = 'console') => {
    const { exec } = await at(console).place({ session_id: 's_1', client_name: 'Codex', door }, null, null)
    return [exec.security, exec.ask]
  }
  await human.setModes(consoleSession('c_mine', 'Codex'), { ...NOTHING, elevated: 'full' })
  assert.deepEqual(await place('c_mine'), ['full', 'off'])
  for (const door of ['console', 'stdio'] as const) assert.deepEqual(await place('c_other', door), ['allowlist', 'on-miss'])
  await human.setModes('Codex', { ...NOTHING, elevated: 'full' })
  assert.deepEqual(await place('c_other'), ['allowlist', 'on-miss'])
  await human.setModes('Codex', { ...NOTHING, security: 'deny' })
  assert.deepEqual(
    (await Promise.all([place('c_mine'), place('c_other')])).map(([security]) => security),
    ['deny', 'deny'],
  )
})

test('a preference for another host than the target of its session is refused with a message', () => {
  const none = { host: null, security: null, ask: null, node: null }
  assert.equal(wishFor(null, null), null)
  for (const wish of [null, none, { ...none, host: 'node' as const, node: 'bob' }])
    assert.deepEqual(wishFor('bob', wish), { ...none, host: 'node', node: 'bob' })
  for (const [key, wish] of [
    ['host', { ...none, host: 'sandbox' as const }],
    ['host', { ...none, host: 'gateway' as const }],
    ['node', { ...none, node: 'charlie' }],
  ] as const)
    assert.throws(() => wishFor('bob', wish), {
      code: 'bad_request',
      message: new RegExp(`^${key}: .* differs from the target "bob" of this session; leave`),
    })
})
