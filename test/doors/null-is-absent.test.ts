import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as z from 'zod'

import { checkWith } from '../../src/doors/validation.ts'
import { toolsFor } from '../../src/doors/mcp/tools.ts'
import { nullIsAbsent } from '../../src/doors/null-is-absent.ts'
import { METHODS, paramsOf } from '../../src/doors/rpc/schemas.ts'
import { readConsoleLine } from '../../src/protocol/console/messages.ts'
import { readApprovalClientBody } from '../../src/protocol/desk/messages.ts'
import { CAPABILITY_NAMES } from '../../src/protocol/rexd/fields.ts'
import { startDoor } from '../support/rest-server.ts'

/** The fields of an object schema that a client may omit. */
const optionalFields = ({ shape }: z.ZodObject): [name: string, schema: z.ZodType][] =>
  Object.entries(shape as Record<string, z.ZodType>).filter(([, schema]) => schema.safeParse(undefined).success)

const assertTakesNull = (name: string, object: z.ZodObject): void => {
  const { properties = {} } = z.toJSONSchema(object, { io: 'input' })
  for (const [field, schema] of optionalFields(object)) {
    const at = `${name}.${field}`
    assert.deepEqual(schema.safeParse(null), schema.safeParse(undefined), at)
    assert.match(JSON.stringify(properties[field]), /"null"/, `${at}: the published schema has no null`)
  }
}

test('null for an optional field counts as absent and gives its default, also in nested objects and lists', () => {
  const inner = z.strictObject({ a: z.int().optional(), b: z.string().default('usual') })
  const schema = nullIsAbsent(z.strictObject({ inner: inner.optional(), many: z.array(inner), kept: z.string().nullable().optional() }))
  assert.deepEqual(schema.parse({ inner: null, many: [{ a: null, b: null }], kept: null }), {
    inner: undefined,
    many: [{ a: undefined, b: 'usual' }],
    kept: null,
  })
  assert.deepEqual(schema.parse({ inner: { a: null }, many: [] }), { inner: { a: undefined, b: 'usual' }, many: [] })
})

test('null for a required field and an invalid value are refused', () => {
  const schema = nullIsAbsent(z.strictObject({ dir: z.string(), count: z.int().min(1).optional() }))
  const refused = (value: object): string => {
    const result = checkWith(schema, value)
    return 'error' in result ? result.error.message : 'accepted'
  }
  assert.equal(refused({ dir: null }), 'dir: expected a string, not null')
  assert.equal(refused({ dir: '/', count: 0 }), 'count: expected a whole number of at least 1, not 0')
  assert.equal(refused({ dir: '/', other: null }), 'other: unknown key')
})

test('every tool of x0x mcp accepts null for each optional argument, and its schema says so', () => {
  const tools = toolsFor(new Set(CAPABILITY_NAMES))
  assert.ok(tools.length > 10)
  for (const { name, input } of tools) assertTakesNull(name, input)
})

test('every method of REXD accepts null for each optional parameter, and its schema says so', () => {
  for (const method of METHODS) assertTakesNull(method, paramsOf(method))
})

test('every REST body accepts null for each optional field', async (t) => {
  const door = await startDoor(t)
  const { paths, components } = (await door.call('GET', '/openapi.json')).json
  type Body = { properties?: Record<string, object>; required?: string[]; $ref?: string; anyOf?: Body[] }
  const followed = (body: Body): Body => (body.$ref === undefined ? body : components.schemas[body.$ref.split('/').at(-1)!])
  const bodies = Object.entries(paths as Record<string, Record<string, { requestBody?: { content: Record<string, { schema: Body }> } }>>)
  let looked = 0
  for (const [path, methods] of bodies)
    for (const { requestBody } of Object.values(methods)) {
      const { properties = {}, required = [] } = followed(requestBody?.content['application/json']?.schema ?? {})
      for (const [name, schema] of Object.entries(properties)) {
        if (required.includes(name)) continue
        looked += 1
        assert.match(JSON.stringify(schema), /"null"/, `${path}: ${name}`)
      }
    }
  assert.ok(looked > 20, String(looked))
})

test('the console and the approval service accept null for each optional field', () => {
  const command = { whoami: 'Codex', dir: '/', exec: ['true'] }
  const nulls = { envs: null, stdin: null, timeout: null, clear_env: null, host: null, security: null, ask: null }
  const read = (value: object) => readConsoleLine(Buffer.from(JSON.stringify(value)))
  assert.equal(read(command).kind, 'request')
  assert.deepEqual(read({ ...command, ...nulls }), read(command))
  assert.deepEqual(read({ action: 'attach', ansi: null }), read({ action: 'attach' }))
  assert.equal(read({ ...command, exec: null }).kind, 'bad')
  const answer = {
    type: 'decide',
    id: 1,
    question_id: `q_${'a'.repeat(22)}`,
    permit_sha256: 'a'.repeat(64),
    decision: 'allow_always',
  }
  const human = (value: object) => readApprovalClientBody(Buffer.from(JSON.stringify(value)))
  assert.deepEqual(human({ ...answer, expires_in_ms: null, uses: null }), human(answer))
  assert.equal(typeof human(answer), 'object', String(human(answer)))
  assert.equal(typeof human({ ...answer, permit_sha256: null }), 'string')
})
