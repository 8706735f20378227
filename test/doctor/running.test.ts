import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import type { DaemonConfig } from '../../src/config/config.ts'
import { checkRunning } from '../../src/doctor/running.ts'
import { pathsIn } from '../../src/local-api/paths.ts'
import { fakeDaemon, json } from '../support/fake-daemon.ts'

test('a daemon of the release before, which says nothing of relays, is examined like any other', async (t) => {
  const answers: Readonly<Record<string, (dir: string) => object>> = {
    '/agent': () => ({ agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64) }),
    '/peers': () => ({ peers: [{ connected: true }] }),
    '/contacts': () => ({ contacts: [] }),
    '/diagnostics/mesh': () => ({ connections: [{ direction: 'inbound' }] }),
    '/diagnostics/exec': (dir) => ({
      acl_summary: { loaded_from: join(dir, 'acl.toml'), disabled_reason: 'acl_missing' },
      journal: null,
      outgoing_journal: { path: join(dir, 'requests.jsonl'), writable: true },
    }),
  }
  const { dir } = await fakeDaemon(t, ({ path }, response) => json(response, 200, answers[path]!(dir)))
  const findings = await checkRunning({ name: null, paths: pathsIn(dir), rexd_config: null } as DaemonConfig, null, {})
  assert.deepEqual(
    findings.map(({ standing, topic }) => `${standing} ${topic}`),
    ['ok daemon', 'ok peers', 'warn reach', 'ok acl', 'ok journal', 'ok outgoing journal'],
  )
})
