import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { appendFile, chmod, mkdir, readFile, readdir, rm, stat, symlink, truncate, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { startCli, until, type RunningCli, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaintFiles, proxiedPair, type ProxiedPair } from '../test/support/proxied-pair.ts'

// Copies files between two real daemons with the built command line, over a path that can be cut.

const MIB = 1024 * 1024

interface Stage extends ProxiedPair<CuttableProxy> {
  /** Directory of the requester. */
  readonly here: string
  /** Root on bob that alice may read and write. */
  readonly there: string
}

const stageOf = async (t: TestContext, keys = 'read = true\nwrite = true\ncreate_dirs = true'): Promise<Stage> => {
  const pair = await proxiedPair(t, (port) => new CuttableProxy(port))
  const [here, there] = [join(pair.mesh.root, 'here'), join(pair.mesh.root, 'there')]
  await mkdir(here)
  await mkdir(there)
  await acquaintFiles(pair, `[[exec.allow.files]]\nroot = "${there}"\n${keys}\n`)
  return { ...pair, here, there }
}

const digest = async (path: string): Promise<string> =>
  createHash('sha256')
    .update(await readFile(path))
    .digest('hex')

/** Names of all finished files in a directory. */
const finished = async (directory: string): Promise<string[]> =>
  (await readdir(directory, { recursive: true })).filter((name) => !/\.x0x-|\.part$/.test(name)).toSorted()

const copy = async ({ alice }: Stage, ...words: readonly string[]) => alice.cli(['cp', ...words])

const start = (agent: TestDaemon, ...words: readonly string[]): RunningCli => startCli(['--data-dir', agent.dir, 'cp', ...words])

test('files of every size arrive whole in both directions', async (t) => {
  const stage = await stageOf(t)
  const { here, there } = stage
  for (const size of [0, 1, 61_440, MIB, 16 * MIB, 16 * MIB + 1, 33 * MIB + 7]) {
    await writeFile(join(here, 'file'), randomBytes(size))
    const up = await copy(stage, join(here, 'file'), `bob:${there}/`)
    assert.deepEqual([up.status, up.stderr], [0, ''], `${size} bytes up`)
    const down = await copy(stage, `bob:${there}/file`, join(here, 'back'))
    assert.deepEqual([down.status, down.stderr], [0, ''], `${size} bytes down`)
    assert.equal(await digest(join(here, 'back')), await digest(join(here, 'file')), `${size} bytes`)
  }
  assert.deepEqual([await readdir(there), (await readdir(here)).toSorted()], [['file'], ['back', 'file']])
})

test('a tree is copied with its modes, times, empty directories and unusual names', async (t) => {
  const stage = await stageOf(t, 'read = true\nwrite = true\ncreate_dirs = true\nmode = "0777"')
  const { here, there } = stage
  const names = ['plain', 'with blank', 'line\nfeed', '-rf', '…', 'x'.repeat(200)]
  await mkdir(join(here, 'tree/empty'), { recursive: true })
  for (const name of names) await writeFile(join(here, 'tree', name), name)
  await chmod(join(here, 'tree/plain'), 0o750)
  await utimes(join(here, 'tree/plain'), 1_000_000, 1_000_000)
  await symlink('/etc/passwd', join(here, 'tree/link'))
  const up = await copy(stage, '-r', '-p', join(here, 'tree'), `bob:${there}/`)
  assert.equal(up.status, 0, up.stderr)
  assert.match(up.stderr, /link/)
  const down = await copy(stage, '-r', '-p', `bob:${there}/tree`, join(here, 'back'))
  assert.equal(down.status, 0, down.stderr)
  for (const root of [join(there, 'tree'), join(here, 'back')]) {
    assert.deepEqual(await finished(root), [...names, 'empty'].toSorted(), root)
    const { mode, mtimeMs } = await stat(join(root, 'plain'))
    assert.deepEqual([mode & 0o777, mtimeMs], [0o750, 1_000_000_000], root)
  }
})

test('the ACL entry that is suggested for a denied upload allows the upload but no read', async (t) => {
  const stage = await stageOf(t)
  const { alice, bob, mesh, here } = stage
  const inbox = join(mesh.root, 'inbox')
  await mkdir(inbox)
  await writeFile(join(here, 'report'), 'content')
  const denied = await copy(stage, join(here, 'report'), `bob:${inbox}/`)
  assert.equal(denied.status, 255, denied.stderr)
  const suggested = await bob.cli(['acl', 'suggest'])
  assert.equal(suggested.status, 0, suggested.stderr)
  const entry = suggested.stdout.toString()
  assert.ok(entry.endsWith(`[[exec.allow.files]]\nroot = "${inbox}"\nwrite = true\n`), entry)
  await appendFile(bob.aclFile, entry)
  await bob.restart()
  await until('bob is back', async () => (await copy(stage, join(here, 'report'), `bob:${inbox}/`)).status === 0)
  assert.equal(await readFile(join(inbox, 'report'), 'utf8'), 'content')
  const read = await alice.cli(['cp', `bob:${inbox}/report`, '-'])
  assert.match(read.stderr, /argv_not_allowed/)
})

test('x0x cp copies standard input and output, and x0x ls lists the directory', async (t) => {
  const stage = await stageOf(t)
  const { alice, there } = stage
  const data = randomBytes(20 * MIB)
  const up = await alice.cli(['cp', '-', `bob:${there}/data`], { stdin: data })
  assert.deepEqual([up.status, up.stderr], [0, ''])
  const down = await alice.cli(['cp', `bob:${there}/data`, '-'])
  assert.ok(down.status === 0 && down.stdout.equals(data))
  const listed = await alice.cli(['ls', `bob:${there}`, '--json'])
  assert.deepEqual([listed.status, listed.stdout.toString().includes('"data"')], [0, true])
  assert.equal((await alice.cli(['ls', `bob:${there}`])).stdout.toString(), 'data\n')
})

test('the ACL decides about each file, each failed file has its own error, and the exit status shows it', async (t) => {
  const stage = await stageOf(t, 'read = true\nwrite = true\nmax_file_bytes = 100')
  const { bob, here, there, mesh } = stage
  await writeFile(join(here, 'small'), 'small')
  await writeFile(join(here, 'large'), randomBytes(101))
  await mkdir(join(mesh.root, 'elsewhere'))
  await symlink(join(mesh.root, 'elsewhere'), join(there, 'out'))
  const outside = await copy(stage, join(here, 'small'), `bob:${mesh.root}/new`)
  assert.deepEqual([outside.status, /argv_not_allowed/.test(outside.stderr)], [255, true], outside.stderr)
  const through = await copy(stage, join(here, 'small'), `bob:${there}/out/new`)
  assert.deepEqual([through.status, /forbidden_path/.test(through.stderr)], [1, true], through.stderr)
  const both = await copy(stage, join(here, 'large'), join(here, 'none'), join(here, 'small'), `bob:${there}/`)
  assert.equal(both.status, 1)
  assert.match(both.stderr, /large.*EFBIG/s)
  assert.match(both.stderr, /none.*ENOENT/s)
  assert.deepEqual(await finished(there), ['out', 'small'])
  for (const words of [['a', 'b'], [`bob:${there}/small`, `bob:${there}/other`], [`bob:small`, '.'], ['a'], [`bob[1-2]:${there}/a`, '.']])
    assert.equal((await copy(stage, ...words)).status, 2, words.join(' '))
  // The audit log has every request, and it verifies.
  const asked = (await bob.journal()).filter(({ event }) => event === 'request')
  assert.ok(asked.some(({ argv }) => Array.isArray(argv) && argv[0] === '@write' && argv[1] === `${there}/small`))
  await bob.ok('audit', 'verify')
})

/** Waits until the unfinished file has some bytes. */
const begun = async (directory: string, bytes = 2 * MIB): Promise<number> =>
  until('a part of the file is there', async () => {
    const [name] = (await readdir(directory)).filter((one) => /\.x0x-|\.part$/.test(one))
    const { size = 0 } = name === undefined ? {} : await stat(join(directory, name)).catch(() => ({ size: 0 }))
    return size >= bytes && size
  })

for (const [direction, title] of [
  ['up', 'an upload'],
  ['down', 'a download'],
] as const) {
  const LARGE = 80 * MIB
  const begin = async (t: TestContext): Promise<Stage & { words: [string, string]; to: string; source: string }> => {
    const stage = await stageOf(t)
    const { here, there } = stage
    const [from, to] = direction === 'up' ? [here, there] : [there, here]
    const source = join(from, 'large')
    await writeFile(source, randomBytes(LARGE))
    return { ...stage, to, source, words: direction === 'up' ? [source, `bob:${to}/large`] : [`bob:${source}`, join(to, 'large')] }
  }

  test(`${title} continues after its client was killed, and the old file stays until then`, async (t) => {
    const { alice, to, source, words, ...stage } = await begin(t)
    await writeFile(join(to, 'large'), 'old')
    const running = start(alice, ...words)
    await begun(to)
    running.child.kill('SIGKILL')
    await running.finished
    assert.equal(await readFile(join(to, 'large'), 'utf8'), 'old')
    const again = await alice.cli(['cp', '--json', ...words])
    assert.equal(again.status, 0, again.stderr)
    assert.equal(await digest(join(to, 'large')), await digest(source))
    assert.deepEqual(await readdir(to), ['large'])
    void stage
  })

  test(`${title} says how to continue after Ctrl-C, and continues after a restart of both daemons`, async (t) => {
    const { alice, bob, to, source, words } = await begin(t)
    const running = start(alice, ...words)
    await begun(to)
    running.child.kill('SIGINT')
    const { status, stderr } = await running.finished
    assert.equal(status, 130)
    assert.match(stderr, /again/)
    await Promise.all([alice.restart(), bob.restart()])
    const again = await alice.cli(['cp', ...words])
    assert.equal(again.status, 0, again.stderr)
    assert.equal(await digest(join(to, 'large')), await digest(source))
    assert.deepEqual(await readdir(to), ['large'])
  })

  test(`${title} survives cuts of its connection`, async (t) => {
    const { alice, to, source, words, proxy } = await begin(t)
    const running = start(alice, ...words)
    for (const part of [1, 17, 33]) {
      await begun(to, part * MIB)
      proxy.cut()
    }
    const { status, stderr } = await running.finished
    assert.equal(status, 0, stderr)
    assert.equal(await digest(join(to, 'large')), await digest(source))
  })

  test(`${title} of a file that changes meanwhile is an error, not a mix`, async (t) => {
    const { alice, to, source, words } = await begin(t)
    const running = start(alice, ...words)
    await begun(to)
    await truncate(source, LARGE - 1)
    const { status, stderr } = await running.finished
    assert.equal(status, 1, stderr)
    assert.match(stderr, /chang|ESTALE/)
    assert.deepEqual(await finished(to), [])
  })
}

test('copying 300 MiB makes neither daemon grow by 128 MiB', async (t) => {
  const stage = await stageOf(t)
  const { alice, bob, here, there } = stage
  await writeFile(join(here, 'first'), randomBytes(32 * MIB))
  assert.equal((await copy(stage, join(here, 'first'), `bob:${there}/`)).status, 0)
  const before = await Promise.all([alice.memory(), bob.memory()])
  await writeFile(join(here, 'large'), '')
  await truncate(join(here, 'large'), 200 * MIB)
  assert.equal((await copy(stage, join(here, 'large'), `bob:${there}/`)).status, 0)
  assert.equal((await copy(stage, `bob:${there}/large`, join(here, 'back'))).status, 0)
  const after = await Promise.all([alice.memory(), bob.memory()])
  for (const [index, bytes] of after.entries()) assert.ok(bytes - before[index]! < 128 * MIB, `${before[index]} → ${bytes}`)
  // Zeros are stored as holes and occupy no disk space.
  assert.ok((await stat(join(there, 'large'))).blocks * 512 < 100 * MIB)
  await rm(join(here, 'back'))
})
