import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'

import { isRunning, until } from '../../test/support/mesh-of-daemons.ts'
import { writtenWhenHeld } from '../../test/support/rexd-output.ts'
import type { Result, Session } from './peer.ts'
import type { ProcessLog } from './process-log.ts'
import { requirement, type Requirement } from './requirement.ts'
import type { ConfigOptions } from './server.ts'
import { MAX_RPC_WAITS } from '../../src/doors/rpc/call-slots.ts'

const ROOMY: ConfigOptions = { limits: ['max_output_bytes = 67108864'], security: ['allow_shell = true'] }

/** Starts a program that writes more than all buffers hold, while the client does not read. Returns its PID. */
const held = async (session: Session): Promise<{ log: ProcessLog; pid: number }> => {
  const log = await session.shell('echo pid $$; read go; exec seq 1 8000000', { stdin_open: true })
  await until('it is there', () => log.pids().length === 1)
  const [pid] = log.pids()
  session.peer.pause()
  void session.call('exec.input', { process_id: log.id, data: 'go\n', eof: true })
  const written = await writtenWhenHeld(pid!)
  assert.ok(written > 0, 'it has not come to its end')
  return { log, pid: pid! }
}

/** Waits until the server has processed all earlier requests, even if its answers are not read. */
const workedOn = async (session: Session, mark: string): Promise<void> => {
  void session.call('fs.write', { path: mark, content: '' })
  await until('what was asked is worked on', () => existsSync(session.path(mark)))
}

export const HELD_REQUIREMENTS: readonly Requirement[] = [
  requirement(
    'exec.wait/held',
    'a program whose output is not read is held, and if it is killed, its end follows all of its output',
    'exec.wait:held exec.wait:status session.info:processes exec.exit:signal',
    async (peer) => {
      const session = await peer.session()
      const { log, pid } = await held(session)
      const told = session.wait(log, { timeout_ms: 0 })
      const info = session.call<{ processes: Result[] }>('session.info')
      await workedOn(session, 'one')
      const killed = session.call('exec.kill', { process_id: log.id, signal: 'KILL' })
      await until('it is gone', () => !isRunning(pid))
      const after = session.wait(log, { timeout_ms: 0 })
      await workedOn(session, 'two')
      peer.resume()
      const [known] = (await info).processes
      for (const { status, signal, held: isHeld } of [await told, known!, await after])
        assert.deepEqual([status, signal, isHeld], ['running', null, true])
      assert.deepEqual(await killed, { ok: true })
      const { signal, bytes_stdout, truncated } = await log.finished()
      assert.deepEqual([signal, bytes_stdout, truncated], ['SIGKILL', log.stdout.length, false])
      const over = await session.wait(log)
      assert.deepEqual([over['status'], over['held']], ['killed', false])
    },
    { config: ROOMY },
  ),
  requirement(
    'session.close/held',
    'a session with a held program closes as fast as others, and waits for the program are answered',
    'session.close session.close:terminated exec.wait',
    async (peer) => {
      const session = await peer.session()
      const { log, pid } = await held(session)
      const waited = peer.ask('exec.wait', { session_id: session.id, process_id: log.id })
      await workedOn(session, 'mark')
      const closed = session.close()
      await until('its program is gone', () => !isRunning(pid))
      const own = async () => (await peer.home.journal()).filter(({ session_id }) => session_id === session.id)
      await until('it is closed', async () => (await own()).some(({ state }) => state === 'closed'))
      // Uses the times of the journal from the last earlier action on, so that delays of the test do not count.
      const [asked, ended, over] = (await own())
        .filter(({ event, state }) => event === 'file_write' || event === 'exit' || state === 'closed')
        .map(({ ts }) => Date.parse(String(ts)))
      assert.ok(asked! <= ended! && over! - asked! < 7_000, 'a session whose programs do not end is given eight seconds')
      peer.resume()
      assert.deepEqual(await closed, { ok: true, terminated: 1 })
      assert.notEqual((await waited).result?.['status'], 'running')
    },
    { config: ROOMY },
  ),
  requirement(
    'exec.wait/many',
    'the number of waits per connection is limited, and an answered wait makes room',
    'exec.wait -32008',
    async (peer) => {
      const session = await peer.session()
      const log = await session.start({ argv: ['cat'], stdin_open: true })
      const other = await session.start({ argv: ['cat'], stdin_open: true })
      const waits = Array.from({ length: MAX_RPC_WAITS - 1 }, async () => session.wait(log))
      const last = session.wait(other)
      const { data } = await session.failure(-32008, 'exec.wait', { process_id: log.id, timeout_ms: 0 })
      assert.deepEqual([data['limit'], data['max']], ['waits', MAX_RPC_WAITS])
      await session.call('exec.input', { process_id: other.id, data: '', eof: true })
      assert.equal((await last)['status'], 'exited')
      assert.equal((await session.wait(log, { timeout_ms: 0 }))['status'], 'running')
      await session.call('exec.input', { process_id: log.id, data: '', eof: true })
      for (const wait of waits) assert.equal((await wait)['status'], 'exited')
    },
    { only: { names: ['stdio', 'websocket'], because: 'over HTTP each would be a connection' } },
  ),
]
