import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { streams } from '../../src/sdk/byte-transport.ts'
import { connect, type RexdClient } from '../../src/sdk/client.ts'
import type { RexdSession } from '../../src/sdk/session.ts'
import { isRunning, until } from '../../test/support/mesh-of-daemons.ts'
import { watching } from '../../test/support/terminal-text.ts'
import { startRexd } from './server.ts'

// Terminals over standard input and output, by way of the client library.

const GRANTED = { security: ['allow_shell = true', 'allow_pty = true'], limits: ['max_output_bytes = 10000000'] }
const MAX_SHOWN = 10_000_000

interface Caller {
  readonly client: RexdClient
  readonly session: RexdSession
}

/** A caller with one session. */
const caller = async (t: TestContext, options: Parameters<typeof startRexd>[1] = GRANTED): Promise<Caller> => {
  const { child } = await startRexd(t, options)
  const client = await connect({ transport: streams(child.stdout, child.stdin) })
  t.after(async () => client.close())
  return { client, session: await client.open({ clientName: 'test' }) }
}

test('a terminal has the size that was asked for, and another when it is resized; a prompt without a line end is seen', async (t) => {
  const { session } = await caller(t)
  const terminal = await session.openTerminal(['/bin/sh'], { cols: 100, rows: 30 })
  const shows = watching(terminal)
  await shows(/[#$] $/)
  await terminal.write('stty size; echo $TERM\n')
  // What is typed before the prompt is echoed before it.
  await shows(/\r\n30 100\r\nxterm-256color\r\n[#$] $/)
  await terminal.resize({ cols: 50, rows: 20 })
  await until('the terminal has its new size', async () => {
    await terminal.write('stty size\n')
    return shows(/stty size\r\n(\d+ \d+)\r\n[#$] $/).then(([, size]) => size === '20 50')
  })
  await terminal.write('exit 7\n')
  const { exitCode, signal, truncated } = await terminal.exited
  assert.deepEqual([exitCode, signal, truncated], [7, null, false])
})

test('everything that a terminal shows arrives, also the last before its program ends', async (t) => {
  const { session } = await caller(t)
  const terminal = await session.openTerminal({ shell: 'seq 1 100000; exit 4' })
  const shown = await terminal.output.text(MAX_SHOWN)
  assert.equal((await terminal.exited).exitCode, 4)
  assert.equal(shown, Array.from({ length: 100_000 }, (_none, i) => `${i + 1}\r\n`).join(''))
})

test('closing a terminal hangs up everything on it, and what has left it too', async (t) => {
  const { session } = await caller(t)
  const command = 'sleep 1000 & echo one $!; setsid sleep 1001 & echo two $!; echo self $$; sleep 1002'
  const terminal = await session.openTerminal({ shell: command })
  const [, ...pids] = await watching(terminal)(/one (\d+)[^]*two (\d+)[^]*self (\d+)\r\n/)
  await terminal.close()
  assert.equal((await terminal.exited).exitCode, null)
  for (const pid of pids) await until(`${pid} is gone`, () => !isRunning(Number(pid)))
})

test('no program inherits the open end of a terminal that is not its own', async (t) => {
  const { session } = await caller(t)
  const first = await session.openTerminal(['/bin/sh'])
  await watching(first)(/[#$] $/)
  const second = await session.openTerminal(['ls', '-l', '/proc/self/fd'])
  assert.doesNotMatch(await second.output.text(MAX_SHOWN), /ptmx/)
  const { stdoutText } = await session.run(['ls', '-l', '/proc/self/fd'])
  assert.match(stdoutText, /1 -> socket/)
  assert.doesNotMatch(stdoutText, /ptmx/)
  await first.close()
})

test('what a terminal is and what not: not granted, no size, no such terminal, end of file', async (t) => {
  const { session: plain } = await caller(t, { security: ['allow_shell = true'] })
  const refused = { code: -32_007, data: { code: 'unsupported_capability', capability: 'pty' }, message: /allow_pty/ }
  await assert.rejects(plain.openTerminal(['/bin/sh']), refused)
  const { client, session } = await caller(t)
  await assert.rejects(session.openTerminal(['/bin/sh'], { cols: 0 }), { code: -32_602 })
  const terminal = await session.openTerminal({ shell: 'read line; exit 5' })
  await terminal.write('\u0004')
  assert.equal((await terminal.exited).exitCode, 5)
  const nowhere = { session_id: session.id, pty_id: 't_none', data: 'x' }
  await assert.rejects(client.call('pty.input', nowhere), { code: -32_005 })
})

test('a terminal ends with its caller', async (t) => {
  const rexd = await startRexd(t, GRANTED)
  const line = (id: number, method: string, params: object): string => `${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`
  rexd.child.stdin.write(line(1, 'session.open', { client_name: 'test' }))
  let text = ''
  for await (const part of rexd.child.stdout.setEncoding('utf8') as AsyncIterable<string>) {
    text += part
    const session = /"session_id":"(s_[^"]+)"/.exec(text)?.[1]
    if (session !== undefined && !text.includes('"id":2')) {
      rexd.child.stdin.write(line(2, 'pty.open', { session_id: session, argv: ['/bin/sh'] }))
      text += '"id":2 was asked'
    }
    const pty = /"pty_id":"(t_[^"]+)"/.exec(text)?.[1]
    if (pty !== undefined) break
  }
  rexd.child.stdin.end()
  assert.equal(await rexd.exited, 0)
})
