import assert from 'node:assert/strict'
import { test } from 'node:test'

import { parseTraceparent } from '../../src/protocol/trace-context.ts'

const [TRACE, SPAN] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']
const CONTEXT = { traceId: TRACE, spanId: SPAN }

test('a traceparent is read as W3C Trace Context specifies, and an invalid one gives null', () => {
  const read: readonly (readonly [string | undefined, ReturnType<typeof parseTraceparent>])[] = [
    [`00-${TRACE}-${SPAN}-01`, CONTEXT],
    [`00-${TRACE}-${SPAN}-03`, CONTEXT],
    [`00-${TRACE}-${SPAN}-00`, 'not_sampled'],
    // A later version may have more fields.
    [`cc-${TRACE}-${SPAN}-01-what-it-says`, CONTEXT],
    [`00-${TRACE}-${SPAN}-01-what-it-says`, null],
    [`ff-${TRACE}-${SPAN}-01`, null],
    [`00-${'0'.repeat(32)}-${SPAN}-01`, null],
    [`00-${TRACE}-${'0'.repeat(16)}-01`, null],
    [`00-${TRACE.toUpperCase()}-${SPAN}-01`, null],
    [`00-${TRACE}-${SPAN}`, null],
    ['', null],
    [undefined, null],
  ]
  for (const [text, context] of read) assert.deepEqual(parseTraceparent(text), context, text)
})
