import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { Client, type CallToolResult } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

import type { ConsoleReply } from '../../src/protocol/console/messages.ts'
import { terminalProblem } from '../../src/process/terminal.ts'
import { ConsolePlace } from '../../test/support/console-place.ts'
import { isAlive, until } from '../../test/support/processes.ts'

// The tools of `rexec --mcp-stdio`, called with the client of the official library.

const OPTIONS = { timeout: 60_000, skip: terminalProblem() ?? false }
const PROGRAM = join(import.meta.dirname, '../../deploy/bin/rexec.cjs')

const connected = async (t: TestContext, place: ConsolePlace): Promise<Client> => {
  const args = [PROGRAM, '--mcp-stdio', '--whoami', 'Claude Code']
  const client = new Client({ name: 'test', version: '1' })
  t.after(async () => client.close())
  await client.connect(new StdioClientTransport({ command: process.execPath, args, env: place.env, stderr: 'pipe' }))
  return client
}

const replyIn = (answer: CallToolResult): ConsoleReply => JSON.parse(textOf(answer)) as ConsoleReply

const textOf = ({ content }: CallToolResult): string => {
  const [part] = content
  assert.ok(part?.type === 'text' && content.length === 1)
  return part.text
}

test('the exec tool runs commands on the console under the name of its server and returns the documented results', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host()
  const client = await connected(t, place)
  const exec = async (given: Record<string, unknown>): Promise<CallToolResult> =>
    client.callTool({ name: 'exec', arguments: { dir: place.dir, ...given } })
  const { tools } = await client.listTools()
  assert.deepEqual(tools.map(({ name }) => name).toSorted(), ['check_host', 'exec'])
  assert.equal(textOf(await client.callTool({ name: 'check_host' })), 'HOST RUNNING')

  const script = 'echo $REXEC_WHOAMI $A $B; cat; exit 3'
  const failed = await exec({ argv: ['sh', '-c', script], envs: ['A=1=1', 'B=2'], stdin: 'in' })
  assert.deepEqual([failed.isError, JSON.parse(textOf(failed))], [true, { exit: 3, output: 'Claude Code 1=1 2\nin' }])
  assert.deepEqual(failed.structuredContent, { exit: 3, output: 'Claude Code 1=1 2\nin' })
  for (const variables of [{ envs: { A: 'x' } }, { env: { A: 'x' } }])
    assert.deepEqual(JSON.parse(textOf(await exec({ argv: ['sh', '-c', 'echo $A'], ...variables }))), { exit: 0, output: 'x\n' })
  const missing = await exec({ argv: ['no-such-program'] })
  assert.equal(missing.isError, true)
  const { exit, error } = replyIn(missing)
  assert.deepEqual([exit, error], [127, 'not_found'])
  const timed = await exec({ argv: ['sleep', '600'], timeout: 0.2 })
  assert.deepEqual(JSON.parse(textOf(timed)), { exit: 124, output: '', error: 'timeout' })
})

test('a call that is cancelled, or whose client is gone, ends its command', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const host = await place.host()
  const client = await connected(t, place)
  for (const end of ['cancelled', 'gone'] as const) {
    const asking = new AbortController()
    const script = `echo ${end}-$$; exec sleep 600`
    const call = client.callTool({ name: 'exec', arguments: { dir: '/', argv: ['sh', '-c', script] } }, { signal: asking.signal })
    const over = call.then(
      () => false,
      () => true,
    )
    const [, pid] = await host.printed(new RegExp(`^\\| ${end}-(\\d+)$`, 'm'))
    if (end === 'cancelled') asking.abort()
    else await client.close()
    assert.equal(await over, true)
    await until(() => !isAlive(Number(pid)))
  }
})

test('without a host a call fails with host_not_found, and a call whose host dies is not sent again', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const client = await connected(t, place)
  assert.equal(textOf(await client.callTool({ name: 'check_host' })), 'HOST NOT FOUND')
  const nobody = await client.callTool({ name: 'exec', arguments: { dir: '/', argv: ['true'] } })
  assert.deepEqual([nobody.isError, replyIn(nobody).exit, replyIn(nobody).error], [true, 127, 'host_not_found'])
  const host = await place.host()
  const call = client.callTool({
    name: 'exec',
    arguments: { dir: place.dir, argv: ['sh', '-c', 'echo ran >> ran; echo begun; exec sleep 600'] },
  })
  await host.printed(/^\| begun$/m)
  host.child.kill('SIGKILL')
  const lost = await call
  assert.deepEqual([lost.isError, /whether the command ran is not known/.test(textOf(lost))], [true, true])
  await sleep(1_100)
  await place.host()
  const again = replyIn(await client.callTool({ name: 'exec', arguments: { dir: place.dir, argv: ['cat', 'ran'] } }))
  assert.equal(again.output, 'ran\n')
})

test('--mcp-stdio requires a valid name and accepts no command', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  for (const words of [['--mcp-stdio'], ['-m', '--whoami', 'a\nb'], ['-m', '--whoami', 'C', '--', 'true']])
    assert.equal((await place.rexec(words)).status, 2)
})
