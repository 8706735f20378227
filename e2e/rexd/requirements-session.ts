import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'

import type { Peer, Result } from './peer.ts'
import { requirement, type Requirement } from './requirement.ts'

const DEFAULTS = {
  max_output_bytes: 1_048_576,
  max_file_read_bytes: 1_048_576,
  max_processes_per_session: 8,
  default_timeout_ms: 30_000,
  hard_timeout_ms: 300_000,
  max_concurrent_sessions: 16,
}

/** Limits that belong to the server. */
const DETACHED = { max_detached_processes: 8, max_detached_ms: 86_400_000 }

const opened = async (peer: Peer, params: Record<string, unknown> = {}): Promise<Result> =>
  peer.call('session.open', { client_name: 'test', ...params })

const OPEN: readonly Requirement[] = [
  requirement(
    'session.open/answer',
    'session.open returns the protocol, the grants and all limits',
    'session.open session.open:session_id session.open:protocol session.open:server_version session.open:capabilities session.open:limits session.open:workspace_roots',
    async (peer) => {
      const answer = await opened(peer)
      assert.match(String(answer['session_id']), /^s_[\w-]{22}$/)
      assert.equal(answer['protocol'], 'rexd/1')
      assert.match(String(answer['server_version']), /^\d+\.\d+\.\d+/)
      assert.deepEqual([...(answer['capabilities'] as string[])].sort(), ['events', 'exec', 'exec.input', 'fs', 'fs.read', 'fs.write'])
      assert.deepEqual(answer['limits'], { ...DEFAULTS, ...DETACHED })
      assert.deepEqual(answer['workspace_roots'], [peer.home.root])
    },
    { config: {} },
  ),
  requirement('session.open/client_name', 'a client has a name of 1 to 64 characters', 'session.open.client_name', async (peer) => {
    for (const client_name of ['', 'x'.repeat(65)]) await peer.failure(-32602, 'session.open', { client_name })
    const { session_id } = await opened(peer, { client_name: 'x'.repeat(64) })
    assert.equal((await peer.call('session.info', { session_id }))['client_name'], 'x'.repeat(64))
  }),
  requirement('session.open/client_version', 'a client may have a version', 'session.open.client_version', async (peer) => {
    await opened(peer, { client_version: '1.2.3-rc.4' })
    await peer.failure(-32602, 'session.open', { client_name: 'test', client_version: '' })
  }),
  requirement(
    'session.open/workspace_roots',
    'requested roots narrow the session to these roots',
    'session.open.workspace_roots session.open:workspace_roots',
    async (peer) => {
      const session = await peer.session()
      const inner = session.path('inner')
      await mkdir(inner)
      await writeFile(session.path('beside'), 'x')
      const { session_id, workspace_roots } = await opened(peer, { workspace_roots: [inner] })
      assert.deepEqual(workspace_roots, [inner])
      const { data } = await peer.failure(-32002, 'fs.read', { session_id, path: '../beside' })
      assert.deepEqual(data['allowed_roots'], [inner])
      await peer.failure(-32002, 'exec.start', { session_id, argv: ['true'], cwd: session.dir })
    },
  ),
  requirement(
    'session.open/requested_capabilities',
    'requested capabilities narrow the session',
    'session.open.requested_capabilities session.open:capabilities -32007',
    async (peer) => {
      const { session_id, capabilities } = await opened(peer, { requested_capabilities: ['fs.read', 'events'] })
      assert.deepEqual([...(capabilities as string[])].sort(), ['events', 'fs', 'fs.read'])
      const groups = await opened(peer, { requested_capabilities: ['exec', 'fs', 'events'] })
      assert.deepEqual([...(groups['capabilities'] as string[])].sort(), ['events', 'exec', 'fs', 'fs.read', 'fs.write'])
      const used: readonly (readonly [string, string, Record<string, unknown>])[] = [
        ['exec', 'exec.start', { argv: ['true'] }],
        ['fs.write', 'fs.write', { path: 'x', content: '' }],
        ['fs.write', 'fs.edit', { path: 'x', old_string: 'a', new_string: 'b' }],
      ]
      for (const [capability, method, params] of used)
        assert.equal((await peer.failure(-32007, method, { session_id, ...params })).data['capability'], capability)
    },
  ),
]

const LIMITS: readonly Requirement[] = [
  requirement(
    'session.open/limits',
    'a session can have lower limits, and the answer contains them',
    'session.open.limits session.open:limits',
    async (peer) => {
      const lower = {
        max_output_bytes: 10,
        max_file_read_bytes: 11,
        max_processes_per_session: 1,
        default_timeout_ms: 12,
        hard_timeout_ms: 13,
      }
      const { session_id, limits } = await opened(peer, { limits: lower })
      const expected = { ...(limits as object), ...lower }
      assert.deepEqual(limits, expected)
      assert.deepEqual((await peer.call('session.info', { session_id }))['limits'], expected)
    },
  ),
  ...Object.entries(DEFAULTS)
    .filter(([limit]) => limit !== 'max_concurrent_sessions')
    .map(([limit, max]) =>
      requirement(`session.open/limits.${limit}`, 'a session cannot raise a limit', `session.open.limits.${limit} -32008`, async (peer) => {
        const { data } = await peer.failure(-32008, 'session.open', { client_name: 'test', limits: { [limit]: max + 1 } })
        assert.deepEqual([data['limit'], data['asked'], data['max']], [limit, max + 1, max])
        await opened(peer, { limits: { [limit]: max } })
        await peer.failure(-32602, 'session.open', { client_name: 'test', limits: { [limit]: 0 } })
      }),
    ),
]

export const SESSION_REQUIREMENTS: readonly Requirement[] = [...OPEN, ...LIMITS]
