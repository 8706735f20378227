import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { MAX_PATCH_TEXT_LINES, parsePatch, type Hunk, type PatchLine } from '../../src/fs/patch-format.ts'
import { applyHunks } from '../../src/fs/patch-format.ts'
import { alone } from '../support/files.ts'

const lines = (text: string): PatchLine[] =>
  text.split('|').map((line) => ({ kind: line[0] === '-' ? 'remove' : line[0] === '+' ? 'add' : 'keep', text: line.slice(1) }))

const hunk = (line: number, text: string, more: Partial<Hunk> = {}): Hunk => ({
  contexts: [],
  lines: lines(text),
  atEnd: false,
  line,
  ...more,
})

const WHOLE = `*** Begin Patch
*** Add File: new/file.txt
+first
+
++plus
*** Delete File: old.txt
*** Update File: src/a.ts
@@ function f() {
 keep
-old
+new

 end
@@
-x
*** End of File
*** Update File: b.ts
*** Move to: c d.ts
@@ class A
@@   method() {
+  added
*** Update File: only-moved
*** Move to: there
*** End Patch
`

test('a patch with every kind of change is parsed', () => {
  assert.deepEqual(parsePatch(WHOLE), [
    { kind: 'add', path: 'new/file.txt', content: 'first\n\n+plus\n' },
    { kind: 'delete', path: 'old.txt' },
    {
      kind: 'update',
      path: 'src/a.ts',
      moveTo: null,
      hunks: [hunk(8, ' keep|-old|+new| | end', { contexts: ['function f() {'] }), hunk(14, '-x', { atEnd: true })],
    },
    { kind: 'update', path: 'b.ts', moveTo: 'c d.ts', hunks: [hunk(19, '+  added', { contexts: ['class A', '  method() {'] })] },
    { kind: 'update', path: 'only-moved', moveTo: 'there', hunks: [] },
  ])
})

test('optional lines, blanks and line ends in a patch do not change its meaning', () => {
  const expected = [{ kind: 'update', path: 'a', moveTo: null, hunks: [hunk(3, '-x|+y')] }]
  for (const text of [
    '*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch',
    '*** Begin Patch\n*** Update File: a\n-x\n+y\n*** End Patch\n',
    '*** Begin Patch  \n*** Update File:   a  \n@@ \n-x\n+y\n*** End Patch\n\n\n',
    '*** Begin Patch\r\n*** Update File: a\r\n@@\r\n-x\n+y\n*** End Patch\r\n\r\n',
  ])
    assert.deepEqual(parsePatch(text), expected)
  assert.equal(parsePatch('\n\n*** Begin Patch\n\n*** Delete File: a\n\n*** Delete File: b\n\n*** End Patch').length, 2)
  assert.deepEqual(parsePatch('*** Begin Patch\n*** Add File: empty\n*** End Patch'), [{ kind: 'add', path: 'empty', content: '' }])
})

test('text before and after a patch is ignored', () => {
  const patch = '*** Begin Patch\n*** Delete File: a\n*** End Patch'
  for (const text of [`Here it is:\n\n\`\`\`\n${patch}\n\`\`\`\nDone.`, `apply_patch <<'EOF'\n${patch}\nEOF`, `  ${patch}\nmore`])
    assert.deepEqual(parsePatch(text), [{ kind: 'delete', path: 'a' }], text)
})

test('an invalid patch is refused with the number of the wrong line', () => {
  const begin = '*** Begin Patch\n'
  const end = '*** End Patch'
  const cases: [text: string, line: number, why: RegExp][] = [
    ['', 1, /Begin Patch/],
    ['hello', 1, /Begin Patch/],
    [begin, 3, /End Patch/],
    [`${begin}${end}`, 2, /changes nothing/],
    [`${begin}*** Delete File: a\n`, 4, /End Patch/],
    [`${begin}*** Delete File: a\n+x\n${end}`, 3, /expected a file/],
    [`${begin}*** Delete File:  \n${end}`, 2, /path is missing/],
    [`${begin}*** Add File: a\nx\n${end}`, 3, /expected a file/],
    [`${begin}*** Add File: a\n+x\n\n+y\n${end}`, 5, /expected a file/],
    [`${begin}*** Update File: a\n${end}`, 2, /not changed/],
    [`${begin}*** Update File: a\n@@\n${end}`, 4, /expected lines/],
    [`${begin}*** Update File: a\n@@\n x\n@@\n@@ y\n${end}`, 7, /expected lines/],
    [`${begin}*** Update File: a\n@@\n-x\ny\n${end}`, 5, /begins with/],
    [`${begin}*** Update File: a\n@@\n-x\n*** End of File\n-y\n${end}`, 6, /expected "@@"/],
    [`${begin}*** Update File: a\n*** End of File\n${end}`, 2, /not changed/],
    [`${begin}*** Update File: a\n@@\n-x\n*** Move to: b\n${end}`, 5, /expected a file/],
    [`${begin}*** Update File: a\n*** Move to:\n${end}`, 3, /path is missing/],
    [`${begin}*** Update File: a\n@@\n-x`, 5, /End Patch/],
    [`text\n${begin}*** Delete File: a\n${end}\nmore\n${begin}`, 6, /second patch/],
    [`text\n${end}`, 1, /Begin Patch/],
    [`${begin}*** Rename File: a\n${end}`, 2, /expected a file/],
    [`${begin}*** Add File: a\n+\ud800\n${end}`, 3, /Unicode/],
  ]
  for (const [text, line, why] of cases)
    assert.throws(
      () => parsePatch(text),
      (error) => {
        assert.ok(isAppError(error, 'bad_request'), String(error))
        assert.deepEqual(error.data, { line }, text)
        assert.match(error.message, new RegExp(`^patch: line ${line}: `))
        assert.match(error.message, why)
        return true
      },
    )
})

const onlyBadRequest = (text: string): boolean => {
  try {
    assert.ok(parsePatch(text).length > 0)
    return true
  } catch (error) {
    assert.ok(isAppError(error, 'bad_request'), String(error))
    const { line } = error.data as { line: number }
    return Number.isInteger(line) && line >= 1 && line <= text.split('\n').length + 1
  }
}

test('a patch with more lines than the limit is refused', () => {
  const patch = (lines: number): string => `*** Begin Patch\n*** Update File: a\n${'@@\n+\n'.repeat((lines - 4) / 2)}*** End Patch\n`
  assert.equal(parsePatch(patch(MAX_PATCH_TEXT_LINES)).length, 1)
  const data = { limit: 'patch_text_lines', asked: MAX_PATCH_TEXT_LINES + 2, max: MAX_PATCH_TEXT_LINES }
  assert.throws(() => parsePatch(patch(MAX_PATCH_TEXT_LINES + 2)), { code: 'resource_limit', data })
})

test('a patch with random damage is parsed or refused with bad_request', async () => {
  const all = WHOLE.split('\n')
  const piece = fc.oneof(
    fc.constantFrom(...all, '@@', '@@ x', '*** ', '***', '+', '-', ' ', '', '\r', '*** End of File', '\ud800', '\0'),
    fc.string({ maxLength: 6, unit: 'binary' }),
  )
  const damage = fc.record({ at: fc.nat(all.length), take: fc.nat(4), put: fc.array(piece, { maxLength: 3 }) })
  fc.assert(
    fc.property(fc.array(damage, { minLength: 1, maxLength: 4 }), (damages) => {
      const damaged = [...all]
      for (const { at, take, put } of damages) damaged.splice(at, take, ...put)
      return onlyBadRequest(damaged.join('\n'))
    }),
    { seed: 3, numRuns: 5_000 },
  )
  const cut = fc.record({ at: fc.nat(WHOLE.length), take: fc.nat(30), put: fc.string({ maxLength: 4, unit: 'binary' }) })
  fc.assert(
    fc.property(fc.array(cut, { minLength: 1, maxLength: 5 }), (cuts) => {
      let text = WHOLE
      for (const { at, take, put } of cuts) text = text.slice(0, at) + put + text.slice(at + take)
      return onlyBadRequest(text)
    }),
    { seed: 4, numRuns: 5_000 },
  )
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 60 }), (text) => onlyBadRequest(text) && onlyBadRequest(`*** Begin Patch\n${text}`)),
    { seed: 5, numRuns: 3_000 },
  )
})

const FILE = 'a\nb\nc\nd\na\nb\nc\n'
const patched = async (text: string, ...hunks: Hunk[]): Promise<string | number> => {
  const result = await applyHunks(text, hunks, alone())
  return 'text' in result ? result.text : result.unmatched.line
}

test('each hunk applies where its lines match, after the previous hunk', async () => {
  const cases: [hunks: Hunk[], result: string | number][] = [
    [[hunk(1, ' a|-b|+B| c')], 'a\nB\nc\nd\na\nb\nc\n'],
    [[hunk(1, '-d|+D1|+D2')], 'a\nb\nc\nD1\nD2\na\nb\nc\n'],
    [[hunk(1, '-b'), hunk(2, '-b')], 'a\nc\nd\na\nc\n'],
    [[hunk(1, '-b|+b'), hunk(2, '-b|+B')], 'a\nb\nc\nd\na\nB\nc\n'],
    [[hunk(1, '-b', { contexts: ['d'] })], 'a\nb\nc\nd\na\nc\n'],
    [[hunk(1, '-c|+C', { contexts: ['c', 'a'] })], 'a\nb\nc\nd\na\nb\nC\n'],
    [[hunk(1, '-b| c|+e', { atEnd: true })], 'a\nb\nc\nd\na\nc\ne\n'],
    [[hunk(1, '+end')], `${FILE}end\n`],
    [[hunk(1, '+end', { atEnd: true, contexts: ['a'] })], `${FILE}end\n`],
    [[hunk(1, '+x', { contexts: ['a'] })], 'a\nx\nb\nc\nd\na\nb\nc\n'],
    [[hunk(1, '+x', { contexts: ['c', 'c'] })], `${FILE}x\n`],
    [[hunk(1, ' a|+x'), hunk(2, '+y')], 'a\nx\nb\nc\nd\na\nb\nc\ny\n'],
    [[hunk(1, '-a|-b|-c|-d|-a|-b|-c')], ''],
    [[hunk(1, '+x| a')], `x\n${FILE}`],
    [[hunk(7, '-e')], 7],
    [[hunk(7, '-c|-b')], 7],
    [[hunk(1, '-d'), hunk(8, '-d')], 8],
    [[hunk(1, '-c', { contexts: ['a'] }), hunk(9, '-d| x')], 9],
    [[hunk(7, '-a', { contexts: ['e'] })], 7],
    [[hunk(7, '-b', { atEnd: true })], 7],
    [[hunk(7, '-c', { atEnd: true, contexts: ['c', 'c'] })], 7],
    [[hunk(7, '-x| a| b| c| d| a| b| c')], 7],
  ]
  for (const [hunks, result] of cases) assert.equal(await patched(FILE, ...hunks), result, JSON.stringify(hunks))
})

test('blanks at the end of lines are ignored only if no exact match exists, and kept lines stay unchanged', async () => {
  assert.equal(await patched('a \nb\nb \n', hunk(1, '-b |+c')), 'a \nb\nc\n')
  assert.equal(await patched('a \nb\t\nc', hunk(1, ' a|-b| c |+d ')), 'a \nc\nd ')
  assert.equal(await patched('x  \ny\n', hunk(1, '-y', { contexts: ['x'] })), 'x  \n')
  assert.equal(await patched(' a\n', hunk(1, '-b')), 1)
})

test('blanks at the start of lines are ignored only if no other match exists, and kept lines stay unchanged', async () => {
  assert.equal(await patched('  if (a)\n\t\tb\n  c\n', hunk(1, ' if (a)|-b|+  d| c')), '  if (a)\n  d\n  c\n')
  assert.equal(await patched('\tone\n\ttwo\n', hunk(1, '-two', { contexts: ['one'] })), '\tone\n')
  // The strictest comparison that finds a match applies, wherever the match is.
  assert.equal(await patched('  a\na \na\n', hunk(1, '-a')), '  a\na \n')
  assert.equal(await patched('  a\na \n', hunk(1, '-a')), '  a\n')
  assert.equal(await patched('ab\n', hunk(1, '-a b')), 1)
})

test('a patched file keeps its line ends, also a missing one after the last line', async () => {
  assert.equal(await patched('a\r\nb\r\n', hunk(1, ' a|-b|+c')), 'a\r\nc\r\n')
  assert.equal(await patched('a\r\nb\r\n', hunk(1, ' a\r|-b\r|+c\r')), 'a\r\nc\r\n')
  assert.equal(await patched('a\r\nb', hunk(1, ' a|-b|+c')), 'a\r\nc')
  assert.equal(await patched('a\r\nb\nc\n', hunk(1, ' a|-b|+B')), 'a\r\nB\nc\n')
  assert.equal(await patched('a\nb', hunk(1, '+c')), 'a\nb\nc')
  assert.equal(await patched('a\nb', hunk(1, '-b')), 'a')
  assert.equal(await patched('a', hunk(1, '-a')), '')
  assert.equal(await patched('', hunk(1, '+a')), 'a\n')
  assert.equal(await patched('\n', hunk(1, '+a')), '\na\n')
  assert.equal(await patched('\n\n', hunk(1, '-|+a')), 'a\n\n')
})

test('a search takes one step per line, and a patch that needs more steps than the limit is refused', async () => {
  const many = 'a\n'.repeat(1_000_000)
  assert.equal(await patched(many, hunk(3, `${' a|'.repeat(50_000)}-b`)), 3)
  const hunks = Array.from({ length: 51 }, (_, i) => hunk(i, '-a'))
  assert.equal(await patched(many, ...hunks.slice(0, 50)), 'a\n'.repeat(1_000_000 - 50))
  await assert.rejects(
    applyHunks(many, hunks, alone()),
    (error) => isAppError(error, 'resource_limit') && error.data['asked'] === 51_000_000,
  )
})

test('a patch made from any two texts turns the first into the second', async () => {
  const text = fc.array(fc.constantFrom('a', 'b', '', ' c', '+d', '*** e', '@@'), { maxLength: 12 })
  await fc.assert(
    fc.asyncProperty(text, fc.array(fc.tuple(fc.nat(11), fc.nat(2), text), { minLength: 1, maxLength: 3 }), async (before, changes) => {
      // The file is one hunk in which each line is kept, removed or added.
      const all: PatchLine[] = before.map((text) => ({ kind: 'keep', text }))
      for (const [at, take, put] of changes) {
        for (let i = at; i < Math.min(at + take, all.length); i++)
          if (all[i]!.kind === 'keep') all[i] = { kind: 'remove', text: all[i]!.text }
        all.splice(at, 0, ...put.slice(0, 3).map((text): PatchLine => ({ kind: 'add', text })))
      }
      if (all.length === 0) return
      const sign = { keep: ' ', remove: '-', add: '+' }
      const body = all.map(({ kind, text }) => sign[kind] + text).join('\n')
      const [change] = parsePatch(`*** Begin Patch\n*** Update File: f\n@@\n${body}\n*** End Patch`)
      assert.ok(change?.kind === 'update')
      const after = all.flatMap(({ kind, text }) => (kind === 'remove' ? [] : [`${text}\n`])).join('')
      assert.equal(await patched(before.map((line) => `${line}\n`).join(''), ...change.hunks), after)
    }),
    { seed: 6, numRuns: 2_000 },
  )
})
