import assert from 'node:assert/strict'
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, beforeEach, test } from 'node:test'

import { WatchingHuman } from '../../test/support/mesh-approvals.ts'
import { MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { linkOf, startUi } from '../../test/support/ui-program.ts'
import { openPage, seriousFaults, skipsBrowser, WITHOUT_BROWSER } from '../page/browser.ts'

// An approver decides about each file that a peer copies. Uses real daemons and the real command line.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let charlie: TestDaemon
let here: string
let there: string
let number = 0

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob, charlie] = [mesh.add('alice'), mesh.add('bob'), mesh.add('charlie')]
  await Promise.all([alice.start(), bob.start(), charlie.start()])
  await Promise.all([alice.meet(bob, 'known'), charlie.meet(bob, 'trusted')])
  await bob.meet(alice, 'trusted')
  await bob.meet(charlie, 'trusted')
  const [root, agents] = [join(mesh.root, 'roots'), join(mesh.root, 'agents')]
  await mkdir(root)
  await mkdir(agents)
  const keys = `[[exec.allow.files]]\nroot = "${root}"\nread = true\nwrite = true\ncreate_dirs = true\nask = true\n`
  const approved = `approvers = [{ agent_id = "${charlie.agentId}" }]\n[[exec.allow.files]]\nroot = "${agents}"\nread = true\nwrite = true\n`
  await bob.writeAcl([
    { agent: alice, commands: [], keys },
    { agent: alice, commands: [], keys: approved },
  ])
  await bob.restart()
})

after(async () => mesh.stop())

beforeEach(async () => {
  number += 1
  ;[here, there] = [join(mesh.root, `here-${number}`), join(mesh.root, 'roots', `${number}`)]
  await mkdir(here)
  await mkdir(there)
})

const copy = (...words: readonly string[]) => alice.startCli(['cp', ...words])

const WAITING = /waiting for approval: an approver of bob; \d:\d\d left, Ctrl-C withdraws it\n/

test('an approver sees each file before it is written, and allows or denies it', async () => {
  const human = await WatchingHuman.at(bob)
  await writeFile(join(here, 'app.tar'), 'new')
  const path = join(there, 'app.tar')
  const first = copy(join(here, 'app.tar'), `bob:${there}/`)
  const pending = await human.next()
  const { file, asker } = pending.question
  assert.deepEqual([file?.action, file?.path, file?.size, file?.present], ['write', path, 3, null])
  assert.equal(asker.kind === 'mesh' && asker.agent_id, alice.agentId)
  assert.match(await bob.ok('approvals', 'pending'), /wants to {4}write "[^"]*app\.tar" \(3 bytes, SHA-256/)
  await assert.rejects(readFile(path), { code: 'ENOENT' })
  await human.decide(pending, 'allow_once')
  const up = await first.finished
  assert.equal(up.status, 0, up.stderr)
  assert.match(up.stderr, WAITING)
  assert.ok(up.stderr.startsWith(`x0x: ${path}: `), up.stderr)
  assert.equal(await readFile(path, 'utf8'), 'new')
  await writeFile(join(here, 'app.tar'), 'newer')
  const second = copy(join(here, 'app.tar'), `bob:${there}/`)
  const replaced = await human.next()
  assert.equal(replaced.question.file?.present?.size, 3)
  await human.decide(replaced, 'deny')
  const { status, stderr } = await second.finished
  assert.equal(status, 255, stderr)
  assert.match(stderr, /bob denied writing \S*app\.tar \(approval_denied\): an approver refused it/)
  assert.deepEqual([await readFile(path, 'utf8'), await readdir(there)], ['new', ['app.tar']])
  human.close()
})

test('a download needs one approval for each version of a file', async () => {
  const human = await WatchingHuman.at(bob)
  await writeFile(join(there, 'log'), 'text')
  const first = copy(`bob:${there}/log`, here)
  const pending = await human.next()
  assert.deepEqual([pending.question.file?.action, pending.question.file?.size], ['read', 4])
  await human.decide(pending, 'allow_once')
  const down = await first.finished
  assert.deepEqual([down.status, await readFile(join(here, 'log'), 'utf8')], [0, 'text'], down.stderr)
  assert.match(down.stderr, WAITING)
  const again = await copy(`bob:${there}/log`, join(here, 'again')).finished
  assert.deepEqual([again.status, again.stderr], [0, ''])
  await writeFile(join(there, 'log'), 'other text')
  const changed = copy(`bob:${there}/log`, join(here, 'changed'))
  await human.decide(await human.next(), 'deny')
  const { status, stderr } = await changed.finished
  assert.equal(status, 255, stderr)
  assert.match(stderr, /bob denied reading \S*\/log \(approval_denied\)/)
  assert.deepEqual((await readdir(here)).toSorted(), ['again', 'log'])
  human.close()
})

test('without an approval client every file is denied, and the old file stays', async () => {
  await writeFile(join(here, 'file'), 'new')
  await writeFile(join(there, 'file'), 'old')
  const up = await copy(join(here, 'file'), `bob:${there}/`).finished
  assert.equal(up.status, 255)
  assert.match(up.stderr, /\(approval_unavailable\): no approver was connected/)
  const down = await copy(`bob:${there}/file`, join(here, 'copy')).finished
  assert.match(down.stderr, /\(approval_unavailable\)/)
  assert.deepEqual([await readFile(join(there, 'file'), 'utf8'), await readdir(here)], ['old', ['file']])
})

test('Ctrl-C withdraws the approval request', async () => {
  const human = await WatchingHuman.at(bob)
  await writeFile(join(here, 'file'), 'new')
  await writeFile(join(there, 'file'), 'old')
  for (const words of [
    [join(here, 'file'), `bob:${there}/`],
    [`bob:${there}/file`, join(here, 'copy')],
  ]) {
    const run = copy(...words)
    await human.next()
    run.child.kill('SIGINT')
    await human.nothingWaits()
    const { status, stderr } = await run.finished
    assert.equal(status, 130, stderr)
    assert.match(stderr, /interrupted: 0 of 1 file copied/)
  }
  assert.equal(await readFile(join(there, 'file'), 'utf8'), 'old')
  human.close()
})

test('each file and directory of a recursive copy is decided alone, and a denial does not stop the others', async () => {
  const human = await WatchingHuman.at(bob)
  await mkdir(join(here, 'site/denied'), { recursive: true })
  await mkdir(join(here, 'site/allowed'), { recursive: true })
  for (const name of ['site/a', 'site/b', 'site/denied/c', 'site/allowed/d']) await writeFile(join(here, name), name)
  const run = copy('-r', join(here, 'site'), `bob:${there}/`)
  const denied = ['site/b', 'site/denied'].map((name) => join(there, name))
  const seen: string[] = []
  // Two directories, and the three files outside the denied directory.
  while (seen.length < 5) {
    const pending = await human.next()
    const path = pending.question.file?.path ?? ''
    seen.push(path)
    await human.decide(pending, denied.includes(path) ? 'deny' : 'allow_once')
  }
  const { status, stderr } = await run.finished
  assert.equal(status, 1, stderr)
  for (const path of denied) assert.ok(stderr.includes(`denied writing ${path} (approval_denied)`), stderr)
  assert.deepEqual((await readdir(join(there, 'site'), { recursive: true })).toSorted(), ['a', 'allowed', 'allowed/d'])
  human.close()
})

test('a file that changes while the approval request waits is not sent', async () => {
  const human = await WatchingHuman.at(bob)
  await writeFile(join(there, 'file'), 'public')
  const run = copy(`bob:${there}/file`, here)
  const pending = await human.next()
  await writeFile(join(there, 'file'), 'secret')
  await human.decide(pending, 'allow_once')
  const { status, stderr } = await run.finished
  assert.equal(status, 1, stderr)
  assert.match(stderr, /\(ESTALE\)/)
  assert.deepEqual(await readdir(here), [])
  human.close()
})

test('a fan-out reports which hosts wait for approval and which denied', async () => {
  const human = await WatchingHuman.at(bob)
  await writeFile(join(here, 'file'), 'new')
  const run = copy(join(here, 'file'), `bob:${there}/`, '--canary', '1')
  await human.decide(await human.next(), 'deny')
  const { status, stderr } = await run.finished
  assert.notEqual(status, 0)
  assert.match(stderr, /x0x: bob: waiting for approval: an approver of bob/)
  assert.match(stderr, /approval_denied/)
  human.close()
})

test('the approvers of an ACL entry decide about its files too, and see the same sentence', async () => {
  const human = await WatchingHuman.at(charlie)
  await writeFile(join(here, 'file'), 'new')
  const path = join(mesh.root, 'agents/file')
  const run = copy(join(here, 'file'), `bob:${path}`)
  const pending = await human.next()
  assert.deepEqual([pending.question.file?.path, pending.question.target.host], [path, 'node'])
  assert.match(await charlie.ok('approvals', 'pending'), /wants to {4}write "[^"]*agents\/file" \(3 bytes, SHA-256/)
  await human.decide(pending, 'allow_once')
  const { status, stderr } = await run.finished
  assert.equal(status, 0, stderr)
  assert.match(stderr, /waiting for approval: 0 of 1 approvals of other agents given/)
  assert.equal(await readFile(path, 'utf8'), 'new')
  human.close()
})

test(`the page shows a file as one sentence, and can allow it${WITHOUT_BROWSER}`, { skip: skipsBrowser }, async (t) => {
  const name = 'a\u202eb.tar'
  await writeFile(join(here, name), 'new')
  const { page } = await openPage(t)
  const ui = startUi(t, ['--data-dir', bob.dir, '--json'])
  await page.goto(linkOf(await ui.next()).url)
  await page.getByText(/^Connected to/).waitFor()
  await page.getByRole('navigation').getByRole('link', { name: 'Approvals' }).click()
  const run = copy(join(here, name), `bob:${there}/`)
  const card = page.locator('article:not(.settled)')
  await card.getByText(/wants to write "[^"]*\/a\\u202eb\.tar" \(3 bytes, SHA-256 [0-9a-f]{64}\), a new file with mode 0\d{3}/).waitFor()
  assert.deepEqual(await seriousFaults(page), [])
  await page.waitForTimeout(700)
  await card.getByRole('button', { name: 'Allow once' }).click()
  const { status, stderr } = await run.finished
  assert.equal(status, 0, stderr)
  assert.equal(await readFile(join(there, name), 'utf8'), 'new')
})
