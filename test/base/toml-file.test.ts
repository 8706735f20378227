import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'

import { isAppError, type ErrorCode } from '../../src/base/errors.ts'
import { parseToml, readToml, tomlError } from '../../src/base/toml.ts'

let dir: string

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'x0x-files-'))
})

afterEach(() => rm(dir, { recursive: true, force: true }))

const put = async (name: string, mode: number, text = 'x'): Promise<string> => {
  const path = join(dir, name)
  await writeFile(path, text)
  await chmod(path, mode)
  return path
}

const rejectsWith = (work: Promise<unknown>, code: ErrorCode, text: RegExp): Promise<void> =>
  assert.rejects(work, (error) => {
    assert.ok(isAppError(error, code), String(error))
    assert.match(error.message, text)
    return true
  })

test('readToml returns the value and the line of each key', async () => {
  const path = await put('a.toml', 0o600, '[exec]\n\nenabled = true\n')
  const document = await readToml(path, 'bad_acl')
  assert.deepEqual(structuredClone(document.value), { exec: { enabled: true } })
  assert.equal(document.lineOf(['exec', 'enabled']), 3)
})

test('a TOML syntax error names the file, line and column', async () => {
  const path = await put('a.toml', 0o600, 'a = 1\nb = = 2\n')
  await rejectsWith(readToml(path, 'bad_config'), 'bad_config', /a\.toml:2:\d+: ./)
  assert.throws(
    () => parseToml('a = 1\na = 2', 'f', 'bad_acl'),
    (error) => isAppError(error, 'bad_acl') && error.data['line'] === 2,
  )
})

test('a semantic error names the file, line and key', () => {
  const document = parseToml('[[exec.allow]]\n[[exec.allow.commands]]\nargv = []\n', 'acl.toml', 'bad_acl')
  const error = tomlError('bad_acl', document, ['exec', 'allow', 0, 'commands', 0, 'argv'], 'must not be empty')
  assert.equal(error.message, 'acl.toml:3: exec.allow[0].commands[0].argv: must not be empty')
  assert.deepEqual(error.data, { file: 'acl.toml', line: 3, key: 'exec.allow[0].commands[0].argv' })
})

test('a missing TOML file gives not_found, and a directory or invalid UTF-8 gives bad_acl', async () => {
  await rejectsWith(readToml(join(dir, 'none.toml'), 'bad_acl'), 'not_found', /none\.toml/)
  await rejectsWith(readToml(dir, 'bad_acl'), 'bad_acl', /is a directory: name a file \(EISDIR\)/)
  await writeFile(join(dir, 'b.toml'), Buffer.from([0x61, 0x3d, 0x22, 0xff, 0x22]))
  await rejectsWith(readToml(join(dir, 'b.toml'), 'bad_acl'), 'bad_acl', /UTF-8/)
})

test('the error about a text without quotes shows the text with quotes', () => {
  for (const [text, bare] of [
    ['a = 1\nargv = [uptime]\n', 'uptime'],
    ['argv = ["df", disk]', 'disk'],
    ['name = bob # comment', 'bob'],
  ] as const)
    assert.throws(
      () => parseToml(text, 'acl.toml', 'bad_acl'),
      (error) =>
        isAppError(error, 'bad_acl') &&
        error.message.endsWith(`invalid value ${bare}: use true, false or a number, or put a text in quotes ("${bare}")`),
      text,
    )
  for (const text of ['a = ', 'a = [', 'a = "b'])
    assert.throws(
      () => parseToml(text, 'acl.toml', 'bad_acl'),
      (error) => isAppError(error) && !error.message.includes('quotes, such as'),
      text,
    )
})
