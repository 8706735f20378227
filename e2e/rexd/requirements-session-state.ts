import assert from 'node:assert/strict'

import { METHODS, paramsOf } from '../../src/doors/rpc/schemas.ts'
import type { Method } from '../../src/protocol/rexd/methods.ts'
import { requirement, STDIO, TIME, type Requirement } from './requirement.ts'

/** Values for the required fields of every method that needs a session. */
const ENOUGH: Readonly<Record<string, unknown>> = {
  process_id: 'p_x',
  argv: ['true'],
  data: '',
  path: 'x',
  content: '',
  pattern: '*',
  old_string: 'a',
  new_string: 'b',
  patch_text: '',
  cursor: 0,
  pty_id: 't_x',
  cols: 80,
  rows: 24,
}

const enoughFor = (method: Method): Record<string, unknown> =>
  Object.fromEntries(Object.entries(ENOUGH).filter(([field]) => Object.hasOwn(paramsOf(method).shape, field)))

export const SESSION_STATE_REQUIREMENTS: readonly Requirement[] = [
  requirement(
    'session.info/answer',
    'session.info returns the grants, the directory of commands and all processes',
    'session.info session.info.session_id session.info:session_id session.info:client_name session.info:opened_at session.info:cwd session.info:processes session.info:limits session.info:capabilities session.info:workspace_roots',
    async (peer) => {
      const session = await peer.session({ client_name: 'somebody' })
      const log = await session.start({ argv: ['cat'], stdin_open: true })
      const ended = await session.start({ argv: ['true'] })
      await ended.finished()
      const info = await session.call('session.info')
      assert.deepEqual([info['session_id'], info['client_name'], info['cwd']], [session.id, 'somebody', session.dir])
      assert.match(String(info['opened_at']), TIME)
      assert.deepEqual(info['workspace_roots'], [session.dir])
      assert.ok((info['capabilities'] as string[]).includes('exec.shell'))
      const [running, over] = info['processes'] as Record<string, unknown>[]
      assert.match(String(running?.['started_at']), TIME)
      const seen = ['process_id', 'argv', 'cwd', 'status', 'exit_code'].map((key) => [running?.[key], over?.[key]])
      assert.deepEqual(seen, [
        [log.id, ended.id],
        [['cat'], ['true']],
        [session.dir, session.dir],
        ['running', 'exited'],
        [null, 0],
      ])
    },
  ),
  requirement(
    'session.close/ends',
    'session.close ends every program with its children, reports each end and is final',
    'session.close session.close.session_id session.close:ok session.close:terminated exec.exit',
    async (peer) => {
      const session = await peer.session()
      const logs = await Promise.all([session.shell('sleep 1000 & wait'), session.start({ argv: ['sleep', '1000'] })])
      assert.deepEqual(await session.close(), { ok: true, terminated: 2 })
      for (const log of logs) assert.equal((await log.finished())['signal'], 'SIGTERM')
      await session.failure(-32001, 'session.info')
      await session.failure(-32001, 'session.close')
    },
  ),
  requirement(
    'session/unknown',
    'every method refuses a session of another connection',
    `-32001 ${METHODS.filter((method) => method !== 'session.open')
      .map((method) => `${method}.session_id`)
      .join(' ')}`,
    async (peer) => {
      for (const method of METHODS.filter((one) => one !== 'session.open' && one !== 'session.resume')) {
        const { data } = await peer.failure(-32001, method, { ...enoughFor(method), session_id: 's_AAAAAAAAAAAAAAAAAAAAAA' })
        assert.equal(data['session_id'], 's_AAAAAAAAAAAAAAAAAAAAAA', method)
      }
    },
  ),
  requirement(
    'session/apart',
    'sessions of one connection cannot reach each other',
    '-32005 exec.wait.process_id exec.kill.process_id exec.input.process_id',
    async (peer) => {
      const [one, other] = [await peer.session(), await peer.session()]
      const log = await one.start({ argv: ['cat'], stdin_open: true })
      for (const [method, params] of [
        ['exec.wait', {}],
        ['exec.kill', { signal: 'KILL' }],
        ['exec.input', { data: 'x' }],
      ] as const)
        assert.equal((await other.failure(-32005, method, { process_id: log.id, ...params })).data['process_id'], log.id)
      assert.deepEqual(
        await peer.home.refusalsOf(other.id),
        ['exec.wait', 'exec.kill', 'exec.input'].map((method) => `${method} unknown_process: ${log.id} does not belong to this session`),
      )
      assert.deepEqual((await other.call('session.info'))['processes'], [])
      await other.failure(-32002, 'fs.list', { path: one.dir })
      await other.close()
      assert.equal((await one.wait(log, { timeout_ms: 0 }))['status'], 'running')
    },
  ),
  requirement(
    'session/not-kept',
    'over stdio a session cannot be resumed',
    'session.open.resumable session.resume session.resume.resume_token session.resume.cursor session.events session.events.cursor session.events.timeout_ms -32007',
    async (peer) => {
      const session = await peer.session()
      assert.equal((await peer.failure(-32007, 'session.open', { client_name: 'x', resumable: true })).data['capability'], 'resume')
      await session.failure(-32007, 'session.resume', { resume_token: 'x', cursor: 0 })
      await session.failure(-32007, 'session.events', { cursor: 0, timeout_ms: 0 })
    },
    { only: STDIO },
  ),
]
