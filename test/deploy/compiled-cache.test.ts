import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { chmodSync, closeSync, openSync } from 'node:fs'
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { Script } from 'node:vm'

import { replace } from '../../deploy/build.mjs'
import { functionIn, keyOf } from '../../deploy/compiled-script.mjs'
import { NETWORK_RIGHTS } from '../../src/supervision/network-supervisor.ts'
import { tempDir } from '../support/temp-dir.ts'

// The files dist/*.cache contain code that the runtime compiled when the package was built.

const DIST = join(import.meta.dirname, '..', '..', 'dist')
const COMPILED_SCRIPT = pathToFileURL(join(import.meta.dirname, '..', '..', 'deploy', 'compiled-script.mjs')).href

const made: string[] = []
after(async () => {
  for (const one of made) await rm(one, { recursive: true, force: true })
})

type Env = Readonly<Record<string, string>>

/** A program in a temporary directory, which prints some text and ends. */
interface Program {
  readonly name: string
  /** The loader, the program and its cache. */
  readonly files: readonly [string, string, string]
  /** Arguments that make the program print `text` and end. */
  readonly words: readonly string[]
  /** A text of the program that it prints. */
  readonly printed: RegExp
  /** Runs the program and returns its status and output. */
  run(dir: string, env?: Env): string
}

const outcome = ({ status, stdout, stderr }: { status: number | null; stdout: string; stderr: string }): string =>
  `${status} ${stdout}${stderr}`

const byItself = (name: string): Program => ({
  name,
  files: [`${name}.mjs`, `${name}.cjs`, `${name}.cache`],
  words: ['--version'],
  printed: /\d+\.\d+\.\d+/,
  run: (dir, env = {}) =>
    outcome(spawnSync(process.execPath, [join(dir, `${name}.mjs`), '--version'], { encoding: 'utf8', env: { ...process.env, ...env } })),
})

/** Starts the network process as the executor process does, with the loader on standard input, two open files and no permissions. */
const NETWORK: Program = {
  name: 'x0xd-network',
  files: ['x0xd-network-start.mjs', 'x0xd-network.mjs', 'x0xd-network.cache'],
  words: [],
  printed: /To start it separately/,
  run(dir, env = {}) {
    const [loader, program, cache] = this.files.map((name) => openSync(join(dir, name), 'r')) as [number, number, number]
    try {
      const stdio = [loader, 'pipe', 'pipe', 'ignore', 'ignore', program, cache] as const
      const argv = [...NETWORK_RIGHTS, '--input-type=module', '-']
      return outcome(spawnSync(process.execPath, argv, { encoding: 'utf8', env, cwd: '/', stdio: [...stdio] }))
    } finally {
      for (const fd of [loader, program, cache]) closeSync(fd)
    }
  },
}

const PROGRAMS = [byItself('rexd'), byItself('x0xd'), NETWORK]

const copied = async ({ files }: Program): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-cache-'))
  made.push(dir)
  for (const name of files) await cp(join(DIST, name), join(dir, name), { preserveTimestamps: true })
  return dir
}

/** The text that the runtime compiles. */
const scriptIn = async (dir: string, { files: [, program] }: Program): Promise<Buffer> => {
  const bytes = await readFile(join(dir, program))
  return program.endsWith('.cjs') ? bytes : functionIn(bytes)
}

/** The first line of the cache, with its hashes and versions, and the compiled code. */
const cacheIn = async (dir: string, { files: [, , name] }: Program): Promise<{ key: string; data: Buffer }> => {
  const cache = await readFile(join(dir, name))
  const end = cache.indexOf('\n') + 1
  return { key: cache.toString('latin1', 0, end), data: cache.subarray(end) }
}

for (const program of PROGRAMS) {
  const [, bundle, cacheName] = program.files
  const { name } = program

  test(`${name}: the cache starts with the hashes of bundle and code and the runtime, and the runtime accepts it`, async () => {
    const dir = await copied(program)
    const { key, data } = await cacheIn(dir, program)
    const text = await scriptIn(dir, program)
    assert.equal(key, `${hash('sha256', text)} ${hash('sha256', data)} ${process.version} ${process.platform}-${process.arch}\n`)
    assert.equal(new Script(text.toString(), { cachedData: data }).cachedDataRejected, false)
  })

  test(`${name}: a program with a damaged cache runs as usual`, async () => {
    const dir = await copied(program)
    const started = program.run(dir)
    assert.match(started, program.printed)
    const { key, data } = await cacheIn(dir, program)
    for (let part = 0; part < 8; part++) {
      const damaged = Buffer.from(data)
      const at = part === 0 ? 64 : Math.floor((data.length / 8) * part)
      damaged.fill(0, at, at + 4096)
      await writeFile(join(dir, cacheName), Buffer.concat([Buffer.from(key), damaged]))
      assert.equal(program.run(dir), started, `zeros at ${at} of ${data.length}`)
    }
  })

  test(`${name}: a bundle that was edited by hand runs with its changes, even if its length is the same`, async () => {
    const dir = await copied(program)
    const started = program.run(dir)
    const [printed = ''] = program.printed.exec(started) ?? []
    const text = await readFile(join(dir, bundle), 'utf8')
    for (const other of [printed.replaceAll(/\w/g, '9'), `${printed}-longer`]) {
      const edited = text.replaceAll(printed, other)
      assert.ok(edited !== text)
      await writeFile(join(dir, bundle), edited)
      assert.equal(program.run(dir), started.replaceAll(printed, other))
    }
  })

  test(`${name}: a cache that is truncated, missing, or for another text or runtime is ignored`, async () => {
    const dir = await copied(program)
    const started = program.run(dir)
    const { key, data } = await cacheIn(dir, program)
    const cache = join(dir, cacheName)
    const whole = hash('sha256', data)
    const rejected = Buffer.from(data)
    rejected.fill(0xff, 0, 64)
    const rejectedKey = key.replace(whole, hash('sha256', rejected))
    for (const bytes of [
      Buffer.concat([Buffer.from(rejectedKey.replace(process.version, 'v24.0.0')), rejected]),
      Buffer.concat([Buffer.from(rejectedKey.replace(/^[0-9a-f]{64}/, '0'.repeat(64))), rejected]),
      Buffer.concat([Buffer.from(rejectedKey), rejected]),
      Buffer.from(key.replace(whole, hash('sha256', ''))),
      Buffer.from(key),
      Buffer.from(key.slice(0, -1)),
      Buffer.from('nothing of ours'),
      Buffer.alloc(0),
    ]) {
      await writeFile(cache, bytes)
      assert.equal(program.run(dir), started)
    }
    await writeFile(cache, Buffer.concat([Buffer.from(key), data]))
    await truncate(cache, key.length + data.length / 2)
    assert.equal(program.run(dir), started)
    if (program === NETWORK) return
    await rm(cache)
    assert.equal(program.run(dir), started)
    await mkdir(cache)
    assert.equal(program.run(dir), started)
  })

  test(`${name}: a cache is ignored if more users may write it than may write the bundle`, async () => {
    const dir = await copied(program)
    const started = program.run(dir)
    const [printed = ''] = program.printed.exec(started) ?? []
    const other = printed.replaceAll(/\w/g, '9')
    // The runtime would accept code that it compiled from any text of this length.
    const file = join(dir, 'evil')
    await writeFile(file, String(await scriptIn(dir, program)).replaceAll(printed, other))
    const code = `import { readFileSync, writeFileSync } from 'node:fs'
      import { Script } from 'node:vm'
      import { mainOf } from ${JSON.stringify(COMPILED_SCRIPT)}
      const [file, words] = process.argv.slice(1)
      const script = new Script(readFileSync(file, 'utf8'), { filename: file })
      process.once('exit', () => writeFileSync(file + '.compiled', script.createCachedData()))
      await mainOf(script, file, 'file:///x.mjs')(JSON.parse(words), process.env)`
    spawnSync(process.execPath, ['--input-type=module', '--eval', code, file, JSON.stringify(program.words)])
    const [cache, compiled] = [join(dir, cacheName), await readFile(`${file}.compiled`)]
    await writeFile(cache, Buffer.concat([Buffer.from(keyOf(await scriptIn(dir, program), compiled)), compiled]))
    assert.equal(program.run(dir), started.replaceAll(printed, other), 'it is code of another text, and would be run')
    for (const mode of [0o664, 0o646]) {
      chmodSync(cache, mode)
      assert.equal(program.run(dir), started, mode.toString(8))
    }
    await chmod(join(dir, bundle), 0o664)
    await chmod(cache, 0o664)
    assert.notEqual(program.run(dir), started, 'where the group may write the bundle, it may write its cache')
  })

  test(`${name}: the bundle and its cache have the same owner, and only the owner may write the cache`, async () => {
    const [its, own] = await Promise.all([bundle, cacheName].map(async (file) => stat(join(DIST, file))))
    assert.deepEqual([own!.uid, own!.gid, own!.mode & 0o777], [its!.uid, its!.gid, 0o644])
  })

  test(`${name}: a start writes no file next to the bundle or in the user's directories`, async () => {
    const dir = await copied(program)
    const home = join(dir, 'home')
    await mkdir(home)
    const place = async (): Promise<unknown> =>
      Promise.all(program.files.map(async (file) => [file, (await stat(join(dir, file))).mtimeMs, await readFile(join(dir, file))]))
    await writeFile(join(dir, cacheName), 'of another')
    const before = await place()
    program.run(dir, { HOME: home, XDG_CACHE_HOME: home, TMPDIR: home })
    assert.deepEqual(await place(), before)
    assert.deepEqual([await readdir(home), (await readdir(dir)).sort()], [[], [...program.files, 'home'].sort()])
  })
}

test('a build step that cannot replace a file leaves no temporary file', async (t) => {
  const place = await tempDir(t)
  await mkdir(join(place, 'rexd.cache', 'full'), { recursive: true })
  await assert.rejects(replace(join(place, 'rexd.cache'), 'text', 0o644))
  assert.deepEqual(await readdir(place), ['rexd.cache'])
})
