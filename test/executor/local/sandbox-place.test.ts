import assert from 'node:assert/strict'
import { mkdir, realpath, rename, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { EngineModes } from '../../../src/executor/local/exec-place.ts'
import { NO_SETTINGS } from '../../../src/policy/modes/settings.ts'
import { sandboxGrant } from '../../../src/policy/sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../../../src/policy/sandbox/sandbox-settings.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { tempDir } from '../../support/temp-dir.ts'

test('a secret that comes to be, or to stand elsewhere, while an engine runs is shown by no sandbox', async (t) => {
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
