import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as z from 'zod'

import { isAppError } from '../../src/base/errors.ts'
import { parseWith } from '../../src/doors/validation.ts'
import { paramsOf } from '../../src/doors/rpc/schemas.ts'
import { MAX_NAME } from '../../src/protocol/limits/wire.ts'

const start = (env: string): unknown => JSON.parse(`{"session_id": "s_1", "argv": ["true"], "env": ${env}}`)

const refused = (value: unknown, message: RegExp): void =>
  assert.throws(
    () => parseWith(paramsOf('exec.start'), value),
    (error) => isAppError(error, 'bad_request') && message.test(error.message),
  )

test('an invalid field name chosen by the client is refused and not dropped', () => {
  assert.deepEqual(parseWith(paramsOf('exec.start'), start('{"CI": "1"}')).env, { CI: '1' })
  refused(start('{"CI": "1", "__proto__": "x"}'), /^env\.__proto__: is not a/)
  refused(start('{"\\u005f_proto__": {}}'), /^env\.__proto__: is not a/)
  refused(start(`{"${'A'.repeat(MAX_NAME + 1)}": "x"}`), new RegExp(`^env\\.A+: a name has at most ${MAX_NAME} characters$`))
  refused(start('{"": "x"}'), /^env\.: a name has at least 1 characters?$/)
  refused(start('{"CI": 1}'), /^env\.CI: expected a string, not 1$/)
})

test('an error names the violated bound and the description of the field', () => {
  const schema = z.strictObject({
    count: z.int().min(1).max(64).describe('hosts at once (default 16)'),
    words: z.array(z.string()).min(1).max(2).describe('whom to ask'),
  })
  for (const [value, message] of [
    [{ count: 0, words: ['a'] }, /^count: expected hosts at once \(default 16\); at least 1, not 0$/],
    [{ count: 65, words: ['a'] }, /^count: expected hosts at once \(default 16\) and at most 64, not 65$/],
    [{ count: 1, words: [] }, /^words: expected whom to ask; at least 1, not an empty list$/],
  ] as const)
    assert.throws(
      () => parseWith(schema, value),
      (error) => isAppError(error, 'bad_request') && message.test(error.message),
    )
})

test('an error for a union lists all alternatives, and an error inside one names its field', () => {
  const schema = z.strictObject({
    ids: z
      .array(
        z
          .string()
          .regex(/^[0-9]+$/)
          .describe('a number'),
      )
      .min(1)
      .optional(),
    how: z.union([z.boolean(), z.strictObject({ most: z.int().min(1).optional() })]).optional(),
    fails: z
      .union([z.int().min(1), z.string().max(4), z.array(z.string()).min(1)])
      .describe('a number, a part or several')
      .optional(),
  })
  for (const [value, message] of [
    [{ ids: [] }, /^ids: expected a list, each a number; at least 1, not an empty list$/],
    [{ ids: 5 }, /^ids: expected a list, each a number, not 5$/],
    [{ how: 5 }, /^how: expected true or false, or a JSON object, not 5$/],
    [{ how: { most: 'x' } }, /^how\.most: expected a whole number of at least 1, not "x"$/],
    [{ how: { most: 0 } }, /^how\.most: expected a whole number of at least 1, not 0$/],
    [{ how: { mots: 1 } }, /^mots: unknown key\. Did you mean most\?$/],
    [{ fails: true }, /^fails: expected a number, a part or several, not true$/],
    [{ fails: 0 }, /^fails: expected a whole number of at least 1, not 0$/],
    [{ fails: '100 %' }, /^fails: expected at most 4 characters, not "100 %"$/],
    [{ fails: [] }, /^fails: expected a list of strings; at least 1, not an empty list$/],
  ] as const)
    assert.throws(
      () => parseWith(schema, value),
      (error) => isAppError(error, 'bad_request') && message.test(error.message),
    )
})
