import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { ask, post } from '../../support/rexd-callers.ts'
import { gone, pidIn, runRexd, startRexd } from '../../support/rexd-server.ts'

const TIMEOUT = { timeout: 30_000 }
const SLEEP = { shell: true, command: 'echo $$ > pid; setsid sleep 1000 & sleep 1000' }

test('with --exit-on-eof, the end of its input ends rexd and its programs', TIMEOUT, async (t) => {
  const server = await startRexd(t, {}, undefined, { flags: ['--exit-on-eof'], stdin: 'pipe' })
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  await post(server, 'exec.start', { session_id, ...SLEEP })
  const program = await pidIn(join(server.root, 'pid'))
  const closed = new Promise((resolve) => server.child.once('close', (code) => resolve(code)))
  server.child.stdin!.write('what is said there is nothing to it\n')
  assert.equal((await ask(server, { token: null })).status, 401)
  server.child.stdin!.end()
  assert.equal(await closed, 0)
  await gone(program)
})

test('without --exit-on-eof rexd ignores the end of its input, and the option needs --http', TIMEOUT, async (t) => {
  const server = await startRexd(t, {}, undefined, { stdin: 'pipe' })
  server.child.stdin!.destroy()
  for (let round = 0; round < 3; round++) assert.equal((await ask(server, { token: null })).status, 401)
  for (const argv of [['--stdio'], ['--check'], []]) {
    const { status, stdout, stderr } = await runRexd('--exit-on-eof', ...argv, '--config', server.config)
    assert.deepEqual([status, stdout], [2, ''], stderr)
  }
})
