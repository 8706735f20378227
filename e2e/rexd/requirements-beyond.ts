import assert from 'node:assert/strict'

import { until } from '../../test/support/mesh-of-daemons.ts'
import type { Params, Peer } from './peer.ts'
import { requirement, type Requirement } from './requirement.ts'
import type { ConfigOptions } from './server.ts'

// Programs that outlive a session, and sessions for other agents. target.test.ts tests the answers of a real mesh.

const DETACH: ConfigOptions = { security: ['allow_detach = true'] }
const ASLEEP = ['sleep', '600']

const open = async (peer: Peer, params: Params = {}) => peer.call('session.open', { client_name: 'test', ...params })

export const BEYOND_REQUIREMENTS: readonly Requirement[] = [
  requirement(
    'exec.start/detached',
    'a detached command outlives its session, and another session can find it, wait for it and end it',
    'exec.start.detach session.info:detached session.close:terminated exec.wait exec.kill',
    async (peer) => {
      const first = await peer.session()
      const { process_id } = await first.call('exec.start', { argv: ASLEEP, detach: true })
      assert.deepEqual((await first.call('session.info'))['detached'], [])
      assert.equal((await first.close())['terminated'], 0)
      const second = await peer.session()
      const listed = (await second.call<{ detached: Params[] }>('session.info')).detached
      assert.deepEqual(
        listed.map((one) => [one['process_id'], one['argv'], one['status']]),
        [[process_id, ASLEEP, 'running']],
      )
      assert.deepEqual(await second.call('exec.kill', { process_id }), { ok: true })
      assert.equal((await second.call('exec.wait', { process_id }))['signal'], 'SIGTERM')
    },
    { config: DETACH, only: { names: ['http', 'websocket'], because: 'what outlives a session belongs to a server' } },
  ),
  requirement(
    'exec.start/detach-not-served',
    'over stdio no program outlives its session, whatever the configuration grants',
    'exec.start.detach -32007',
    async (peer) => {
      const session = await peer.session()
      const { data } = await session.failure(-32_007, 'exec.start', { argv: ASLEEP, detach: true })
      assert.equal(data['capability'], 'exec.detach')
      assert.equal((await session.call('session.info'))['detached'], undefined)
    },
    { config: DETACH, only: { names: ['stdio'], because: 'a pipe has no server behind it' } },
  ),
  requirement(
    'session.open/target',
    'a session for an agent of the configuration has the commands, terminals and files of that agent only',
    'session.open.target session.open:target session.info:target session.open:capabilities',
    async (peer) => {
      const answer = await open(peer, { target: 'bob' })
      assert.deepEqual(
        [answer['target'], answer['workspace_roots'], answer['capabilities']],
        ['bob', [], ['exec', 'fs.read', 'events', 'pty', 'fs.write', 'fs']],
      )
      const { session_id } = answer
      const info = await peer.call('session.info', { session_id })
      assert.deepEqual([info['target'], info['cwd']], ['bob', null])
      for (const params of [{ stdin_open: true }, { cwd: '/' }])
        await peer.failure(-32_007, 'exec.start', { session_id, argv: ['true'], ...params })
    },
    { config: { security: ['allow_targets = ["bob"]', 'allow_pty = true'] } },
  ),
  requirement(
    'exec.start/notices',
    'the answer about a local program has no notices about other readers',
    'exec.start:notices pty.open:notices',
    async (peer) => {
      const session = await peer.session()
      assert.equal('notices' in (await session.call('exec.start', { argv: ['true'] })), false)
    },
  ),
  requirement(
    'session.open/target-refused',
    'a session for an agent that the configuration does not list is refused with -32007 and logged',
    'session.open.target -32007',
    async (peer) => {
      await peer.failure(-32_602, 'session.open', { client_name: 'test', target: '' })
      assert.equal((await peer.failure(-32_007, 'session.open', { client_name: 'test', target: 'eve' })).data['target'], 'eve')
      await until('the refusal is in the journal', async () =>
        (await peer.home.refusals()).some(({ method, code }) => method === 'session.open' && code === 'unsupported_capability'),
      )
    },
    { config: { security: ['allow_targets = ["bob"]'] } },
  ),
]
