import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { until } from '../../test/support/mesh-of-daemons.ts'
import { Peer, type Session } from './peer.ts'
import { allGone } from './processes.ts'
import { startRexd } from './server.ts'
import { NO_SSHD, startSshd } from './sshd.ts'
import { StdioWire } from './stdio-wire.ts'

// The intended use on a remote machine: `ssh -T host rexd --stdio`.

const without = NO_SSHD === null ? '' : ` (skipped: ${NO_SSHD})`
const OVER_SSH = { skip: NO_SSHD !== null, timeout: 60_000 }

const peerOverSsh = async (t: TestContext): Promise<Peer> => {
  const roomy = { limits: ['max_output_bytes = 100000000', 'max_file_read_bytes = 2097152'], security: ['allow_shell = true'] }
  return new Peer(new StdioWire(await startRexd(t, roomy, {}, await startSshd(t))))
}

/** A program with a child in its own session. Returns the PIDs of both and of their rexd. */
const family = async (session: Session): Promise<number[]> => {
  const log = await session.shell('setsid sleep 1000 & echo pid $!; echo pid $$; echo pid $PPID; wait', { timeout_ms: 200_000 })
  await until('all are there', () => log.pids().length === 3)
  return log.pids()
}

test(`a session through ssh runs commands with input and changes files${without}`, OVER_SSH, async (t) => {
  const peer = await peerOverSsh(t)
  const session = await peer.session({ client_name: 'from elsewhere' })
  const log = await session.start({ argv: ['sh', '-c', 'cat; echo error >&2; exit 7'], stdin: 'first ', stdin_open: true })
  await session.call('exec.input', { process_id: log.id, data: 'grün\n', eof: true })
  assert.equal((await log.finished())['exit_code'], 7)
  assert.deepEqual([log.stdout.toString(), log.stderr.toString()], ['first grün\n', 'error\n'])
  const { mtime } = await session.call('fs.write', { path: 'file', content: 'one' })
  await session.call('fs.edit', { path: 'file', old_string: 'one', new_string: 'two', expected_mtime: mtime })
  assert.equal(await readFile(session.path('file'), 'utf8'), 'two')
  await session.failure(-32002, 'fs.read', { path: '/etc/passwd' })
  assert.deepEqual(await session.close(), { ok: true, terminated: 0 })
  await peer.close()
  assert.equal(await peer.process.exited, 0, 'the status of rexd is that of ssh')
  assert.equal((await peer.home.journal()).at(-1)?.['client_name'], 'from elsewhere')
})

test(`through ssh, the end of the client's input ends every program and the server${without}`, OVER_SSH, async (t) => {
  const peer = await peerOverSsh(t)
  const pids = await family(await peer.session())
  await peer.close()
  await allGone(pids)
})
