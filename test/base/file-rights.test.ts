import assert from 'node:assert/strict'
import { chmod, chown, mkdir, mkdtemp, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'

import { isAppError, type ErrorCode } from '../../src/base/errors.ts'
import { ensurePrivateDir, journalPlaceProblems, readPrivateFile, writableByOthers } from '../../src/base/file-permissions.ts'

const asRoot = process.geteuid?.() === 0

/** An unprivileged UID of another user. */
const OTHER_UID = 54_321

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

const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o7777

const rejectsWith = (work: Promise<unknown>, code: ErrorCode, text: RegExp): Promise<void> =>
  assert.rejects(work, (error) => {
    assert.ok(isAppError(error, code), String(error))
    assert.match(error.message, text)
    return true
  })

test('a private directory is made 0700 with its parents', async () => {
  await ensurePrivateDir(join(dir, 'a', 'b'))
  assert.equal(await modeOf(join(dir, 'a', 'b')), 0o700)
  assert.equal(await modeOf(join(dir, 'a')), 0o700)
})

test('a directory that is open to others is refused with the command that fixes it', async () => {
  const path = join(dir, 'open dir')
  await mkdir(path)
  await chmod(path, 0o750)
  await rejectsWith(ensurePrivateDir(path), 'loose_permissions', /mode 0750.*chmod 0700 '.*open dir'/)
  await ensurePrivateDir(path, 0o750)
})

test('a file in the place of a private directory is refused', async () => {
  await assert.rejects(ensurePrivateDir(await put('file', 0o600)), /EEXIST/)
})

for (const mode of [0o640, 0o604, 0o660, 0o602, 0o777]) {
  test(`a private file of mode ${mode.toString(8)} is refused with its remedy`, async () => {
    await rejectsWith(readPrivateFile(await put('key', mode)), 'loose_permissions', /chmod 0[67]00 .*key/)
  })
}

test('a private file of mode 600 or 400 is read', async () => {
  assert.equal((await readPrivateFile(await put('a', 0o600, 'one'))).toString(), 'one')
  assert.equal((await readPrivateFile(await put('b', 0o400, 'two'))).toString(), 'two')
})

test('a missing private file gives not_found', async () => {
  await rejectsWith(readPrivateFile(join(dir, 'none')), 'not_found', /none is missing/)
})

test('a link to a private file is followed, and its target is checked', async () => {
  await symlink(await put('good', 0o600, 'good'), join(dir, 'to-good'))
  await symlink(await put('bad', 0o644), join(dir, 'to-bad'))
  assert.equal((await readPrivateFile(join(dir, 'to-good'))).toString(), 'good')
  await rejectsWith(readPrivateFile(join(dir, 'to-bad')), 'loose_permissions', /0644/)
})

test('a directory or device in the place of a private file is refused at once', async () => {
  await rejectsWith(readPrivateFile(dir), 'loose_permissions', /not a regular file/)
  await rejectsWith(readPrivateFile('/dev/null'), 'loose_permissions', /not a regular file/)
})

test('a private file of another owner is refused', { skip: !asRoot && 'needs root' }, async () => {
  const path = await put('key', 0o600)
  await chown(path, OTHER_UID, OTHER_UID)
  await rejectsWith(readPrivateFile(path), 'loose_permissions', /belongs to uid 54321.*chown 0 /)
})

test('a file for a group may be group-readable and have another owner, but not allow more', async () => {
  const path = await put('token', 0o640, 't')
  if (asRoot) await chown(path, OTHER_UID, 0)
  assert.equal((await readPrivateFile(path, { groupMayRead: true })).toString(), 't')
  await chmod(path, 0o644)
  await rejectsWith(readPrivateFile(path, { groupMayRead: true }), 'loose_permissions', /chmod 0640/)
  await chmod(path, 0o660)
  await rejectsWith(readPrivateFile(path, { groupMayRead: true }), 'loose_permissions', /chmod 0640/)
})

test('a file below a sticky directory of root is safe', async () => {
  assert.deepEqual(writableByOthers(await put('acl.toml', 0o644)), [])
})

test('a missing path is judged by its existing parent directories', async () => {
  assert.deepEqual(writableByOthers(join(dir, 'no', 'such.toml')), [])
  await chmod(dir, 0o777)
  assert.equal(writableByOthers(join(dir, 'no', 'such.toml')).length, 1)
})

test('a file and a directory above it that others can write are both reported with remedies', async () => {
  await mkdir(join(dir, 'sub'))
  const path = await put('sub/acl.toml', 0o664)
  await chmod(join(dir, 'sub'), 0o775)
  const problems = writableByOthers(path)
  assert.equal(problems.length, 2)
  assert.match(problems[0] ?? '', /sub is writable by other users \(mode 0775\); fix it with: chmod go-w /)
  assert.match(problems[1] ?? '', /acl\.toml is writable by other users \(mode 0664\)/)
})

test('a sticky bit makes a writable directory acceptable, but not a writable file', async () => {
  const path = await put('acl.toml', 0o646)
  await chmod(dir, 0o1777)
  assert.equal(writableByOthers(path).length, 1)
})

test('a link is judged by its target, with every directory on the way', async () => {
  await mkdir(join(dir, 'loose'))
  await mkdir(join(dir, 'tight'))
  await put('loose/acl.toml', 0o644)
  await chmod(join(dir, 'loose'), 0o777)
  await symlink('../loose/acl.toml', join(dir, 'tight', 'acl.toml'))
  const problems = writableByOthers(join(dir, 'tight', 'acl.toml'))
  assert.equal(problems.length, 1)
  assert.match(problems[0] ?? '', /loose is writable/)
})

test('a path that goes on with .. after a link is judged as the system resolves it', async () => {
  await mkdir(join(dir, 'loose', 'sub'), { recursive: true })
  await put('tool', 0o644)
  await put('loose/tool', 0o644)
  await chmod(join(dir, 'loose'), 0o777)
  await symlink('loose/sub', join(dir, 'link'))
  // The check resolves paths as the system does, not by their text.
  for (const way of [`${dir}/link/../tool`, 'link/../tool']) {
    await symlink(way, join(dir, 'way'))
    for (const path of [`${dir}/link/../tool`, join(dir, 'way')])
      assert.match(writableByOthers(path).join(), /loose is writable by other users/)
    await rm(join(dir, 'way'))
  }
})

test('a link that leads to itself is reported as a problem', async () => {
  await symlink('loop', join(dir, 'loop'))
  assert.match(writableByOthers(join(dir, 'loop')).at(-1) ?? '', /too many links/)
})

test('a directory that this process may not enter is a problem, not an error', { skip: asRoot && 'root may look everywhere' }, async () => {
  const closed = join(dir, 'closed')
  await mkdir(closed)
  await chmod(closed, 0)
  assert.match(writableByOthers(join(closed, 'a')).join(), /^EACCES: permission denied, lstat '.*closed\/a'$/)
  assert.match(journalPlaceProblems(join(closed, 'a', 'log')).join(), /EACCES.*; use a directory/)
  await chmod(closed, 0o700)
})

test('an owner other than root and this user is a problem, for a file or directory', { skip: !asRoot && 'needs root' }, async () => {
  const path = await put('acl.toml', 0o644)
  await chown(path, OTHER_UID, OTHER_UID)
  assert.match(writableByOthers(path).join(), /acl\.toml belongs to uid 54321/)
  await chown(path, 0, 0)
  await chown(dir, OTHER_UID, OTHER_UID)
  assert.match(writableByOthers(path).join(), /x0x-files-\w+ belongs to uid 54321/)
})

test('a socket in the place of a private file is refused', async () => {
  const path = join(dir, 'sock')
  const server = createServer()
  await new Promise<void>((done) => server.listen(path, done))
  try {
    await assert.rejects(readPrivateFile(path))
  } finally {
    await new Promise((done) => server.close(done))
  }
})
