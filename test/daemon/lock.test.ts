import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { DataDirLock, lockHolder } from '../../src/daemon/lock.ts'
import { tempDir } from '../support/temp-dir.ts'

test('the second daemon on a data directory is told who holds it', async (t) => {
  const path = join(await tempDir(t), 'lock')
  const first = new DataDirLock(path)
  await first.start()
  assert.equal(await lockHolder(path), process.pid)
  await assert.rejects(
    new DataDirLock(path).start(),
    (error) => isAppError(error, 'conflict') && error.message.includes(`pid ${process.pid}`),
  )
  await first.stop()
  assert.equal(await lockHolder(path), null)
  const second = new DataDirLock(path)
  await second.start()
  await second.stop()
})

test('a lock whose owner died is taken over', async (t) => {
  const dir = await tempDir(t)
  const path = join(dir, 'lock')
  const { pid } = spawnSync(process.execPath, ['-e', '0'])
  await writeFile(path, `${pid} 00112233 whenever\n`)
  assert.equal(await lockHolder(path), null)
  const lock = new DataDirLock(path)
  await lock.start()
  assert.equal(await lockHolder(path), process.pid)
  await lock.stop()
  assert.deepEqual(await readdir(dir), [])
})

test('a lock of a living pid that began at another time is of a process that died', { skip: process.platform !== 'linux' }, async (t) => {
  const path = join(await tempDir(t), 'lock')
  await writeFile(path, `${process.pid} 00112233 another-boot 1\n`)
  const lock = new DataDirLock(path)
  await lock.start()
  await lock.stop()
})

test('a lock that holds no pid is taken over', async (t) => {
  const path = join(await tempDir(t), 'lock')
  await writeFile(path, '')
  await writeFile(`${path}.0011223344556677`, '')
  const lock = new DataDirLock(path)
  await lock.start()
  await lock.stop()
})

test('of many that find a dead lock at once exactly one goes on', async (t) => {
  const dir = await tempDir(t)
  const path = join(dir, 'lock')
  const { pid } = spawnSync(process.execPath, ['-e', '0'])
  for (let round = 0; round < 10; round++) {
    await writeFile(path, `${pid} 0011223344556677 whenever\n`)
    await writeFile(`${path}.0011223344556677`, `${pid} 0011223344556677 whenever\n`)
    const locks = Array.from({ length: 4 }, () => new DataDirLock(path))
    const results = await Promise.allSettled(locks.map(async (lock) => lock.start()))
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1)
    for (const lock of locks) await lock.stop()
  }
  assert.deepEqual(await readdir(dir), [])
})

test('a stop does not take away the lock of another', async (t) => {
  const path = join(await tempDir(t), 'lock')
  const lock = new DataDirLock(path)
  await lock.start()
  await writeFile(path, '1 another then\n')
  await lock.stop()
  assert.equal(await readFile(path, 'utf8'), '1 another then\n')
})
