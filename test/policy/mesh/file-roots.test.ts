import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { homedir, tmpdir, userInfo } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'

import { checkAclFile, type AclCheck } from '../../../src/policy/mesh/check-acl.ts'
import { loadAcl } from '../../../src/policy/mesh/load-acl.ts'
import { ALICE, aclText, entryText, filesText, MALLORY } from '../../support/acl-text.ts'

let dir: string
let root: string
let path: string

beforeEach(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), 'x0x-roots-')))
  root = join(dir, 'files')
  await mkdir(root)
  await mkdir(join(dir, 'etc'))
  path = join(dir, 'etc', 'exec-acl.toml')
})
afterEach(() => rm(dir, { recursive: true }))

const WRITE = { read: false, write: true }

const checkText = async (entries: string[], keys = ''): Promise<AclCheck> => {
  await writeFile(path, aclText(entries, keys), { mode: 0o600 })
  const report = await checkAclFile(path, null, { dataDir: join(dir, 'data') })
  return { ...report, warnings: report.warnings.filter((warning) => /files\[\d+\]/.test(warning)) }
}

const check = async (at: string, keys: Record<string, string | number | boolean> = {}, commands: string[][] = []): Promise<AclCheck> =>
  checkText([entryText(commands) + filesText(at, keys)])

test('a plain directory gives no problem, for reading or writing', async () => {
  for (const keys of [{}, WRITE, { write: true, create_dirs: true }]) {
    const { ok, problems, warnings, summary } = await check(root, keys)
    assert.deepEqual([ok, problems, warnings, summary.files_entry_count], [true, [], [], 1])
  }
})

test('a root that is missing or is a file gives a warning', async () => {
  assert.match(
    (await check(join(dir, 'gone'))).warnings.join('\n'),
    /:10: exec\.allow\[0\]\.files\[0\]\.root: no file command can use it: .*ENOENT/,
  )
  await writeFile(join(dir, 'file'), '')
  const { ok, warnings } = await check(join(dir, 'file'))
  assert.equal(ok, true)
  assert.match(warnings.join('\n'), /root: is not a directory/)
})

test('a writable root with the program of a rule is a problem, even for rules of another pair', async () => {
  const program = join(root, 'tool')
  await writeFile(program, '#!/bin/sh\n', { mode: 0o755 })
  const { ok, problems } = await check(root, WRITE, [[program]])
  assert.equal(ok, false)
  assert.equal(problems.length, 1, problems.join('\n'))
  assert.match(problems[0] ?? '', /files\[0\]\.root: a requester could replace .*\/tool, which line 10 runs: that is as good as a shell/)
  assert.deepEqual((await check(root, {}, [[program]])).problems, [], 'only writable roots')
  const other = await checkText([
    entryText([[program]], { agent_id: MALLORY }),
    entryText([], { agent_id: ALICE }) + filesText(root, WRITE),
  ])
  assert.equal(other.problems.length, 1)
  await assert.rejects(loadAcl({ path, explicit: true }), /as good as a shell/)
})

test('a program, interpreter or script of a rule counts behind links, and before it exists', async () => {
  const program = join(root, 'tool')
  await writeFile(program, '#!/bin/sh\n', { mode: 0o755 })
  await symlink(program, join(dir, 'link'))
  await writeFile(join(dir, 'script'), `#!${program}\n`, { mode: 0o755 })
  await symlink('/bin/true', join(root, 'true'))
  await symlink(root, join(dir, 'other-name'))
  for (const argv of [
    [join(dir, 'link')],
    [join(dir, 'script')],
    [join(root, 'true')],
    [join(root, 'not-yet')],
    ['/bin/sh', join(root, 'run.sh')],
  ]) {
    const { problems } = await check(root, WRITE, [argv])
    assert.match(problems.join('\n'), /a requester could replace .*, which line 10 runs/, argv.join(' '))
  }
  assert.equal((await check(join(dir, 'other-name'), WRITE, [[program]])).problems.length, 1)
  assert.deepEqual((await check(root, WRITE, [['/bin/cat', join(root, 'data')]])).problems, [], 'data of a program is no program')
})

test('a program of an ask pattern counts as well', async () => {
  const pattern = `ask = "on-miss"\n${filesText(root, WRITE)}[[exec.allow.ask_patterns]]\nargv = ["${root}/tool"]\n`
  assert.match((await checkText([entryText([]) + pattern])).problems.join('\n'), /a requester could replace/)
})

test('a writable root with the ACL, the audit log or x0x itself is a problem', async () => {
  assert.match((await check(dir, WRITE)).problems.join('\n'), /a requester could replace the ACL/)
  assert.deepEqual((await check(join(dir, 'etc'))).problems, [])
  const text = aclText([entryText([]) + filesText(root, WRITE)]).replace('/var/lib/x0x/exec.log', join(root, 'log', 'exec.log'))
  await writeFile(path, text, { mode: 0o600 })
  assert.match((await checkAclFile(path)).problems.join('\n'), /a requester could replace the audit log/)
  assert.match((await check(dirname(process.execPath), WRITE)).problems.join('\n'), /as good as a shell/)
  // The program that runs this check is this test file.
  const ours = dirname(process.argv[1]!)
  assert.match((await check(ours, WRITE)).problems.join('\n'), /the program files of x0x/)
})

test('a root with the data directory is a problem, even for reading', async () => {
  const text = aclText([entryText([]) + filesText(dir)])
  await writeFile(path, text, { mode: 0o600 })
  for (const dataDir of [dir, join(dir, 'data'), join(dir, 'a', 'b')])
    assert.match(
      (await checkAclFile(path, null, { dataDir })).problems.join('\n'),
      /root: contains the data directory .*: a requester could read/,
    )
  assert.deepEqual((await checkAclFile(path, null, { dataDir: `${dir}-2` })).problems, [])
  await assert.rejects(loadAcl({ path, explicit: true, dataDir: join(dir, 'data') }), /contains the data directory/)
  await loadAcl({ path, explicit: true })
})

test('a writable home, its start-up places, and directories above it are problems', async () => {
  const homes = [...new Set([userInfo().homedir, homedir()])].filter((home) => home !== '/')
  for (const home of homes)
    for (const place of [home, join(home, '.config'), join(home, '.ssh', 'x'), join(home, 'bin'), dirname(home)])
      assert.match((await check(place, WRITE)).problems.join('\n'), /a requester could write start-up files|as good as a shell/, place)
})

test('a writable system directory is a problem, and a plain sibling is not', async () => {
  for (const place of ['/', '/etc', '/usr', '/usr/local/bin', '/usr/lib/x0x-test', '/etc/systemd/system', '/bin', '/etc/cron.d'])
    assert.match((await check(place, WRITE)).problems.join('\n'), /as good as a shell/, place)
  for (const place of ['/srv/x0x-test', '/etc/x0x-test.d', '/var/www']) assert.deepEqual((await check(place, WRITE)).problems, [], place)
  for (const place of ['/etc', '/usr']) assert.deepEqual((await check(place)).problems, [], place)
})

test('a directory that other users may write, or a virtual file system, gives a warning', async () => {
  await chmod(root, 0o775)
  assert.match((await check(root, WRITE)).warnings.join('\n'), /other users can write .*\(mode 0775\)/)
  assert.deepEqual((await check(root)).warnings, [])
  for (const place of ['/proc', '/proc/self', '/dev'])
    assert.match((await check(place)).warnings.join('\n'), /lies in \/(proc|dev), whose files/, place)
})

test('a writable root with default_cwd gives a warning', async () => {
  const { problems, warnings } = await checkText([entryText([]) + filesText(root, WRITE)], `default_cwd = "${root}"`)
  assert.deepEqual(problems, [])
  assert.match(warnings.join('\n'), /contains default_cwd/)
})

test('an owner that this process cannot use is reported like run_as', async () => {
  const text = aclText([entryText([]) + filesText(root, { write: true, owner: 'x0x-nobody-here' })])
  await writeFile(path, text, { mode: 0o600 })
  const { ok, warnings } = await checkAclFile(path, async () => [])
  assert.equal(ok, true, 'the daemon may run as another user')
  assert.match(warnings.join('\n'), /files\[0\]\.owner: cannot be enforced on this host: /)
  await assert.rejects(loadAcl({ path, explicit: true, judge: async () => [] }), /owner: cannot be enforced/)
})

test('a table after a wider one gives a warning for each right without effect', async () => {
  const after = async (...tables: string[]): Promise<string> => (await checkText([entryText([]) + tables.join('')])).warnings.join('\n')
  const below = join(root, 'below')
  await mkdir(below)
  assert.match(
    await after(filesText(root), filesText(below, { write: true })),
    /files\[1\]: read = true has no effect: line 9 already allows it below ".*\/files"; put the smaller root first$/,
  )
  assert.equal(await after(filesText(below), filesText(root)), '')
  assert.equal(await after(filesText(root), filesText(below, WRITE)), '')
  const other = await checkText([entryText([]) + filesText(root), entryText([], { agent_id: MALLORY }) + filesText(root)])
  assert.deepEqual(other.warnings, [], 'another pair')
})

test('a confined entry with files gives a warning, because confinement does not apply to files', async () => {
  const { warnings } = await checkText([
    entryText([], { max_processes: 9, no_network: 1 }).replace('no_network = 1', 'no_network = true') + filesText(root),
  ])
  assert.match(warnings.join('\n'), /max_processes, no_network of the entry does not apply to files/)
})
