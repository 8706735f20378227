import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import * as z from 'zod'

import { METHODS, paramsOf } from '../../../src/doors/rpc/schemas.ts'
import { MAX_RPC_BATCH, MAX_RPC_ID, MAX_RPC_MESSAGE } from '../../../src/protocol/limits/rexd.ts'
import { CAPABILITY_NAMES } from '../../../src/protocol/rexd/fields.ts'

const FILE = fileURLToPath(new URL('../../../proto/rexd.json', import.meta.url))

/** The requests in JSON Schema 2020-12, for other implementations. docs/rexd.md describes the answers and events. */
const described = (): object => ({
  protocol: 'rexd/1',
  capabilities: CAPABILITY_NAMES,
  limits: { message_bytes: MAX_RPC_MESSAGE, batch_requests: MAX_RPC_BATCH, id_characters: MAX_RPC_ID },
  params: Object.fromEntries(
    METHODS.map((method) => {
      const { $schema: _dialect, ...rest } = z.toJSONSchema(paramsOf(method), { io: 'input', unrepresentable: 'throw' })
      return [method, rest]
    }),
  ),
})

test('proto/rexd.json matches the parameters of all methods (X0X_WRITE=1 writes the file again)', () => {
  const now = `${JSON.stringify(described(), null, 2)}\n`
  if (process.env['X0X_WRITE'] === '1') writeFileSync(FILE, now)
  assert.deepEqual(JSON.parse(readFileSync(FILE, 'utf8')), JSON.parse(now))
})
