import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as fc from 'fast-check'

import {
  type FileCommand,
  fileCommandArgv,
  fileErrorLine,
  isFileCommand,
  isPlainPath,
  parseFileCommand,
  readFileError,
} from '../../src/protocol/file-command.ts'
import { mtimeText } from '../../src/base/mtime.ts'
import { MAX_FILE_CHUNK_BYTES } from '../../src/protocol/limits/files.ts'

const hex = (length: number) => fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: length, maxLength: length })
const name = fc
  .string({ minLength: 1, maxLength: 20 })
  .filter((text) => !/[/\0]/.test(text) && text !== '.' && text !== '..' && text.isWellFormed())
const path = fc.array(name, { maxLength: 5 }).map((names) => `/${names.join('/')}`)
const offset = fc.nat()
const mode = fc.option(fc.nat(0o7777))
const version = fc.option(hex(20))
const finish = fc.option(
  fc.record({ sha256: hex(64), mode, mtime_ms: fc.option(offset), expect: fc.option(fc.oneof(fc.constant('absent'), hex(20))) }),
)
const mtime = fc.bigInt({ min: -(10n ** 21n), max: 10n ** 21n }).map(mtimeText)

const command: fc.Arbitrary<FileCommand> = fc.oneof(
  fc.record({ op: fc.constant('stat' as const), path }),
  fc.record({ op: fc.constant('list' as const), path, recursive: fc.boolean() }),
  fc.record({ op: fc.constant('read' as const), path, offset, length: fc.nat(MAX_FILE_CHUNK_BYTES), version }),
  fc.record({ op: fc.constant('hash' as const), path, version }),
  fc.record({ op: fc.constant('upload' as const), path, upload: hex(32) }),
  fc.record({ op: fc.constant('write' as const), path, upload: hex(32), offset, parents: fc.boolean(), finish }),
  fc.record({ op: fc.constant('append' as const), path, mtime }),
  fc.record({ op: fc.constant('mkdir' as const), path, mode }),
)

test('each command is the same after conversion to an argv and back', () => {
  fc.assert(
    fc.property(command, (one) =>
      assert.deepEqual(parseFileCommand(fileCommandArgv(one)), {
        ...one,
        ...('finish' in one && { finish: one.finish && { ...one.finish } }),
      }),
    ),
  )
})

test('any other argv gives null or a valid command, without an exception', () => {
  fc.assert(
    fc.property(fc.array(fc.string(), { maxLength: 6 }), (argv) => {
      const parsed = parseFileCommand(argv)
      if (parsed !== null) assert.ok(isFileCommand(argv) && isPlainPath(parsed.path))
    }),
  )
  fc.assert(
    fc.property(command, fc.nat(5), fc.string(), (one, at, text) => {
      const argv = fileCommandArgv(one)
      argv[at % argv.length] = text
      const parsed = parseFileCommand(argv)
      // An accepted argv has a single meaning.
      if (parsed !== null) assert.deepEqual(parseFileCommand(fileCommandArgv(parsed)), parsed)
    }),
  )
})

test('an argv with a repeated, unknown, missing or misplaced option is refused', () => {
  const upload = `upload=${'a'.repeat(32)}`
  for (const argv of [
    ['@stat', '/a', 'offset=1'],
    ['@read', '/a', 'offset=1', 'offset=2'],
    ['@read', '/a', 'offset=01'],
    ['@read', '/a', 'offset=9007199254740993'],
    ['@read', '/a', `length=${MAX_FILE_CHUNK_BYTES + 1}`],
    ['@write', '/a', upload, 'mode=0644'],
    ['@write', '/a', upload, 'mtime_ms=5'],
    ['@write', '/a', upload, 'expect=absent'],
    ['@write', '/a', upload, 'parents=true'],
    ['@append', '/a'],
    ['@append', '/a', 'mtime=2026-01-01T00:00:00Z'],
    ['@write', '/a', upload, `sha256=${'A'.repeat(64)}`],
    ['@write', '/a'],
    ['@upload', '/a'],
    ['@mkdir', '/a', 'mode=644'],
    ['@mkdir', '/a', 'mode=8644'],
  ])
    assert.equal(parseFileCommand(argv), null, argv.join(' '))
})

test('a file is named only by a plain absolute path', () => {
  for (const bad of ['', 'a', './a', '/a/', '/a//b', '/a/./b', '/a/../b', '/..', '/a\0', '/\ud800', `/${'a'.repeat(4_096)}`])
    assert.equal(isPlainPath(bad), false, JSON.stringify(bad))
  for (const good of ['/', '/a', '/a b', '/a\nb', '/ä/…', '/-rf', '/...']) assert.equal(isPlainPath(good), true, good)
})

test('a failure line is converted back to its message and code', () => {
  fc.assert(
    fc.property(path, fc.string(), hex(6), (at, text, code) => {
      const read = readFileError(fileErrorLine(at, text, code))
      assert.deepEqual(read, { message: `${at}: ${text}`, code })
    }),
  )
  for (const other of ['', 'text', 'text (a b)', '(ENOENT)']) assert.equal(readFileError(other), null)
})
