import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { isRunning, until } from '../../test/support/mesh-of-daemons.ts'
import { startRexd } from './server.ts'

// Terminals over standard input and output; a small caller of its own, because what a terminal shows has no lines.

interface Message {
  readonly id?: number
  readonly method?: string
  readonly params?: Readonly<Record<string, unknown>>
  readonly result?: Readonly<Record<string, unknown>>
  readonly error?: { readonly code: number; readonly message: string; readonly data: Readonly<Record<string, unknown>> }
}

const GRANTED = { security: ['allow_shell = true', 'allow_pty = true'], limits: ['max_output_bytes = 10000000'] }

/** A caller with one session. */
const caller = async (t: TestContext, options: Parameters<typeof startRexd>[1] = GRANTED) => {
  const { child, home } = await startRexd(t, options)
  const messages: Message[] = []
  const looks = new Set<() => void>()
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    const lines = `${text}${part}`.split('\n')
    text = lines.pop() ?? ''
    messages.push(...lines.map((line) => JSON.parse(line) as Message))
    for (const look of looks) look()
  })
  const when = async <T>(find: () => T | undefined): Promise<T> =>
    new Promise((resolve) => {
      const look = (): void => {
        const found = find()
        if (found === undefined) return
        looks.delete(look)
        resolve(found)
      }
      looks.add(look)
      look()
    })
  let last = 0
  const ask = async (method: string, params: object): Promise<Message> => {
    const id = ++last
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`)
    return when(() => messages.find((message) => message.id === id))
  }
  const session = String((await ask('session.open', { client_name: 'test' })).result?.['session_id'])
  const call = async (method: string, params: object): Promise<Message> => ask(method, { session_id: session, ...params })
  const shown = (pty: unknown): string =>
    messages
      .filter(({ method, params }) => method === 'pty.output' && params?.['pty_id'] === pty)
      .map(({ params }) => String(params?.['data']))
      .join('')
  const shows = async (pty: unknown, pattern: RegExp): Promise<RegExpExecArray> => when(() => pattern.exec(shown(pty)) ?? undefined)
  const exit = async (pty: unknown): Promise<Readonly<Record<string, unknown>>> =>
    when(() => messages.find(({ method, params }) => method === 'pty.exit' && params?.['pty_id'] === pty)?.params)
  const type = async (pty: unknown, data: string): Promise<void> => {
    assert.deepEqual((await call('pty.input', { pty_id: pty, data })).result, { accepted_bytes: Buffer.byteLength(data) })
  }
  return { call, exit, home, messages, shown, shows, type }
}

test('a terminal has the size that was asked for, and another when it is resized; a prompt without a line end is seen', async (t) => {
  const { call, exit, shows, type } = await caller(t)
  const { result } = await call('pty.open', { argv: ['/bin/sh'], cols: 100, rows: 30 })
  const pty = result?.['pty_id']
  await shows(pty, /[#$] $/)
  await type(pty, 'stty size; echo $TERM\n')
  await shows(pty, /\r\n30 100\r\nxterm-256color\r\n/)
  assert.deepEqual((await call('pty.resize', { pty_id: pty, cols: 50, rows: 20 })).result, { ok: true })
  await until('the terminal has its new size', async () => {
    await type(pty, 'stty size\n')
    return shows(pty, /stty size\r\n(\d+ \d+)\r\n[^\n]*$/).then(([, size]) => size === '20 50')
  })
  await type(pty, 'exit 7\n')
  const end = await exit(pty)
  assert.deepEqual([end['exit_code'], end['signal'], end['truncated']], [7, null, false])
})

test('everything that a terminal shows arrives, also the last before its program ends', async (t) => {
  const { call, exit, shown } = await caller(t)
  const { result } = await call('pty.open', { shell: true, command: 'seq 1 100000; exit 4' })
  const pty = result?.['pty_id']
  assert.equal((await exit(pty))['exit_code'], 4)
  const expected = Array.from({ length: 100_000 }, (_none, i) => `${i + 1}\r\n`).join('')
  assert.equal(shown(pty), expected)
})

test('closing a terminal hangs up everything on it, and what has left it too', async (t) => {
  const { call, exit, shows } = await caller(t)
  const command = 'sleep 1000 & echo one $!; setsid sleep 1001 & echo two $!; echo self $$; sleep 1002'
  const pty = (await call('pty.open', { shell: true, command })).result?.['pty_id']
  const [, ...pids] = await shows(pty, /one (\d+)[^]*two (\d+)[^]*self (\d+)\r\n/)
  assert.deepEqual((await call('pty.close', { pty_id: pty })).result, { ok: true })
  const end = await exit(pty)
  assert.equal(end['exit_code'], null)
  for (const pid of pids) await until(`${pid} is gone`, () => !isRunning(Number(pid)))
})

test('no program inherits the open end of a terminal that is not its own', async (t) => {
  const { call, exit, shown, shows, messages } = await caller(t)
  const first = (await call('pty.open', { argv: ['/bin/sh'] })).result?.['pty_id']
  await shows(first, /[#$] $/)
  const second = (await call('pty.open', { argv: ['ls', '-l', '/proc/self/fd'] })).result?.['pty_id']
  await exit(second)
  assert.doesNotMatch(shown(second), /ptmx/)
  const { result } = await call('exec.start', { argv: ['ls', '-l', '/proc/self/fd'] })
  await call('exec.wait', { process_id: result?.['process_id'] })
  const output = messages.filter(({ method }) => method === 'exec.stdout').map(({ params }) => String(params?.['data']))
  assert.match(output.join(''), /1 -> socket/)
  assert.doesNotMatch(output.join(''), /ptmx/)
})

test('what a terminal is and what not: not granted, no size, no such terminal, end of file', async (t) => {
  const plain = await caller(t, { security: ['allow_shell = true'] })
  const refused = (await plain.call('pty.open', { argv: ['/bin/sh'] })).error
  assert.deepEqual([refused?.code, refused?.data], [-32_007, { code: 'unsupported_capability', capability: 'pty' }])
  assert.match(refused?.message ?? '', /allow_pty/)
  const { call, exit } = await caller(t)
  assert.equal((await call('pty.open', { argv: ['/bin/sh'], cols: 0 })).error?.code, -32_602)
  assert.equal((await call('pty.input', { pty_id: 't_none', data: 'x' })).error?.code, -32_005)
  const pty = (await call('pty.open', { argv: ['cat'] })).result?.['pty_id']
  await call('pty.input', { pty_id: pty, data: '\u0004' })
  assert.equal((await exit(pty))['exit_code'], 0)
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
