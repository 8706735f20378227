import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

import fc from 'fast-check'

import { approverKeyOf, Seal } from '../../src/desk/seal.ts'
import {
  readEngineBody,
  readHello,
  readApprovalClientBody,
  readSealed,
  readToEngineBody,
  readToApprovalClientBody,
  type DeskDirection,
  type DeskRole,
} from '../../src/protocol/desk/messages.ts'
import { fromHex, toHex } from '../../src/protocol/ids.ts'

interface Vectors {
  readonly keys: { readonly operator_key: string; readonly human_key: string; readonly socket_token: string }
  readonly hello: string
  readonly lines: readonly {
    readonly role: DeskRole
    readonly direction: DeskDirection
    readonly server_nonce: string
    readonly line: string
  }[]
  readonly bodies: Readonly<Record<string, readonly object[]>>
  readonly refused: Readonly<Record<string, readonly { readonly why: string; readonly body: object }[]>>
}

const vectors = JSON.parse(readFileSync(new URL('../../proto/desk-vectors.json', import.meta.url), 'utf8')) as Vectors
const bytes = (value: object): Uint8Array => Buffer.from(JSON.stringify(value))
const READERS: Readonly<Record<string, (bytes: Uint8Array) => unknown>> = {
  to_desk_by_engine: readEngineBody,
  to_desk_by_human: readApprovalClientBody,
  from_desk_to_engine: readToEngineBody,
  from_desk_to_human: readToApprovalClientBody,
}
const keyOf = (role: DeskRole): Uint8Array =>
  role === 'human' ? fromHex(vectors.keys.human_key) : Buffer.from(vectors.keys.socket_token, 'base64')

test('the key of approvers is derived from the operator key as in the vectors', () => {
  assert.equal(toHex(approverKeyOf(fromHex(vectors.keys.operator_key))), vectors.keys.human_key)
})

test('the first line of the approval service is read as in the vectors, and other lines are refused', () => {
  assert.deepEqual(readHello(Buffer.from(vectors.hello)), { nonce: vectors.lines[0]?.server_nonce })
  for (const other of ['{}', '[]', '{', vectors.hello.replace('"version":3', '"version":1'), vectors.hello.replace('}', ',"x":1}')])
    assert.equal(typeof readHello(Buffer.from(other)), 'string', other)
  assert.match(String(readHello(Buffer.from(vectors.hello.replace('"version":3', '"version":1')))), /version 1 .* restart the older/)
})

for (const [kind, bodies] of Object.entries(vectors.bodies))
  test(`every body of the vectors is read (${kind})`, () => {
    for (const body of bodies) assert.deepEqual(READERS[kind]?.(bytes(body)), body)
  })

for (const [kind, bodies] of Object.entries(vectors.refused))
  test(`every invalid body of the vectors is refused (${kind})`, () => {
    for (const { why, body } of bodies) assert.equal(typeof READERS[kind]?.(bytes(body)), 'string', why)
  })

test('a body with an additional, missing or wrong field is refused at every level', () => {
  const paths = (value: unknown, at: readonly string[] = []): (readonly string[])[] =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.entries(value).flatMap(([key, inner]) => [[...at, key], ...paths(inner, [...at, key])])
      : []
  const changed = (body: object, path: readonly string[], how: (parent: Record<string, unknown>, key: string) => void): object => {
    const copy = structuredClone(body) as Record<string, unknown>
    let parent = copy
    for (const key of path.slice(0, -1)) parent = parent[key] as Record<string, unknown>
    how(parent, path.at(-1) ?? '')
    return copy
  }
  const optional = new Set(['expires_in_ms', 'uses', 'won_by', 'decision'])
  let tried = 0
  for (const [kind, bodies] of Object.entries(vectors.bodies)) {
    const read = READERS[kind]!
    for (const body of bodies)
      for (const path of paths(body)) {
        // The fields of a result depend on the request.
        if (path[0] === 'result') continue
        const refused = (other: object): void => assert.equal(typeof read(bytes(other)), 'string', JSON.stringify(other))
        refused(changed(body, path, (parent, key) => (parent[key] = { never: true })))
        refused(changed(body, path, (parent) => (parent['zz'] = 1)))
        if (!optional.has(path.at(-1) ?? '')) refused(changed(body, path, (parent, key) => delete parent[key]))
        tried += 1
      }
  }
  assert.ok(tried > 200, String(tried))
})

test('any other bytes give an error message and never an exception', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (any) => {
      for (const read of [...Object.values(READERS), readSealed, readHello]) assert.equal(typeof read(any), 'string')
    }),
  )
  const deep = Buffer.from('{"type":'.repeat(40) + '1' + '}'.repeat(40))
  for (const read of Object.values(READERS)) assert.equal(typeof read(deep), 'string')
})

test('every line of the vectors opens only for its role, key, direction, connection and time', () => {
  for (const { role, direction, server_nonce, line } of vectors.lines) {
    const { ts } = JSON.parse(line) as { ts: number }
    const seal = (changed: Partial<ConstructorParameters<typeof Seal>[0]> = {}): Seal =>
      new Seal({
        key: keyOf(role),
        role,
        serverNonce: server_nonce,
        side: direction === 'to_desk' ? 'desk' : 'client',
        now: () => ts,
        ...changed,
      })
    const open = seal()
    assert.equal(open.open(Buffer.from(line)).kind, 'body')
    assert.equal(open.open(Buffer.from(line)).kind, 'refused', 'it came before')
    const other = role === 'human' ? 'engine' : 'human'
    assert.equal(seal({ role: other }).open(Buffer.from(line)).kind, 'refused')
    assert.equal(seal({ key: keyOf(other) }).open(Buffer.from(line)).kind, 'refused')
    assert.equal(seal({ side: direction === 'to_desk' ? 'client' : 'desk' }).open(Buffer.from(line)).kind, 'refused')
    assert.equal(seal({ serverNonce: 'B'.repeat(43) }).open(Buffer.from(line)).kind, 'refused')
    for (const off of [-10_000, 10_000]) assert.equal(seal({ now: () => ts + off }).open(Buffer.from(line)).kind, 'body')
    for (const off of [-10_001, 10_001]) assert.equal(seal({ now: () => ts + off }).open(Buffer.from(line)).kind, 'refused')
  }
})

test('a line with one changed character is refused', () => {
  const { line, role, server_nonce } = vectors.lines[2]!
  const { ts } = JSON.parse(line) as { ts: number }
  fc.assert(
    fc.property(fc.nat(line.length - 1), fc.constantFrom(...'az09AZ{}":,_ '), (at, character) => {
      if (line[at] === character) return
      const seal = new Seal({ key: keyOf(role), role, serverNonce: server_nonce, side: 'desk', now: () => ts })
      const opened = seal.open(Buffer.from(line.slice(0, at) + character + line.slice(at + 1)))
      assert.equal(opened.kind, 'refused')
    }),
    { numRuns: 500 },
  )
})
