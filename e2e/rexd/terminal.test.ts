import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { streams } from '../../src/sdk/byte-transport.ts'
import { connect, type RexdClient } from '../../src/sdk/client.ts'
import type { RexdSession } from '../../src/sdk/session.ts'
import { watching } from '../../test/support/terminal-text.ts'
import { startRexd } from './server.ts'

// Terminals over stdio, used with the SDK.

const GRANTED = { security: ['allow_shell = true', 'allow_pty = true'], limits: ['max_output_bytes = 10000000'] }
const MAX_SHOWN = 10_000_000

interface Caller {
  readonly client: RexdClient
  readonly session: RexdSession
}

/** A client with one session. */
const caller = async (t: TestContext, options: Parameters<typeof startRexd>[1] = GRANTED): Promise<Caller> => {
  const { child } = await startRexd(t, options)
  const client = await connect({ transport: streams(child.stdout, child.stdin) })
  t.after(async () => client.close())
  return { client, session: await client.open({ clientName: 'test' }) }
}

test('a program does not inherit the controlling side of other terminals', async (t) => {
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

test('a terminal and its server end with the client', async (t) => {
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
