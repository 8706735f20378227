import assert from 'node:assert/strict'
import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { ALICE, aclText, ELSEWHERE, entryText, filesText, LAPTOP } from '../../support/acl-text.ts'
import { fakeDaemon, json, runCli } from '../../support/fake-daemon.ts'

const RULE = {
  description: 'deployments',
  timeout_ms: 1000,
  max_stdout_bytes: 1024,
  max_stderr_bytes: 1024,
  max_stdin_bytes: 0,
  detach: null,
  terminal: false,
  record: false,
  watch: false,
}

/** A directory with `files`, `data` and an ACL that allows ALICE to read `files`. */
const placeOf = async (t: TestContext): Promise<{ dir: string; acl: string }> => {
  const dir = await realpath(await mkdtemp(join(tmpdir(), 'x0x-acl-files-')))
  t.after(async () => rm(dir, { recursive: true }))
  await mkdir(join(dir, 'files'))
  const acl = join(dir, 'exec-acl.toml')
  await writeFile(acl, aclText([entryText([]) + filesText(join(dir, 'files'))], 'default_cwd = "/"'), { mode: 0o600 })
  return { dir, acl }
}

test('acl explain --file says whether a pair may read or write a path', async (t) => {
  const { dir, acl } = await placeOf(t)
  const ids = ['--agent', ALICE, '--machine', LAPTOP]
  const explained = async (...words: string[]) => runCli(['--data-dir', join(dir, 'data'), 'acl', 'explain', acl, ...words])
  const path = join(dir, 'files', 'a')
  const read = await explained(...ids, '--file', path)
  assert.equal(read.status, 0, read.stderr)
  assert.match(read.stdout, /^allowed {2}\["@read", ".*\/files\/a"\]\nmatched .*:9: root ".*\/files" of "alice on her laptop"$/m)
  const written = await explained(...ids, '--file', path, '--write')
  assert.equal(written.status, 1)
  assert.match(
    written.stdout,
    /^denied {3}\["@write", ".*\/files\/a"\]\nreason {3}argv_not_allowed\nwhy {6}line 9 .* does not say write = true$/m,
  )
  assert.equal((await explained('--agent', ALICE, '--machine', ELSEWHERE, '--file', path)).status, 1)
  const { grant } = JSON.parse((await explained(...ids, '--file', path, '--json')).stdout) as { grant: { root: string } }
  assert.equal(grant.root, join(dir, 'files'))
})

test('acl explain --file refuses impossible paths and options that exclude each other', async (t) => {
  const { dir, acl } = await placeOf(t)
  const ids = ['--agent', ALICE, '--machine', LAPTOP]
  for (const [words, why] of [
    [[...ids, '--file', 'a'], /--file: "a" is not an absolute path/],
    [[...ids, '--file', '/a/../b'], /is not an absolute path without/],
    [[...ids, '--file', '/a', '--', 'df'], /--file takes the place of a command/],
    [[...ids, '--write', '--', 'df'], /--write needs --file/],
    [[...ids, '--file', '/a', '--detach'], /cannot be used with/],
    [['--last', '--file', '/a'], /cannot be used with/],
    [['--file', '/a'], /name the requester/],
  ] as const) {
    const { status, stderr } = await runCli(['--data-dir', join(dir, 'data'), 'acl', 'explain', acl, ...words])
    assert.notEqual(status, 0, words.join(' '))
    assert.match(stderr, why)
  }
})

test('acl check counts file roots, and refuses a root that contains the data directory', async (t) => {
  const { dir, acl } = await placeOf(t)
  const { status, stdout } = await runCli(['--data-dir', join(dir, 'data'), 'acl', 'check', acl])
  assert.equal(status, 0, stdout)
  assert.match(stdout, /1 allow entry, 0 commands, 1 root of files$/m)
  const inside = await runCli(['--data-dir', join(dir, 'files', 'data'), 'acl', 'check', acl])
  assert.equal(inside.status, 2)
  assert.match(inside.stdout, /^problem .*root: contains the data directory/m)
})

test('acl mine shows the rules for files, and how to use them', async (t) => {
  const answer = (argvs: string[][]): object => ({
    ok: true,
    request_id: '0192d3a0-0000-7000-8000-000000000001',
    agent_id: ALICE,
    machine_id: LAPTOP,
    denial_reason: null,
    rules: argvs.map((argv) => ({ ...RULE, argv })),
    left_out: 0,
  })
  const files = [
    ['@read', '/srv/my app/'],
    ['@write', '/srv/my app/'],
  ]
  const answers = [answer(files), answer([['uptime'], ...files])]
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, answers.shift() ?? {}))
  const alone = await runCli(['--data-dir', dir, 'acl', 'mine', 'bob'])
  assert.equal(alone.status, 0)
  assert.match(alone.stdout, /^@read '\/srv\/my app\/' .*deployments$/m)
  assert.match(alone.stdout, /^@read, @write: files in this directory and below$/m)
  assert.match(alone.stdout + alone.stderr, /Try: x0x .*ls bob:DIRECTORY/)
  assert.doesNotMatch(alone.stdout + alone.stderr, /-- COMMAND/)
  const both = await runCli(['--data-dir', dir, 'acl', 'mine', 'bob'])
  assert.match(both.stdout + both.stderr, /-- COMMAND/)
})
