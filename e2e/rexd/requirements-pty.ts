import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'

import { until } from '../../test/support/mesh-of-daemons.ts'
import type { Params, Session } from './peer.ts'
import type { ProcessLog } from './process-log.ts'
import { allGone } from './processes.ts'
import { requirement, TIME, withoutCursor, type Requirement } from './requirement.ts'

const TERMINAL = { terminal: true }

const open = async (session: Session, params: Params): Promise<{ pty_id: string; log: ProcessLog }> => {
  const { pty_id, process_id } = await session.call('pty.open', params)
  return { pty_id: String(pty_id), log: session.peer.log(process_id) }
}

const shell = async (session: Session, command: string, params: Params = {}) => open(session, { shell: true, command, ...params })

/** Output of a terminal, split into lines. */
const linesOf = (log: ProcessLog): string[] => log.stdout.toString().split('\r\n')

const OPEN: readonly Requirement[] = [
  requirement(
    'pty.open/answer',
    'a command on a terminal of 80 by 24 has one output stream, and one event reports its end',
    `pty.open pty.open.argv pty.open:pty_id pty.open:process_id pty.open:started_at pty.open:timeout_ms pty.open:max_output_bytes pty.output pty.output:session_id pty.output:pty_id
     pty.output:process_id pty.output:seq pty.output:data pty.output:encoding pty.exit pty.exit:session_id pty.exit:pty_id pty.exit:process_id
     pty.exit:exit_code pty.exit:signal pty.exit:timed_out pty.exit:duration_ms pty.exit:bytes_stdout pty.exit:bytes_stderr pty.exit:truncated`,
    async (peer) => {
      const session = await peer.session()
      const answer = await session.call('pty.open', { argv: ['sh', '-c', 'stty size; echo $TERM; echo error >&2; exit 3'] })
      assert.deepEqual(Object.keys(answer).sort(), ['max_output_bytes', 'process_id', 'pty_id', 'started_at', 'timeout_ms'])
      assert.match(String(answer['pty_id']), /^t_[0-9a-f-]{36}$/)
      assert.match(String(answer['started_at']), TIME)
      const log = peer.log(answer['process_id'])
      const { duration_ms, ...exit } = withoutCursor(peer, await log.finished()) as { duration_ms: number }
      assert.deepEqual(linesOf(log), ['24 80', 'xterm-256color', 'error', ''])
      assert.ok(Number.isInteger(duration_ms))
      const ids = { session_id: session.id, pty_id: answer['pty_id'], process_id: log.id }
      const bytes = { bytes_stdout: log.stdout.length, bytes_stderr: 0 }
      assert.deepEqual(exit, { ...ids, exit_code: 3, signal: null, timed_out: false, ...bytes, truncated: false })
      const [first] = log.events
      const { data, ...output } = withoutCursor(peer, first!.params)
      assert.ok(String(data).startsWith('24 80'))
      assert.deepEqual([first!.method, output], ['pty.output', { ...ids, seq: 1, encoding: 'utf8' }])
      assert.equal(log.events.at(-1)!.method, 'pty.exit')
    },
    TERMINAL,
  ),
  requirement(
    'pty.exit/descendants',
    'processes that a command left running apart from its terminal are ended and counted',
    'pty.exit:descendants_ended',
    async (peer) => {
      const { log } = await shell(await peer.session(), 'trap "" HUP; setsid sleep 1000 </dev/null >/dev/null 2>&1 &')
      assert.equal((await log.finished())['descendants_ended'], 1)
    },
    TERMINAL,
  ),
  requirement(
    'pty.open/fields',
    'the options of a command also work on a terminal, and so does the size',
    'pty.open.shell pty.open.login pty.open.command pty.open.cwd pty.open.env pty.open.cols pty.open.rows -32602 -32001 -32002',
    async (peer) => {
      const session = await peer.session()
      await mkdir(session.path('sub'))
      const params = { cwd: 'sub', env: { LC_TIME: 'good day' }, cols: 100, rows: 30 }
      const { log } = await shell(session, 'pwd; echo $LC_TIME; stty size', params)
      assert.equal((await log.finished())['exit_code'], 0)
      assert.deepEqual(linesOf(log), [session.path('sub'), 'good day', '30 100', ''])
      const login = await open(session, { argv: ['sh', '-c', 'stty size'], login: true })
      await login.log.finished()
      assert.deepEqual(linesOf(login.log), ['24 80', ''])
      const argv = ['true']
      for (const wrong of [{ cols: 0 }, { rows: 0 }, { cols: 65_536 }, { rows: 1.5 }, { shell: true }, { command: 'true' }])
        await session.failure(-32602, 'pty.open', { argv, ...wrong })
      await session.failure(-32002, 'pty.open', { argv, cwd: '/' })
      await session.failure(-32001, 'pty.open', { argv, env: { LD_PRELOAD: 'x' } })
      assert.equal(((await session.call('session.info'))['processes'] as unknown[]).length, 2)
    },
    TERMINAL,
  ),
  requirement(
    'pty.open/limits',
    'timeouts and output limits also apply on a terminal',
    'pty.open.timeout_ms pty.open.max_output_bytes pty.exit:timed_out pty.exit:truncated',
    async (peer) => {
      const session = await peer.session({ limits: { hard_timeout_ms: 60_000 } })
      const late = await open(session, { argv: ['sleep', '1000'], timeout_ms: 1_500 })
      const cut = await shell(session, 'head -c 5000 /dev/zero | tr "\\0" x', { max_output_bytes: 1_000 })
      const { truncated, bytes_stdout } = await cut.log.finished()
      assert.deepEqual([truncated, bytes_stdout, cut.log.stdout.length], [true, 5_000, 1_000])
      const { timed_out, exit_code } = await late.log.finished()
      assert.deepEqual([timed_out, exit_code], [true, null])
      assert.equal((await session.wait(late.log))['status'], 'timed_out')
      assert.equal((await session.call('pty.open', { argv: ['true'], timeout_ms: 60_001 }))['timeout_ms'], 60_000)
    },
    TERMINAL,
  ),
]

/** A `cat` on a terminal that has started. */
const cat = async (session: Session): Promise<{ pty_id: string; log: ProcessLog }> => {
  const made = await shell(session, 'stty -echo; echo ready; exec cat')
  await made.log.printed('ready')
  return made
}

const USE: readonly Requirement[] = [
  requirement(
    'pty.input/data',
    'input reaches the program as text or bytes, and an end-of-file character ends it',
    'pty.input pty.input.session_id pty.input.pty_id pty.input.data pty.input.encoding pty.input:accepted_bytes -32602',
    async (peer) => {
      const session = await peer.session()
      const { pty_id, log } = await cat(session)
      assert.deepEqual(await session.call('pty.input', { pty_id, data: 'grün\n' }), { accepted_bytes: 6 })
      await log.printed('grün\r\n')
      const last = { data: Buffer.from('last\n\u0004').toString('base64'), encoding: 'base64' }
      assert.deepEqual(await session.call('pty.input', { pty_id, ...last }), { accepted_bytes: 6 })
      await session.failure(-32602, 'pty.input', { pty_id, data: '*', encoding: 'base64' })
      assert.equal((await log.finished())['exit_code'], 0)
      assert.equal(log.stdout.toString(), 'ready\r\ngrün\r\nlast\r\n')
      await session.failure(-32006, 'pty.input', { pty_id, data: 'x' })
    },
    TERMINAL,
  ),
  requirement(
    'pty.resize/size',
    'a terminal can be resized, and its program is notified',
    'pty.resize pty.resize.session_id pty.resize.pty_id pty.resize.cols pty.resize.rows pty.resize:ok -32602',
    async (peer) => {
      const session = await peer.session()
      const { pty_id, log } = await shell(session, 'trap "stty size" WINCH; echo ready; while :; do sleep 0.05; done')
      await log.printed('ready')
      assert.deepEqual(await session.call('pty.resize', { pty_id, cols: 50, rows: 20 }), { ok: true })
      await log.printed('20 50\r\n')
      for (const size of [{ cols: 0, rows: 1 }, { cols: 1, rows: 65_536 }, { cols: 1 }, { rows: 1 }])
        await session.failure(-32602, 'pty.resize', { pty_id, ...size })
      await session.close()
    },
    TERMINAL,
  ),
  requirement(
    'pty.close/hangs-up',
    'pty.close hangs up the terminal, and without kill a program that ignores SIGHUP continues',
    'pty.close pty.close.session_id pty.close.pty_id pty.close.kill pty.close:ok pty.exit:signal',
    async (peer) => {
      const session = await peer.session()
      const { pty_id, log } = await shell(session, 'sleep 1000 & echo pid $!; echo pid $$; wait')
      await until('both are there', () => pidsOf(log).length === 2)
      assert.deepEqual(await session.call('pty.close', { pty_id }), { ok: true })
      assert.deepEqual((await log.finished())['exit_code'], null)
      await allGone(pidsOf(log))
      const deaf = await shell(session, "trap 'echo hung up' HUP; echo ready; while :; do sleep 0.05; done")
      await deaf.log.printed('ready')
      assert.deepEqual(await session.call('pty.close', { pty_id: deaf.pty_id, kill: false }), { ok: true })
      await deaf.log.printed('hung up')
      assert.equal((await session.wait(deaf.log, { timeout_ms: 0 }))['status'], 'running')
      await session.call('exec.kill', { process_id: deaf.log.id, signal: 'KILL' })
      assert.equal((await deaf.log.finished())['signal'], 'SIGKILL')
    },
    TERMINAL,
  ),
  requirement(
    'pty/process',
    'exec.wait, exec.kill and session.info know the process of a terminal',
    'pty.open:process_id exec.wait exec.kill session.info:processes',
    async (peer) => {
      const session = await peer.session()
      const { log } = await cat(session)
      const [known] = (await session.call('session.info'))['processes'] as Record<string, unknown>[]
      assert.deepEqual([known?.['process_id'], known?.['status']], [log.id, 'running'])
      assert.deepEqual(await session.call('exec.kill', { process_id: log.id, signal: 'INT' }), { ok: true })
      const { status, signal } = await session.wait(log)
      assert.deepEqual([status, signal], ['killed', 'SIGINT'])
      await log.finished()
    },
    TERMINAL,
  ),
  requirement(
    'pty/unknown',
    'unknown terminals, those of other sessions and other IDs are refused',
    '-32005 pty.input.pty_id pty.resize.pty_id pty.close.pty_id',
    async (peer) => {
      const [session, other] = [await peer.session(), await peer.session()]
      const theirs = await cat(other)
      const log = await session.start({ argv: ['cat'], stdin_open: true })
      for (const pty_id of ['t_nobody', theirs.pty_id, log.id, log.id.replace('p_', 't_')]) await isUnknown(session, pty_id)
      assert.deepEqual(
        await peer.home.refusalsOf(session.id),
        ['pty.input', 'pty.resize', 'pty.close'].map(
          (method) => `${method} unknown_process: ${theirs.pty_id} does not belong to this session`,
        ),
      )
      assert.equal((await other.wait(theirs.log, { timeout_ms: 0 }))['status'], 'running')
    },
    TERMINAL,
  ),
]

const isUnknown = async (session: Session, pty_id: string): Promise<void> => {
  for (const [method, params] of [
    ['pty.input', { data: 'x' }],
    ['pty.resize', { cols: 1, rows: 1 }],
    ['pty.close', {}],
  ] as const)
    assert.equal((await session.failure(-32005, method, { pty_id, ...params })).data['pty_id'], pty_id)
}

const pidsOf = (log: ProcessLog): number[] => [...log.stdout.toString().matchAll(/^pid (\d+)\r$/gm)].map(([, pid]) => Number(pid))

export const PTY_REQUIREMENTS: readonly Requirement[] = [...OPEN, ...USE]
