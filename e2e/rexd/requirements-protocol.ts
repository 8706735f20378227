import assert from 'node:assert/strict'

import { METHODS, paramsOf } from '../../src/doors/rpc/schemas.ts'
import { MAX_RPC_BATCH, MAX_RPC_ID, MAX_RPC_MESSAGE } from '../../src/protocol/limits/rexd.ts'
import type { Method } from '../../src/protocol/rexd/methods.ts'
import type { Peer, Reply } from './peer.ts'
import { requirement, type Requirement } from './requirement.ts'

/** Checks that the server still works normally. */
const goesOn = async (peer: Peer): Promise<void> => {
  await peer.failure(-32601, 'no.such.method')
}

/** Sends an invalid request and returns the answer. */
const refused = async (peer: Peer, message: unknown): Promise<Reply> => {
  peer.raw(typeof message === 'string' ? message : JSON.stringify(message))
  return peer.stray()
}

/** One value of each JSON type. */
const VALUES: readonly unknown[] = [null, true, 1.5, -1, '', [], {}, [[]], { a: 1 }, ['']]

/** A value that the field rejects, or undefined. */
const wrongValue = (method: Method, field: string): unknown => {
  const schema = paramsOf(method).shape[field as never] as { safeParse(value: unknown): { success: boolean } }
  return VALUES.find((value) => !schema.safeParse(value).success)
}

/** Checks that earlier messages were processed without an answer. */
const nothingIsSaid = async (peer: Peer): Promise<void> => {
  await goesOn(peer)
  await goesOn(peer)
  assert.deepEqual(peer.strays, [])
}

/** A request of exactly this many bytes, with the ID `long`. */
const textOf = (length: number): string => {
  const whole = '{"jsonrpc":"2.0","id":"long","method":"no.such.method","params":{"x":""}}'
  return whole.replace('""', `"${'x'.repeat(length - whole.length)}"`)
}

const longest = async (peer: Peer): Promise<void> => {
  const answer = peer.answerTo('long')
  peer.raw(textOf(MAX_RPC_MESSAGE))
  assert.equal((await answer).error?.code, -32601)
}

const FORM: readonly Requirement[] = [
  requirement('rpc/id', 'an answer has the ID of its request: a text, a whole number or null', '-32601', async (peer) => {
    for (const id of ['', 'a b', 'x'.repeat(MAX_RPC_ID), 0, -7, Number.MAX_SAFE_INTEGER]) {
      const { error } = await peer.ask('no.such.method', {}, id)
      assert.equal(error?.code, -32601)
    }
    const { id, error } = await refused(peer, { jsonrpc: '2.0', id: null, method: 'no.such.method' })
    assert.deepEqual([id, error?.code], [null, -32601])
  }),
  requirement('rpc/parse-error', 'invalid JSON gets a parse error, and the connection continues', '-32700', async (peer) => {
    for (const text of ['{', '{"jsonrpc":"2.0"', 'nonsense', "{'a':1}", '{"a":1}{"b":2}', '\u0000', '"\t"', 'NaN', '['.repeat(10_000)]) {
      const { id, error } = await refused(peer, text)
      assert.deepEqual([id, error?.code], [null, -32700], text.slice(0, 20))
    }
    await goesOn(peer)
  }),
  requirement('rpc/method', 'an unknown method is refused with a list of the methods', '-32601', async (peer) => {
    for (const method of ['', 'exec', 'exec.run', 'Session.open', 'constructor', '__proto__', 'toString', 'x'.repeat(100_000)]) {
      const { message, data } = await peer.failure(-32601, method, {})
      assert.deepEqual(data['methods'], METHODS)
      assert.ok(message.length < 1_000)
    }
  }),
]

const FIELDS: readonly Requirement[] = METHODS.flatMap((method) => [
  requirement(`${method}/unknown-field`, 'an unknown field is refused by its name', '-32602', async (peer) => {
    for (const field of ['surprise', '__proto__', 'toString', 'Path']) {
      const { message } = await peer.failure(-32602, method, JSON.parse(`{${JSON.stringify(field)}:1}`) as object as never)
      assert.ok(message.includes(`${field}: unknown key`), message)
    }
  }),
  requirement(`${method}/wrong-kind`, 'each field accepts its own type, and an error names the field', '-32602', async (peer) => {
    for (const field of Object.keys(paramsOf(method).shape)) {
      const value = wrongValue(method, field)
      if (value === undefined) continue
      const { message } = await peer.failure(-32602, method, { [field]: value })
      assert.ok(message.includes(field), `${field}: ${message}`)
    }
  }),
])

const FLOW: readonly Requirement[] = [
  requirement('rpc/notification', 'a notification is executed and never answered', 'session.close', async (peer) => {
    const session = await peer.session()
    peer.notify('no.such.method')
    peer.notify('session.open', { nonsense: 1 })
    peer.notify('session.info', { session_id: 'nobody' })
    peer.notify('session.close', { session_id: session.id })
    for (;;) if ((await peer.ask('session.info', { session_id: session.id })).error?.code === -32001) break
    await nothingIsSaid(peer)
  }),
  requirement('rpc/batch', 'a batch is answered by one list of the required answers', '-32600', async (peer) => {
    const batch = [
      { jsonrpc: '2.0', id: 'one', method: 'no.such.method' },
      { jsonrpc: '2.0', method: 'no.such.method' },
      { jsonrpc: '2.0', id: 'two', method: 'session.open', params: { client_name: 'batch' } },
      7,
    ]
    peer.raw(JSON.stringify(batch))
    const answers = await peer.stray<Reply[]>()
    assert.equal(answers.length, 3)
    const of = (id: unknown): Reply | undefined => answers.find((answer) => answer.id === id)
    assert.equal(of('one')?.error?.code, -32601)
    assert.equal(of(null)?.error?.code, -32600)
    assert.match(String(of('two')?.result?.['session_id']), /^s_/)
  }),
  requirement(
    'rpc/batch-size',
    `an empty batch and one of more than ${MAX_RPC_BATCH} requests are one invalid request`,
    '-32600',
    async (peer) => {
      const one = { jsonrpc: '2.0', id: 'b', method: 'no.such.method' }
      for (const batch of [[], Array.from({ length: MAX_RPC_BATCH + 1 }, () => one)]) {
        const { id, error } = await refused(peer, batch)
        assert.deepEqual([id, error?.code], [null, -32600])
      }
      peer.raw(JSON.stringify(Array.from({ length: MAX_RPC_BATCH }, () => one)))
      assert.equal((await peer.stray<Reply[]>()).length, MAX_RPC_BATCH)
    },
  ),
  requirement('rpc/out-of-order', 'a request that waits does not delay others', 'exec.wait', async (peer) => {
    const session = await peer.session()
    const log = await session.start({ argv: ['cat'], stdin_open: true })
    const waited = peer.ask('exec.wait', { session_id: session.id, process_id: log.id })
    const { at } = await peer.ask('session.info', { session_id: session.id })
    await session.call('exec.input', { process_id: log.id, data: '', eof: true })
    const reply = await waited
    assert.ok(reply.at > at)
    assert.equal(reply.result?.['status'], 'exited')
  }),
  requirement(
    'rpc/too-long',
    `a message of more than ${MAX_RPC_MESSAGE} bytes is refused, and the connection continues`,
    '-32008',
    async (peer) => {
      const answer = peer.answerTo('long')
      peer.raw(textOf(MAX_RPC_MESSAGE + 1))
      const { error } = await answer
      assert.deepEqual([error?.code, error?.data['max']], [-32008, MAX_RPC_MESSAGE])
      await longest(peer)
    },
    { only: { names: ['stdio'], because: 'a WebSocket is closed by it (RFC 6455, 7.4.1: 1009), and a POST has one answer' } },
  ),
  requirement(
    'rpc/too-long-body',
    `a body of more than ${MAX_RPC_MESSAGE} bytes is refused with id null, and the connection continues`,
    '-32008',
    async (peer) => {
      const { id, error } = await refused(peer, textOf(MAX_RPC_MESSAGE + 1))
      assert.deepEqual([id, error?.code, error?.data['max']], [null, -32008, MAX_RPC_MESSAGE])
      await longest(peer)
    },
    { only: { names: ['http'], because: 'of a line the id is read' } },
  ),
  requirement(
    'rpc/too-long-for-socket',
    `a text of more than ${MAX_RPC_MESSAGE} bytes closes its connection and no other`,
    '',
    async (peer) => {
      const other = await peer.another()
      await longest(other)
      other.raw(textOf(MAX_RPC_MESSAGE + 1))
      assert.match(await other.closed, /closed with 1009 /)
      await goesOn(peer)
    },
    { only: { names: ['websocket'], because: 'anything else passes over what is too long' } },
  ),
]

/** Checks that a hostile request gets an answer other than an internal error, and that the session and its program still exist. */
const isSurvived = async (peer: Peer, method: string, params: Record<string, unknown>): Promise<void> => {
  const session = await peer.session()
  const log = await session.start({ argv: ['cat'], stdin_open: true })
  const ids = method === 'exec.kill' ? { session_id: session.id, process_id: log.id } : { session_id: session.id }
  const { error } = await peer.ask(method, { ...ids, ...params })
  assert.notEqual(error?.code, -32603, `${method} ${Object.keys(params).join()}: ${JSON.stringify(error)}`)
  assert.equal((await session.wait(log, { timeout_ms: 0 }))['status'], 'running', 'a program of another request was ended')
}

const LONE = 'a\ud800'
const wide = (characters: number): string => 'é'.repeat(characters)
/** Texts that have the maximum number of characters and more bytes, or that UTF-8 cannot encode. */
const HOSTILE: readonly (readonly [string, string, Record<string, unknown>])[] = [
  ['fs.stat.path', 'wide', { path: wide(4_000) }],
  ['fs.stat.path', 'no Unicode', { path: LONE }],
  ['fs.glob.pattern', 'wide', { pattern: wide(4_000) }],
  ['fs.glob.pattern', 'no Unicode', { pattern: LONE }],
  ['fs.glob.cwd', 'no Unicode', { cwd: LONE, pattern: '*' }],
  ['fs.write.expected_mtime', 'wide', { path: 'x', content: '', expected_mtime: wide(64) }],
  ['fs.edit.expected_mtime', 'no Unicode', { path: 'x', old_string: 'a', new_string: 'b', expected_mtime: LONE }],
  ['fs.patch.cwd', 'no Unicode', { patch_text: '*** Begin Patch\n*** Delete File: a\n*** End Patch', cwd: LONE }],
  ['exec.start.argv', 'one of 40 KiB', { argv: ['echo', 'x'.repeat(40 * 1024)] }],
  ['exec.start.argv', 'of 400 KiB together', { argv: ['echo', ...Array.from({ length: 20 }, () => 'x'.repeat(20 * 1024))] }],
  ['exec.start.argv', 'no Unicode', { argv: ['echo', LONE] }],
  ['exec.start.command', 'of 40 KiB', { shell: true, command: `: ${'x'.repeat(40 * 1024)}` }],
  ['exec.start.cwd', 'wide', { argv: ['true'], cwd: wide(4_000) }],
  ['exec.start.env', 'a value of 200 KiB', { argv: ['true'], env: { LC_TIME: 'x'.repeat(200 * 1024) } }],
  ['exec.start.env', 'a wide name', { argv: ['true'], env: { [wide(64)]: 'x' } }],
  ['exec.kill.signal', 'wide', { signal: wide(16) }],
]
const HOSTILE_OPENING: readonly (readonly [string, string, Record<string, unknown>])[] = [
  ['session.open.client_name', 'wide', { client_name: wide(64) }],
  ['session.open.client_name', 'no Unicode', { client_name: LONE }],
  ['session.open.workspace_roots', 'no Unicode', { client_name: 'x', workspace_roots: [LONE] }],
  ['session.open.requested_capabilities', 'wide', { client_name: 'x', requested_capabilities: [wide(64)] }],
]

const SURVIVAL: readonly Requirement[] = [...HOSTILE, ...HOSTILE_OPENING].map(([field, what, params]) => {
  const [, method = ''] = /^(\w+\.\w+)\./.exec(field) ?? []
  return requirement(
    `${field}/${what.replaceAll(' ', '-')}`,
    `a hostile value (${what}) disturbs neither its session nor its programs`,
    field,
    async (peer) => {
      if (method !== 'session.open') return isSurvived(peer, method, params)
      const session = await peer.session()
      const { error } = await peer.ask(method, params)
      assert.notEqual(error?.code, -32603, JSON.stringify(error))
      await session.call('session.info')
    },
  )
})

export const PROTOCOL_REQUIREMENTS: readonly Requirement[] = [...FORM, ...FIELDS, ...FLOW, ...SURVIVAL]
