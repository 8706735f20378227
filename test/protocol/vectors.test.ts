import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import * as card from '../../src/protocol/wire/card.ts'
import * as detached from '../../src/protocol/wire/detached.ts'
import * as dm from '../../src/protocol/wire/dm.ts'
import * as exec from '../../src/protocol/wire/exec.ts'
import * as link from '../../src/protocol/wire/link.ts'
import { plain, unplain } from '../support/plain.ts'

interface Codec {
  name: string
  encode(value: unknown): Uint8Array
  decode(bytes: Uint8Array): unknown
}
interface Vector {
  value: unknown
  cbor: string
}

const isCodec = (value: unknown): value is Codec => typeof value === 'object' && value !== null && 'cddl' in value && 'name' in value
const codecs = new Map(
  [card, detached, dm, exec, link].flatMap((module) => Object.values(module).filter(isCodec)).map((codec) => [codec.name, codec]),
)
const file = new URL('../../proto/vectors/messages.json', import.meta.url)
const { messages } = JSON.parse(await readFile(file, 'utf8')) as { messages: Record<string, Vector[]> }

test('every message of the wire protocol has vectors, and all vectors belong to a message', () => {
  assert.deepEqual(Object.keys(messages).toSorted(), [...codecs.keys()].toSorted())
})

for (const [name, vectors] of Object.entries(messages)) {
  test(`${name} is encoded and decoded as in its ${vectors.length} vectors`, () => {
    const codec = codecs.get(name)!
    assert.ok(vectors.length > 0)
    for (const { value, cbor } of vectors) {
      assert.equal(Buffer.from(codec.encode(unplain(value))).toString('hex'), cbor)
      assert.deepEqual(plain(codec.decode(Buffer.from(cbor, 'hex'))), value)
    }
  })
}
