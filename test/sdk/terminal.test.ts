import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { RexdError, RexdProtocolError } from '../../src/sdk/errors.ts'
import { gone, pidIn } from '../support/rexd-server.ts'
import { watching } from '../support/terminal-text.ts'
import { connected } from './real-server.ts'
import { EXIT, scripted, type ScriptedLine } from './scripted-server.ts'
import { resumable } from './web-server.ts'

const ALLOWED = { security: 'allow_pty = true\nallow_env = ["COLOUR"]' }

test('a program on a terminal has the requested size and input, and reports its exit code', async (t) => {
  const { session } = await connected(t, ALLOWED)
  const options = { cols: 100, rows: 30, env: { COLOUR: 'grün' } }
  const terminal = await session.openTerminal({ shell: 'tty -s && stty size; echo "$COLOUR"; read a; stty size; exit 3' }, options)
  assert.match(terminal.startedAt, /^\d{4}-/)
  const until = watching(terminal)
  await until(/30 100\r\ngrün\r\n/)
  await terminal.resize({ cols: 120, rows: 40 })
  await terminal.write('go\r')
  await until(/40 120\r\n/)
  const { exitCode, signal } = await terminal.exited
  assert.deepEqual([exitCode, signal], [3, null])
  const { status, held } = await terminal.wait()
  assert.deepEqual([status, held], ['exited', false])
  await assert.rejects(terminal.write('more'), RexdError)
})

test('closing a terminal sends SIGHUP, and kill and abort end its program', async (t) => {
  const { session, root } = await connected(t, ALLOWED)
  const deaf = await session.openTerminal({ shell: 'trap "" TERM; echo $$ > pid; while :; do sleep 0.1; done' })
  const pid = await pidIn(join(root, 'pid'))
  await deaf.close()
  assert.equal((await deaf.exited).signal, 'SIGHUP')
  await gone(pid)
  const killed = await session.openTerminal(['sleep', '60'])
  assert.equal(await killed.kill('KILL'), true)
  assert.equal((await killed.exited).signal, 'SIGKILL')
  const stop = new AbortController()
  const aborted = await session.openTerminal(['sleep', '60'], { signal: stop.signal })
  const reading = watching(aborted)(/never/)
  stop.abort(new Error('enough of it'))
  await Promise.all([assert.rejects(reading, /enough of it/), assert.rejects(aborted.exited, /enough of it/)])
})

test('terminals require a grant and a valid size', async (t) => {
  const { session } = await connected(t)
  await assert.rejects(session.openTerminal(['true']), { name: 'unsupported_capability' })
  const { session: allowed } = await connected(t, ALLOWED)
  await assert.rejects(allowed.openTerminal(['true'], { cols: 0 }), { name: 'bad_request' })
  const terminal = await allowed.openTerminal(['sleep', '60'])
  await assert.rejects(terminal.resize({ cols: 80, rows: 70_000 }), { name: 'bad_request' })
  await terminal.kill()
  await terminal.exited
})

test('a terminal continues over the next connection', async (t) => {
  const { proxy, client, session } = await resumable(t, ALLOWED)
  const terminal = await session.openTerminal({ shell: 'while read line; do echo "got $line"; done; exit 4' })
  const until = watching(terminal)
  await terminal.write('one\r')
  await until(/got one\r\n/)
  proxy.cut()
  await session.info()
  await terminal.write('two\r')
  await until(/got two\r\n/)
  assert.equal(client.connected, true)
  await terminal.write('\u0004')
  const { exitCode, signal } = await terminal.exited
  assert.deepEqual([exitCode, signal], [4, null])
})

const OF_T = { session_id: 's_1', pty_id: 't_1', process_id: 'p_1' }

const opened = async (line: ScriptedLine, result: object): Promise<void> => line.answer(await line.next('pty.open'), result)

test('input that the server takes in parts arrives whole, and an answer without an ID is a protocol error', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const opening = session.openTerminal(['sh'], { rows: 10 })
  await opened(line, { pty_id: 't_1', process_id: 'p_1', started_at: 'now' })
  const terminal = await opening
  const typing = terminal.write('abcdef')
  const typed: string[] = []
  for (const taken of [2, 0, 4]) {
    const { params, ...asked } = await line.next('pty.input')
    typed.push(Buffer.from(String(params['data']), 'base64').toString())
    assert.equal(params['pty_id'], 't_1')
    line.answer({ ...asked, params }, { accepted_bytes: taken })
  }
  await typing
  assert.deepEqual(typed, ['abcdef', 'cdef', 'cdef'])
  line.event('pty.output', { ...OF_T, seq: 1, data: 'x', encoding: 'utf8' })
  line.event('pty.exit', { ...OF_T, ...EXIT, bytes_stdout: 1 })
  assert.equal(await terminal.output.text(10), 'x')
  assert.deepEqual(Object.keys(await terminal.exited).toSorted(), [
    'bytesStderr',
    'bytesStdout',
    'durationMs',
    'exitCode',
    'signal',
    'timedOut',
    'truncated',
  ])
  const nameless = session.openTerminal(['sh'])
  await opened(line, { process_id: 'p_2', started_at: 'now' })
  await assert.rejects(nameless, RexdProtocolError)
})
