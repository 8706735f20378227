import assert from 'node:assert/strict'
import { hostname } from 'node:os'

import { requirement, type Requirement } from './requirement.ts'
import type { ConfigOptions } from './server.ts'

// The execution mode of a command. approvals.test.ts tests the answers of approvers.

const ON_HOST: ConfigOptions = { tools: ['host = "gateway"', 'security = "full"'] }
const ECHO = { argv: ['echo', 'hello'] }

export const MODE_REQUIREMENTS: readonly Requirement[] = [
  requirement(
    'exec.start/ran-on',
    'a client chooses an execution mode, and the answer says where the command ran and which preferences were cut',
    `exec.start.host exec.start.security exec.start.ask exec.start.node exec.start:ran_on exec.start:ran_on.host exec.start:ran_on.agent_id
     exec.start:ran_on.name exec.start:cut_wishes -32001 -32007`,
    async (peer) => {
      const session = await peer.session()
      const here = { host: 'gateway', agent_id: null, name: hostname() }
      const plain = await session.call('exec.start', ECHO)
      assert.deepEqual([plain['ran_on'], plain['cut_wishes']], [here, undefined])
      const wider = await session.call('exec.start', { ...ECHO, host: 'gateway', security: 'full', ask: 'off' })
      assert.deepEqual([wider['ran_on'], wider['cut_wishes']], [here, [{ key: 'ask', asked: 'off', got: 'on-miss' }]])
      for (const { process_id } of [plain, wider]) {
        const log = peer.log(process_id)
        await log.finished()
        assert.equal(log.stdout.toString(), 'hello\n')
      }
      await session.failure(-32001, 'exec.start', { ...ECHO, security: 'deny' })
      await session.failure(-32001, 'exec.start', { ...ECHO, host: 'node', node: 'bob' })
      for (const wish of [{ host: 'moon' }, { security: 1 }, { ask: 'ON-MISS' }, { node: '' }])
        await session.failure(-32602, 'exec.start', { ...ECHO, ...wish })
    },
    { config: ON_HOST },
  ),
  requirement(
    'exec.start/waiting',
    'with tell_waiting a client learns which call waits for which approval request, and without it gets no event',
    `session.open:tells_waiting exec.start.tell_waiting pty.open.tell_waiting exec.waiting exec.waiting:session_id
     exec.waiting:process_id exec.waiting:call exec.waiting:question_id exec.waiting:expires_in_ms exec.start.ask`,
    async (peer) => {
      const session = await peer.session()
      assert.equal(session.opened['tells_waiting'], true)
      for (const tell of [{}, { tell_waiting: false }, { tell_waiting: true }]) {
        const { result } = await peer.ask('exec.start', { session_id: session.id, ...ECHO, ask: 'always', ...tell }, 'a call')
        const log = peer.log(result?.['process_id'])
        await log.finished()
        assert.equal(log.stdout.toString(), 'hello\n')
        if (tell.tell_waiting !== true) continue
        const [{ session_id, process_id, call, question_id, expires_in_ms } = {}, ...more] = peer.waits as Record<string, unknown>[]
        assert.deepEqual([session_id, process_id, call, more], [session.id, log.id, 'a call', []])
        assert.match(String(question_id), /^q_/)
        assert.ok(Number(expires_in_ms) > 0 && Number(expires_in_ms) <= 120_000)
      }
      await session.failure(-32602, 'pty.open', { ...ECHO, tell_waiting: 'yes' })
    },
    { config: ON_HOST },
  ),
  requirement(
    'exec.start/no-choice',
    'without [tools.exec] a preference for an execution mode is refused and no command runs',
    'exec.start.host exec.start.security exec.start.ask exec.start.node pty.open.host pty.open.security pty.open.ask pty.open.node',
    async (peer) => {
      const session = await peer.session()
      for (const method of ['exec.start', 'pty.open'])
        for (const wish of [{ host: 'sandbox' }, { security: 'full' }, { ask: 'always' }, { node: 'bob' }])
          await session.failure(-32007, method, { ...ECHO, ...wish })
    },
  ),
]
