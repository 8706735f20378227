import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'
import { stringify } from 'smol-toml'

import { linesOf } from '../../src/base/toml.ts'

const ACL = `# who may run what
[exec]
enabled = true   # on
audit_log_path = "/var/lib/x0x/exec.log"

[[exec.allow]]
agent_id = "aa"
note = """
[[exec.allow]]
agent_id = 'not a key'
"""

[[exec.allow.commands]]
argv = ["df", "-h"]

[[exec.allow.commands]]
argv = [
  "journalctl", # ] not the end
  "-n",
  "<INT>",
]
max_stdout_bytes = 10

[[exec.allow]]
"agent_id" = "bb"
limits.per = 3
inline = { a = 1, b = [1, 2] }

[[exec.allow.commands]]
argv = ["true"]

[other."dotted.key"]
x = 1
`

test('linesOf finds every key, table and element of nested arrays of tables', () => {
  const at = (...path: (string | number)[]): number => linesOf(ACL)(path)
  assert.equal(at('exec'), 2)
  assert.equal(at('exec', 'enabled'), 3)
  assert.equal(at('exec', 'allow', 0), 6)
  assert.equal(at('exec', 'allow', 0, 'agent_id'), 7)
  assert.equal(at('exec', 'allow', 0, 'commands', 0, 'argv'), 14)
  assert.equal(at('exec', 'allow', 0, 'commands', 1), 16)
  assert.equal(at('exec', 'allow', 0, 'commands', 1, 'argv', 2), 20)
  assert.equal(at('exec', 'allow', 0, 'commands', 1, 'max_stdout_bytes'), 22)
  assert.equal(at('exec', 'allow', 1), 24)
  assert.equal(at('exec', 'allow', 1, 'agent_id'), 25)
  assert.equal(at('exec', 'allow', 1, 'limits', 'per'), 26)
  assert.equal(at('exec', 'allow', 1, 'inline', 'b', 1), 27)
  assert.equal(at('exec', 'allow', 1, 'commands', 0, 'argv', 0), 30)
  assert.equal(at('other', 'dotted.key', 'x'), 33)
})

test('a missing key gets the line of its parent', () => {
  assert.equal(linesOf(ACL)(['exec', 'allow', 1, 'machine_id']), 24)
  assert.equal(linesOf(ACL)(['exec', 'nothing']), 2)
  assert.equal(linesOf(ACL)(['nothing']), 1)
  assert.equal(linesOf(ACL)([]), 1)
})

test('linesOf counts lines that end in carriage return and line feed', () => {
  assert.equal(linesOf('a = 1\r\n\r\n[b]\r\nc = "x"\r\n')(['b', 'c']), 4)
})

test('a key after strings of all four kinds is found', () => {
  const text = `a = "x # \\" [t]"\nb = 'y [t] \\'\nc = """z\n"" \\""" [t]\n"""\nd = '''w\n''[t]'''\ne = 1\n`
  assert.equal(linesOf(text)(['e']), 8)
})

test('each inline table in an array over several lines gets its own line', () => {
  const text = 'allow = [\n  { argv = ["a"] },\n  { argv = ["b",\n    "c"] },\n]\n'
  assert.equal(linesOf(text)(['allow', 1, 'argv', 1]), 4)
})

test('linesOf ends for any text, valid TOML or not', () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...'[]{}="\'#,.a1\n\\ '), maxLength: 60 }), (text) => linesOf(text)(['a', 'b', 0]) >= 1),
  )
})

test('linesOf finds every top-level key of any document that the writer can make', () => {
  const value = fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.array(fc.string(), { maxLength: 4 }))
  const key = fc.string({ minLength: 1, maxLength: 8 }).filter((text) => text !== '__proto__')
  fc.assert(
    fc.property(fc.dictionary(key, value, { minKeys: 1, maxKeys: 6 }), (document) => {
      const text = stringify(document)
      Object.keys(document).forEach((name, index) => assert.equal(linesOf(text)([name]), index + 1, text))
    }),
  )
})

test('a text is parsed once, however many lines are requested', (t) => {
  const lineOf = linesOf(ACL)
  assert.equal(lineOf(['exec', 'nothing']), 2)
  const { mock } = t.mock.method(RegExp.prototype, 'exec')
  assert.equal(lineOf(['exec', 'allow', 1, 'machine_id']), 24)
  assert.equal(mock.callCount(), 0)
})
