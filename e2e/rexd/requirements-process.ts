import assert from 'node:assert/strict'

import { until } from '../../test/support/mesh-of-daemons.ts'
import { allGone } from './processes.ts'
import { requirement, withoutCursor, type Requirement } from './requirement.ts'

const EVENTS: readonly Requirement[] = [
  requirement(
    'exec.stdout/event',
    'output arrives unchanged and without additions, numbered from 1 for each stream',
    'exec.stdout exec.stdout:session_id exec.stdout:process_id exec.stdout:seq exec.stdout:data exec.stdout:encoding exec.stderr exec.stderr:seq exec.stderr:data exec.stderr:encoding exec.stderr:session_id exec.stderr:process_id',
    async (peer) => {
      const session = await peer.session()
      const log = await session.start({ argv: ['printf', 'x'] })
      const exit = await log.finished()
      assert.deepEqual([log.stdout.toString(), exit['bytes_stdout'], exit['bytes_stderr']], ['x', 1, 0])
      const params = withoutCursor(peer, log.events[0]!.params)
      assert.deepEqual(params, { session_id: session.id, process_id: log.id, seq: 1, data: 'x', encoding: 'utf8' })
      const both = await session.shell('printf a; printf b >&2; sleep 0.1; printf c; printf d >&2')
      const { bytes_stdout, bytes_stderr } = await both.finished()
      assert.deepEqual([both.stdout.toString(), both.stderr.toString(), bytes_stdout, bytes_stderr], ['ac', 'bd', 2, 2])
      const error = both.events.find(({ method }) => method === 'exec.stderr')!
      assert.deepEqual(Object.keys(withoutCursor(peer, error.params)).sort(), Object.keys(params).sort())
    },
  ),
  requirement(
    'exec.exit/event',
    'the end of a program is sent once and last, with its cause and byte counts',
    'exec.exit exec.exit:session_id exec.exit:process_id exec.exit:exit_code exec.exit:signal exec.exit:timed_out exec.exit:duration_ms exec.exit:bytes_stdout exec.exit:bytes_stderr',
    async (peer) => {
      const session = await peer.session()
      const log = await session.shell('printf abc; printf de >&2; exit 42')
      const { duration_ms, ...exit } = withoutCursor(peer, await log.finished())
      assert.ok(Number.isInteger(duration_ms) && Number(duration_ms) >= 0)
      assert.deepEqual(exit, {
        session_id: session.id,
        process_id: log.id,
        exit_code: 42,
        signal: null,
        timed_out: false,
        bytes_stdout: 3,
        bytes_stderr: 2,
        truncated: false,
      })
      const killed = await (await session.shell('kill -USR1 $$')).finished()
      assert.deepEqual([killed['exit_code'], killed['signal']], [null, 'SIGUSR1'])
    },
  ),
  requirement(
    'exec.exit/descendants',
    'processes that a command left running are ended and counted',
    'exec.exit:descendants_ended exec.wait:descendants_ended',
    async (peer) => {
      const session = await peer.session()
      const log = await session.shell('setsid sleep 1000 </dev/null >/dev/null 2>&1 &')
      assert.equal((await log.finished())['descendants_ended'], 1)
      assert.equal((await session.wait(log))['descendants_ended'], 1)
    },
  ),
]

const WAIT: readonly Requirement[] = [
  requirement(
    'exec.wait/answer',
    'exec.wait returns the state of a process, repeatedly and also long after its end',
    'exec.wait exec.wait.session_id exec.wait.process_id exec.wait.timeout_ms exec.wait:status exec.wait:exit_code exec.wait:signal exec.wait:bytes_stdout exec.wait:bytes_stderr exec.wait:held',
    async (peer) => {
      const session = await peer.session()
      const log = await session.shell('printf abc; cat; exit 3', { stdin_open: true })
      await log.printed('abc')
      const running = { status: 'running', exit_code: null, signal: null, bytes_stdout: 3, bytes_stderr: 0, held: false }
      assert.deepEqual(await session.wait(log, { timeout_ms: 0 }), running)
      assert.deepEqual(await session.wait(log, { timeout_ms: 50 }), running)
      const waited = session.wait(log)
      await session.call('exec.input', { process_id: log.id, data: '', eof: true })
      const over = { status: 'exited', exit_code: 3, signal: null, bytes_stdout: 3, bytes_stderr: 0, held: false }
      assert.deepEqual(await waited, over)
      for (const params of [{}, { timeout_ms: 0 }, { timeout_ms: 10_000 }]) assert.deepEqual(await session.wait(log, params), over)
    },
  ),
]

const KILL: readonly Requirement[] = [
  requirement(
    'exec.kill/signals',
    'a process gets a signal by its name, TERM by default, and the answer is false after its end',
    'exec.kill exec.kill.session_id exec.kill.process_id exec.kill.signal exec.kill:ok',
    async (peer) => {
      const session = await peer.session()
      const trapped = await session.shell("trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done")
      await trapped.printed('ready')
      assert.deepEqual(await session.call('exec.kill', { process_id: trapped.id, signal: 'USR1' }), { ok: true })
      await trapped.printed('usr1')
      for (const [params, signal] of [
        [{}, 'SIGTERM'],
        [{ signal: 'KILL' }, 'SIGKILL'],
        [{ signal: 'SIGINT' }, 'SIGINT'],
      ] as const) {
        const log = await session.start({ argv: ['sleep', '1000'] })
        assert.deepEqual(await session.call('exec.kill', { process_id: log.id, ...params }), { ok: true })
        assert.equal((await log.finished())['signal'], signal)
        const { status, exit_code, signal: told } = await session.wait(log)
        assert.deepEqual([status, exit_code, told], ['killed', null, signal])
        assert.deepEqual(await session.call('exec.kill', { process_id: log.id }), { ok: false })
      }
      await session.close()
    },
  ),
  requirement('exec.kill/tree', 'a signal also reaches the children of a program', 'exec.kill', async (peer) => {
    const session = await peer.session()
    const log = await session.shell('(sleep 1000 & echo pid $!; wait) & sleep 1000 & echo pid $!; wait')
    await until('both children are there', () => log.pids().length === 2)
    await session.call('exec.kill', { process_id: log.id })
    await log.finished()
    await allGone(log.pids())
  }),
]

export const PROCESS_REQUIREMENTS: readonly Requirement[] = [...EVENTS, ...WAIT, ...KILL]
