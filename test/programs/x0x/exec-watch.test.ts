import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { addedText } from '../../../src/programs/x0x/commands/exec-watch.ts'

const TAIL = 2_000

test('reports of the end of the output add up to the whole output if they overlap', () => {
  const steps = fc.array(fc.integer({ min: 0, max: TAIL - 600 }), { maxLength: 20 })
  fc.assert(
    fc.property(steps, (lengths) => {
      // No part of the text repeats, so each part is found only at its own position.
      let [all, shown, before, number] = ['', '', '', 0]
      for (const length of lengths) {
        for (const end = all.length + length; all.length < end;) all += `${number++} `
        const now = all.slice(-TAIL)
        const { text, follows } = addedText(before, now)
        assert.equal(follows, true)
        shown += text
        before = now
      }
      assert.equal(shown, all)
    }),
  )
})

test('a report that does not overlap the previous one is shown completely', () => {
  assert.deepEqual(addedText('a'.repeat(TAIL), 'b'.repeat(TAIL)), { text: 'b'.repeat(TAIL), follows: false })
  assert.deepEqual(addedText('short', 'other'), { text: 'other', follows: false })
  assert.deepEqual(addedText('', 'first'), { text: 'first', follows: true })
})
