import assert from 'node:assert/strict'
import { mkdir, readFile as readPlain, realpath, symlink, writeFile as put } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Worker } from 'node:worker_threads'

import { isAppError } from '../../src/base/errors.ts'
import { parsePatch } from '../../src/fs/patch-format.ts'
import { readFile } from '../../src/fs/read.ts'
import { statPath } from '../../src/fs/read.ts'
import { writeFile } from '../../src/fs/write-file.ts'
import { longOrShort } from '../support/campaign.ts'
import { everythingIn, fileScene, type Scene } from '../support/file-permit.ts'
import { applyPatch, editFile, globFiles, listDirectory } from '../support/files.ts'

const SECRET = 'from outside'
const onLinux = { skip: process.platform !== 'linux' && 'elsewhere there are no descriptors to walk from' }
/** The least number of rounds of each race, and the most if the race has not happened yet. */
const ROUNDS = longOrShort(1_500, 500)
const MOST_ROUNDS = 20_000

/** Exchanges two names again and again. It moves away files that others create at these names. */
const SWAP = `
  const { renameSync } = require('node:fs')
  const { one, other } = workerData
  let strays = 0
  const swap = () => {
    renameSync(one, one + '.spare')
    for (let moved = false; !moved;) {
      try { renameSync(other, one); moved = true } catch { renameSync(one, one + '.stray' + strays++) }
    }
    renameSync(one + '.spare', other)
  }
  const turn = () => { swap(); rest(); swap() }
`

/** Replaces a file by a link and back. The name exists at every moment. */
const FLIP = `
  const { renameSync, symlinkSync, writeFileSync } = require('node:fs')
  const { one, other } = workerData
  const turn = () => {
    symlinkSync(other, one + '.spare')
    renameSync(one + '.spare', one)
    rest()
    writeFileSync(one + '.spare', 'inside')
    renameSync(one + '.spare', one)
  }
`

/** Limit of each race, because it keeps the file system busy even if the test has failed. */
const RACE_MS = 120_000

/** Runs the program until the work is done, and then restores the original state. */
const during = async (program: string, one: string, other: string, work: () => Promise<void>): Promise<void> => {
  const told = new Int32Array(new SharedArrayBuffer(8))
  const code = `
    const { workerData } = require('node:worker_threads')
    const { told } = workerData
    // A pause of some microseconds for other threads.
    const rest = () => Atomics.wait(told, 0, 0, 0.02)
    ${program}
    const end = performance.now() + ${RACE_MS}
    while (Atomics.load(told, 0) === 0 && performance.now() < end) { turn(); rest(); Atomics.add(told, 1, 1) }
  `
  const worker = new Worker(code, { eval: true, workerData: { one, other, told } })
  const ended = new Promise<void>((resolve, reject) => worker.once('exit', () => resolve()).once('error', reject))
  ended.catch(() => Atomics.store(told, 0, 1))
  try {
    while (Atomics.load(told, 0) === 0 && Atomics.load(told, 1) === 0) await new Promise(setImmediate)
    await work()
  } finally {
    Atomics.store(told, 0, 1)
    await ended
  }
}

const whileSwapping = (one: string, other: string, work: () => Promise<void>): Promise<void> => during(SWAP, one, other, work)

/** Repeats an attempt for the required rounds, until some attempts succeeded and some were refused. Returns the successful results. */
const untilBoth = async <T>(attempt: (round: number) => Promise<T>): Promise<T[]> => {
  const went: T[] = []
  let refused = 0
  for (let round = 0; round < ROUNDS || ((went.length === 0 || refused === 0) && round < MOST_ROUNDS); round++) {
    try {
      went.push(await attempt(round))
    } catch (error) {
      assert.ok(isAppError(error), String(error))
      assert.ok(['forbidden_path', 'file_not_found', 'file_error', 'conflict'].includes(error.code), `${error.code} ${error.message}`)
      if (error.code === 'forbidden_path') refused += 1
    }
  }
  assert.ok(went.length > 0 && refused > 0, `${went.length} went well, ${refused} were refused`)
  return went
}

const text = (data: Uint8Array): string => Buffer.from(data).toString()

/** The file app/d/f is inside the root, app2/f is outside, and app/link leads to app2. */
const scene = async (t: TestContext): Promise<Scene & { d: string; link: string }> => {
  const it = await fileScene(t)
  const [d, link] = [join(it.inside, 'd'), join(it.inside, 'link')]
  await mkdir(join(d, 'e'), { recursive: true })
  for (const path of ['f', 'e/g']) await put(join(d, path), 'inside')
  await mkdir(join(it.outside, 'e'))
  for (const path of ['f', 'e/g']) await put(join(it.outside, path), SECRET)
  await symlink(it.outside, link)
  return { ...it, d, link }
}

const requireUntouched = async (outside: string): Promise<void> => {
  assert.deepEqual(await everythingIn(outside), ['e', 'e/g', 'f'])
  for (const path of ['f', 'e/g']) assert.equal(await readPlain(join(outside, path), 'utf8'), SECRET)
}

test('the race is real, because a program that checks a path before it reads gets out of the root', onLinux, async (t) => {
  const { inside, d, link } = await scene(t)
  const naive = async (): Promise<string> => {
    const path = await realpath(join(d, 'f'))
    assert.ok(path.startsWith(`${inside}/`))
    return readPlain(join(d, 'f'), 'utf8')
  }
  await whileSwapping(d, link, async () => {
    for (let round = 0; round < MOST_ROUNDS; round++) if ((await naive().catch(() => '')) === SECRET) return
    assert.fail('it never got out')
  })
})

test('a read never returns bytes from outside while a directory of its path becomes a link', onLinux, async (t) => {
  const { outside, permit, d, link } = await scene(t)
  await whileSwapping(d, link, async () => {
    const permits = [permit('d/f'), permit('d/e/g')]
    for (const content of await untilBoth((round) => readFile(permits[round % 2]!))) assert.equal(text(content.data), 'inside')
  })
  await requireUntouched(outside)
})

test('a read never returns bytes from outside while its file becomes a link', onLinux, async (t) => {
  const { inside, outside, permit, d } = await scene(t)
  await symlink(join(outside, 'f'), join(inside, 'other'))
  await whileSwapping(join(d, 'f'), join(inside, 'other'), async () => {
    for (const content of await untilBoth(() => readFile(permit('d/f')))) assert.equal(text(content.data), 'inside')
  })
})

test('a read never returns bytes from outside while the root becomes a link', onLinux, async (t) => {
  const { inside, outside, permit } = await scene(t)
  await put(join(inside, 'f'), 'inside')
  await symlink(outside, `${inside}-link`)
  await whileSwapping(inside, `${inside}-link`, async () => {
    for (const content of await untilBoth(() => readFile(permit('f')))) assert.equal(text(content.data), 'inside')
  })
})

test('a read through a link with ".." never returns bytes from outside while its directory is moved out', onLinux, async (t) => {
  const { inside, outside, permit, d } = await scene(t)
  await put(join(inside, 'f'), 'inside')
  await symlink('../../f', join(d, 'e/up'))
  await mkdir(join(outside, 'e/empty'))
  await symlink('../../../app2/f', join(outside, 'e/empty/up'))
  await whileSwapping(join(d, 'e'), join(outside, 'e/empty'), async () => {
    for (const content of await untilBoth(() => readFile(permit('d/e/up')))) assert.equal(text(content.data), 'inside')
  })
})

test('a listing, a search and a status show no file from outside while a directory becomes a link', onLinux, async (t) => {
  const { outside, permit, d, link } = await scene(t)
  await put(join(d, 'here'), '')
  await put(join(outside, 'secret'), '')
  await mkdir(join(outside, 'e/secret'))
  await whileSwapping(d, link, async () => {
    const seen = await untilBoth(async (round) => {
      if (round % 3 === 0) return (await listDirectory(permit('d'), { recursive: true })).entries.map(({ path }) => path)
      if (round % 3 === 1) return (await globFiles(permit('d'), { pattern: '**' })).matches
      return (await statPath(permit('d/secret'))).exists ? ['secret'] : []
    })
    assert.ok(seen.flat().some((path) => path.endsWith('/here')))
    assert.ok(!seen.flat().some((path) => path.includes('secret')))
    for (let round = 0; round < ROUNDS / 3; round++) {
      const { entries } = await listDirectory(permit(), { recursive: true })
      const { matches } = await globFiles(permit(), { pattern: '**' })
      for (const path of [...entries.map(({ path }) => path), ...matches]) assert.ok(!path.includes('secret'), path)
    }
  })
})

test('a write changes and creates no file outside while a directory of its path becomes a link', onLinux, async (t) => {
  const { inside, outside, permit, d, link } = await scene(t)
  const data = Buffer.from('inside')
  const ways = [
    ['replace', true],
    ['replace', false],
    ['append', false],
    ['create', true],
    ['create', false],
  ] as const
  await whileSwapping(d, link, async () => {
    await untilBoth((round) => {
      const [mode, atomic] = ways[round % ways.length]!
      // Every second round uses an existing file, and the others use a new file below new directories.
      const path = mode !== 'create' && round % 2 === 0 ? 'd/e/g' : `d/n${round}/m/f`
      return writeFile(permit(path, 'write'), { data, mode, atomic, mkdir_parents: true, expected_mtime: null })
    })
  })
  await requireUntouched(outside)
  assert.deepEqual(
    (await everythingIn(inside)).filter((path) => path.endsWith('.tmp')),
    [],
  )
})

test('a write changes no file outside while its file becomes a link', onLinux, async (t) => {
  const { outside, permit, d } = await scene(t)
  const ways = [
    ['replace', true],
    ['replace', false],
    ['append', false],
  ] as const
  await during(FLIP, join(d, 'f'), join(outside, 'f'), async () => {
    await untilBoth((round) => {
      const [mode, atomic] = ways[round % ways.length]!
      return writeFile(permit('d/f', 'write'), { data: Buffer.from('inside'), mode, atomic, mkdir_parents: false, expected_mtime: null })
    })
  })
  await requireUntouched(outside)
  assert.deepEqual(await everythingIn(d), ['e', 'e/g', 'f'])
})

test('an edit or a patch changes no file outside while a directory becomes a link', onLinux, async (t) => {
  const { inside, outside, permit, d, link } = await scene(t)
  const permitFor = (path: string) => permit(path, 'write')
  await whileSwapping(d, link, async () => {
    await untilBoth(async (round) => {
      const [from, to] = round % 2 === 0 ? ['inside', 'within'] : ['within', 'inside']
      const other = { old_string: 'i', new_string: 'I', replace_all: true, expected_mtime: null }
      if (round % 3 === 0) return editFile(permit('d/f', 'write'), { ...other, old_string: from, new_string: to })
      if (round % 3 === 1) return editFile(permit('d/f', 'write'), { ...other, old_string: 'from outside', new_string: 'changed' })
      const patch = `*** Begin Patch\n*** Update File: d/e/g\n@@\n-${from}\n+${to}\n*** Add File: d/n${round}/f\n+new\n*** End Patch`
      return applyPatch(parsePatch(patch), permitFor, async () => undefined)
    })
  })
  await requireUntouched(outside)
  assert.deepEqual(
    (await everythingIn(inside)).filter((path) => path.endsWith('.tmp')),
    [],
  )
})
