import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { chmod, chown, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { loadAcl } from '../../../src/policy/mesh/load-acl.ts'
import { aclText, entryText } from '../../support/acl-text.ts'

let dir: string
let path: string

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'x0x-acl-'))
  path = join(dir, 'exec-acl.toml')
})
afterEach(() => rm(dir, { recursive: true }))

const put = (text: string): Promise<void> => writeFile(path, text, { mode: 0o600 })

/** Asserts that the file is refused with exactly these lines, in this order. */
const refuses = async (...lines: RegExp[]): Promise<void> =>
  assert.rejects(loadAcl({ path, explicit: false }), (error) => {
    assert.ok(isAppError(error, 'bad_acl'), String(error))
    const problems = error.message.split('\n')
    assert.equal(problems.length, lines.length, error.message)
    for (const [at, line] of lines.entries()) assert.match(problems[at] ?? '', line)
    assert.deepEqual(error.data, { file: path, problems })
    return true
  })

test('an enabled file is loaded with its path, hash and time', async () => {
  await put(aclText([entryText([['true']])], 'default_cwd = "/"'))
  const clock = { now: () => Date.UTC(2026, 4, 1, 9) }
  const { acl, ...rest } = await loadAcl({ path, explicit: true }, clock)
  assert.equal(acl.enabled, true)
  assert.equal(acl.source, path)
  assert.deepEqual(rest, {
    status: 'enabled',
    loaded_from: path,
    sha256: createHash('sha256')
      .update(await readFile(path))
      .digest('hex'),
    bytes: await readFile(path),
    signature: null,
    loaded_at: '2026-05-01T09:00:00.000Z',
    warnings: [],
  })
})

test('a file without default_cwd gives a warning if others may write the working directory of the daemon', async (t) => {
  const before = process.cwd()
  t.after(() => process.chdir(before))
  const open = join(dir, 'open')
  await mkdir(open)
  await chmod(open, 0o777)
  const warningsIn = async (place: string, keys = ''): Promise<string> => {
    await put(aclText([entryText([['true']])], keys))
    process.chdir(place)
    return (await loadAcl({ path, explicit: true })).warnings.join('\n')
  }
  assert.match(await warningsIn(open), /exec\.default_cwd: is not set, so .* of this daemon, .*open.*writable by/)
  assert.equal(await warningsIn('/'), '')
  assert.equal(await warningsIn(open, 'default_cwd = "/"'), '')
})

test('a limit must be an integer, so that 7 is valid and 7.0 is not', async () => {
  await put(aclText([], 'max_stdin_bytes = 7'))
  assert.equal((await loadAcl({ path, explicit: true })).acl.caps.max_stdin_bytes, 7)
  await put(aclText([], 'max_stdin_bytes = 7.0'))
  await refuses(/exec-acl\.toml:4: exec\.max_stdin_bytes: must be a whole number .*, not 7\.0$/)
})

test('the status shows a disabled file and one without [exec]', async () => {
  await put('[exec]\naudit_log_path = "/a"\n')
  assert.equal((await loadAcl({ path, explicit: true })).status, 'exec_disabled')
  await put('# later\n')
  const empty = await loadAcl({ path, explicit: true })
  assert.equal(empty.status, 'missing_exec_section')
  assert.equal(empty.loaded_from, path)
  assert.equal(empty.acl.enabled, false)
})

test('a missing file at the default path disables exec', async () => {
  const { acl, status, loaded_from } = await loadAcl({ path, explicit: false })
  assert.deepEqual([status, loaded_from, acl.enabled, acl.allow.length], ['acl_missing', path, false, 0])
})

test('a missing file at an explicit path is refused', async () => {
  await assert.rejects(
    loadAcl({ path, explicit: true }),
    (error) => isAppError(error, 'bad_acl') && error.message === `cannot read ${path}: no such file`,
  )
})

test('a file that is not valid TOML or UTF-8, or is a directory, is refused', async () => {
  await put('[exec\n')
  await refuses(/exec-acl\.toml:1:\d+: /)
  await put('[exec]\nenabled = true\nenabled = true\n')
  await refuses(/exec-acl\.toml:3:\d+: /)
  await writeFile(path, Buffer.from([0x5b, 0xff, 0x5d]))
  await refuses(/not valid UTF-8/)
  await rm(path)
  await mkdir(path)
  await refuses(/is a directory: name a file/)
})

test('every problem has its own line', async () => {
  await put('[exec]\nenabled = 1\nmax_stdout_bytes = 0\n')
  await refuses(
    /exec-acl\.toml:3: exec\.max_stdout_bytes: must be/,
    /exec-acl\.toml:1: exec\.audit_log_path: is required/,
    /exec-acl\.toml:2: exec\.enabled: must be/,
  )
})

test('a file that others may write is refused, together with the problems of its content', async () => {
  await put('[exec]\naudit_log_path = "exec.log"\n')
  await chmod(path, 0o666)
  await refuses(/exec-acl\.toml is writable by other users.*chmod go-w/, /exec\.audit_log_path: "exec\.log" must be an absolute path/)
  await put('[exec\n')
  await chmod(path, 0o620)
  await refuses(/writable by other users/, /exec-acl\.toml:1:\d+: /)
})

test('a file in a directory that others may write is refused', async () => {
  await put('[exec]\naudit_log_path = "/a"\n')
  await chmod(dir, 0o770)
  await refuses(/x0x-acl-\w+ is writable by other users/)
})

test(
  'a file of another user is refused, even behind a link',
  { skip: process.getuid?.() !== 0 && 'needs root to give a file away' },
  async () => {
    await put('[exec]\naudit_log_path = "/a"\n')
    await chown(path, 65_533, 65_533)
    await refuses(/belongs to uid 65533/)
    const link = join(dir, 'link.toml')
    await symlink(path, link)
    await assert.rejects(loadAcl({ path: link, explicit: true }), /belongs to uid 65533/)
  },
)

test('a command line in one string gives a warning that explains the quotes', async () => {
  await put(aclText([entryText([['x0x-no-such-tool -p']])]))
  const { warnings } = await loadAcl({ path, explicit: true })
  assert.match(warnings[0] ?? '', /"x0x-no-such-tool -p" is in no directory of .*; quote each word of a command separately/)
})

test('a wildcard in a program name gives a warning', async () => {
  await put(aclText([entryText([['/usr/bin/[a-z]*'], ['l?'], ['/usr/bin/{df,du}']])]))
  const { warnings } = await loadAcl({ path, explicit: true })
  for (const at of [0, 1, 2]) assert.match(warnings[at] ?? '', /; wildcards are not allowed in a program name$/)
})

test('a program that is not installed gives a warning with its line', async () => {
  await put(aclText([entryText([['true'], ['x0x-no-such-tool', 'a'], ['x0x-no-such-tool', 'b']])]))
  const { warnings } = await loadAcl({ path, explicit: true })
  assert.equal(warnings.length, 1)
  assert.match(warnings[0] ?? '', /exec-acl\.toml:12: exec\.allow\[0\]\.commands\[1\]\.argv\[0\]: "x0x-no-such-tool" is in no directory of/)
})

test('a program that others may write is refused with its line', async () => {
  const tool = join(dir, 'tool')
  await writeFile(tool, '#!/bin/sh\n')
  await chmod(tool, 0o757)
  await put(aclText([entryText([['true'], [tool]])]))
  await refuses(/exec-acl\.toml:12: exec\.allow\[0\]\.commands\[1\]\.argv\[0\]: .*tool is writable by other users/)
})
