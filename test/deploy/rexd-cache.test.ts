import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, beforeEach, test } from 'node:test'
import { Script } from 'node:vm'

import { replace } from '../../deploy/build.mjs'
import { tempDir } from '../support/temp-dir.ts'

// dist/rexd.cache: how the runtime compiled rexd when it was built.

const DIST = join(import.meta.dirname, '..', '..', 'dist')
const FILES = ['rexd.mjs', 'rexd.cjs', 'rexd.cache']

let dir: string
const made: string[] = []
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'x0x-cache-'))
  made.push(dir)
  for (const name of FILES) await cp(join(DIST, name), join(dir, name), { preserveTimestamps: true })
})
after(async () => {
  for (const one of made) await rm(one, { recursive: true, force: true })
})

const run = (env: Readonly<Record<string, string>> = {}): string => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(dir, 'rexd.mjs'), '--version'], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
  })
  return `${status} ${stdout}${stderr}`
}

/** Its first line, which says of what it is, and what the runtime made. */
const cacheIn = async (): Promise<{ key: string; data: Buffer }> => {
  const cache = await readFile(join(dir, 'rexd.cache'))
  const end = cache.indexOf('\n') + 1
  return { key: cache.toString('latin1', 0, end), data: cache.subarray(end) }
}

test('the first line says of which bytes the cache is, of which bundle and for which runtime, and the runtime takes it', async () => {
  const { key, data } = await cacheIn()
  const bundle = await readFile(join(dir, 'rexd.cjs'))
  assert.equal(key, `${hash('sha256', bundle)} ${hash('sha256', data)} ${process.version} ${process.platform}-${process.arch}\n`)
  assert.equal(new Script(bundle.toString(), { cachedData: data }).cachedDataRejected, false)
})

test('a damaged cache ends nothing, wherever it is damaged', async () => {
  const started = run()
  assert.match(started, /^0 rexd \d/)
  const { key, data } = await cacheIn()
  for (let part = 0; part < 8; part++) {
    const damaged = Buffer.from(data)
    const at = part === 0 ? 64 : Math.floor((data.length / 8) * part)
    damaged.fill(0, at, at + 4096)
    await writeFile(join(dir, 'rexd.cache'), Buffer.concat([Buffer.from(key), damaged]))
    assert.equal(run(), started, `zeros at ${at} of ${data.length}`)
  }
})

test('a bundle that was edited by hand runs as it stands, also where it is as long as before', async () => {
  const started = run()
  const version = /[\d.]+$/m.exec(started)?.[0] ?? ''
  const text = await readFile(join(dir, 'rexd.cjs'), 'utf8')
  for (const other of [version.replaceAll(/\d/g, '9'), `${version}–ä`]) {
    const edited = text.replace(`version:"${version}"`, `version:"${other}"`)
    assert.ok(edited !== text)
    await writeFile(join(dir, 'rexd.cjs'), edited)
    assert.equal(run(), started.replace(version, other))
  }
})

test('what is of another text or another runtime, cut off or no cache at all counts for nothing', async () => {
  const started = run()
  const { key, data } = await cacheIn()
  const cache = join(dir, 'rexd.cache')
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
    assert.equal(run(), started)
  }
  await writeFile(cache, Buffer.concat([Buffer.from(key), data]))
  await truncate(cache, key.length + data.length / 2)
  assert.equal(run(), started)
  await rm(cache)
  assert.equal(run(), started)
  await mkdir(cache)
  assert.equal(run(), started)
})

test('only who may write the bundle may write its cache', async () => {
  const [bundle, cache] = await Promise.all(['rexd.cjs', 'rexd.cache'].map(async (name) => stat(join(DIST, name))))
  assert.deepEqual([cache!.uid, cache!.gid, cache!.mode & 0o777], [bundle!.uid, bundle!.gid, 0o644])
})

test('a start writes nothing, beside the bundle or where its user has caches', async () => {
  const home = join(dir, 'home')
  await mkdir(home)
  const place = async (): Promise<unknown> =>
    Promise.all(FILES.map(async (name) => [name, (await stat(join(dir, name))).mtimeMs, await readFile(join(dir, name))]))
  await rm(join(dir, 'rexd.cache'))
  await writeFile(join(dir, 'rexd.cache'), 'of another')
  const before = await place()
  run({ HOME: home, XDG_CACHE_HOME: home, TMPDIR: home })
  assert.deepEqual(await place(), before)
  assert.deepEqual([await readdir(home), (await readdir(dir)).sort()], [[], [...FILES, 'home'].sort()])
})

test('what the build cannot put in its place leaves nothing beside it', async (t) => {
  const place = await tempDir(t)
  await mkdir(join(place, 'rexd.cache', 'full'), { recursive: true })
  await assert.rejects(replace(join(place, 'rexd.cache'), 'text', 0o644))
  assert.deepEqual(await readdir(place), ['rexd.cache'])
})
