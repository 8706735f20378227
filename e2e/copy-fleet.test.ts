import assert from 'node:assert/strict'
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { readLedger } from '../src/programs/x0x/fleet/ledger-file.ts'
import { MeshOfDaemons, startCli, type TestDaemon, until } from '../test/support/mesh-of-daemons.ts'

// Copies files to three real daemons with the built command line. Each host may write below its own directories in `there`.

const MIB = 1024 * 1024
const NAMES = ['web1', 'web2', 'web3']

let mesh: MeshOfDaemons
let alice: TestDaemon
let web: TestDaemon[]
let file: string
let there: string

/** All hosts use the file system of this machine, so the roots in its ACL identify a host. */
const grant = async (host: TestDaemon, roots: readonly string[]): Promise<void> => {
  const keys = roots.map((root) => `[[exec.allow.files]]\nroot = "${root}"\nread = true\nwrite = true\ncreate_dirs = true\n`).join('')
  await host.writeAcl([{ agent: alice, commands: [], keys }])
}

before(async () => {
  mesh = await MeshOfDaemons.create()
  alice = mesh.add('alice')
  await alice.start()
  there = join(mesh.root, 'there')
  for (const name of ['all', 'some']) await mkdir(join(there, name), { recursive: true })
  file = join(mesh.root, 'app.tar')
  await writeFile(file, 'content')
  web = NAMES.map((name) => mesh.add(name))
  await Promise.all(
    web.map(async (host) => {
      await grant(host, host.name === 'web2' ? [join(there, 'all')] : [join(there, 'all'), join(there, 'some')])
      await host.start()
    }),
  )
  for (const host of web) {
    await alice.meet(host, 'known')
    await host.meet(alice, 'trusted')
  }
})

after(async () => mesh.stop())

const endsIn = async (path: string): Promise<string[]> => (await readLedger(path)).state.ends().map(({ host, end }) => `${host} ${end}`)
const copiesOf = async (host: TestDaemon, path: string): Promise<number> =>
  (await host.journal()).filter(({ event, argv }) => event === 'request' && Array.isArray(argv) && argv[0] === '@write' && argv[1] === path)
    .length

test('a file is copied to each host, and the summary is that of a fan-out', async () => {
  const result = await alice.cli(['cp', file, `web[1-3]:${there}/all/`])
  assert.deepEqual([result.status, result.stdout.toString()], [0, ''], result.stderr)
  assert.match(result.stderr, /^x0x: 3 hosts asked: 3 ran, 0 denied, 0 unreachable, 0 not started, 0 cancelled, 0 unknown; \d+ s\n$/)
  assert.equal(await readFile(join(there, 'all/app.tar'), 'utf8'), 'content')
  for (const host of web) assert.equal(await copiesOf(host, join(there, 'all/app.tar')), 1, host.name)
})

test('the summary names a host that denies the copy, and --retry copies to that host alone', async () => {
  const ledger = join(mesh.root, 'denied.ledger')
  const target = join(there, 'some/app.tar')
  const first = await alice.cli(['cp', file, `web[1-3]:${there}/some/`, '--ledger', ledger])
  assert.equal(first.status, 3, first.stderr)
  assert.match(first.stderr, /^x0x: 3 hosts asked: 2 ran, 1 denied, 0 unreachable/m)
  assert.match(first.stderr, /^ {5}denied \(1\): web2: argv_not_allowed: /m)
  assert.match(first.stderr, /^ {5}To continue: x0x --data-dir \S+ cp --retry \S+denied\.ledger$/m)
  assert.deepEqual(await endsIn(ledger), ['web1 ran', 'web2 denied', 'web3 ran'])
  assert.match((await alice.cli(['exec', '--retry', ledger])).stderr, /the ledger is one of x0x cp/)
  await grant(web[1]!, [join(there, 'all'), join(there, 'some')])
  await web[1]!.restart()
  const again = await until('web2 is back', async () => {
    const result = await alice.cli(['cp', '--retry', ledger])
    return result.status === 0 && result
  })
  assert.match(again.stderr, /the whole ledger: 3 hosts asked: 3 ran/)
  assert.deepEqual(await Promise.all(web.map(async (host) => copiesOf(host, target))), [1, 1, 1])
  assert.match((await alice.cli(['cp', '--retry', ledger])).stderr, /no host to retry: each host has the whole copy/)
})

test('if a canary host fails to copy, no other host is tried', async () => {
  await grant(web[0]!, [join(there, 'some')])
  await web[0]!.restart()
  const path = join(there, 'all/canary')
  const result = await until('web1 is back', async () => {
    const one = await alice.cli(['cp', file, `web[1-3]:${path}`, '--canary', '1'])
    return /1 denied/.test(one.stderr) && one
  })
  assert.equal(result.status, 3, result.stderr)
  assert.match(result.stderr, /^x0x: 3 hosts asked: 0 ran, 1 denied, 0 unreachable, 2 not started/m)
  assert.match(result.stderr, /not started \(2\): web\[2-3\]: a canary host failed/)
  assert.deepEqual(await Promise.all(web.slice(1).map(async (host) => copiesOf(host, path))), [0, 0])
})

test('each failed file has an error line, and Ctrl-C stops all copies and writes the results so far', async () => {
  const blocked = join(there, 'all/blocked')
  await writeFile(blocked, '')
  const failed = await alice.cli(['cp', file, `web[2-3]:${blocked}/`])
  assert.equal(failed.status, 1, failed.stderr)
  assert.match(failed.stderr, /^web2: .*blocked: is not a directory$/m)
  assert.match(failed.stderr, /^x0x: 2 hosts asked: 2 ran \(2 failed\)/m)
  const large = join(mesh.root, 'large')
  await writeFile(large, Buffer.alloc(150 * MIB))
  const ledger = join(mesh.root, 'stopped.ledger')
  const running = startCli(['--data-dir', alice.dir, 'cp', large, `web[2-3]:${there}/all/large`, '--parallel', '1', '--ledger', ledger])
  await until('a part of the file is there', async () => (await readdir(join(there, 'all'))).some((name) => name.includes('.x0x-')))
  running.child.kill('SIGINT')
  const result = await running.finished
  assert.equal(result.status, 130, result.stderr)
  assert.match(result.stderr, /1 not started, 1 cancelled/)
  assert.deepEqual(await endsIn(ledger), ['web2 cancelled', 'web3 not_started'])
  const again = await alice.cli(['cp', '--retry', ledger, '--json'])
  assert.equal(again.status, 0, again.stderr)
  const told = JSON.parse(again.stdout.toString()) as { ok: boolean; ran: number }
  assert.deepEqual([told.ok, told.ran], [true, 2])
  await rm(large)
})

test('a copy that cannot be a fan-out is a usage error', async () => {
  for (const [words, text] of [
    [['-', `web[1-3]:${there}/all/x`], /standard input cannot be copied to several hosts/],
    [[`web[1-3]:${there}/all/app.tar`, '.'], /a download is from one/],
    [['--parallel', '0', file, `web1:${there}/all/`], /--parallel must be/],
  ] as const) {
    const result = await alice.cli(['cp', ...words])
    assert.equal(result.status, 2, result.stderr)
    assert.match(result.stderr, text)
  }
  const missing = await alice.cli(['cp', join(mesh.root, 'none'), `web[1-3]:${there}/all/`])
  assert.match(missing.stderr, /none: no such file or directory \(ENOENT\)/)
  assert.equal(missing.status, 255)
})
