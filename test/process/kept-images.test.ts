import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { dropUnused, NEW } from '../../src/process/sandbox/images.ts'
import { IMAGE_KEPT_MS, IMAGE_LEFT_MS, IMAGE_SPARED_MS, MAX_IMAGES_KEPT } from '../../src/protocol/limits/daemon.ts'
import { tempDir } from '../support/temp-dir.ts'

const ENGINE = '/bin/false'
const nameOf = (n: number): string => `podman-${String(n).repeat(64)}`
const cannot = spawnSync('bwrap', ['--bind', '/', '/', 'true']).status === 0 ? false : 'needs bubblewrap, and namespaces'

/** Creates this many images. The first one has the oldest use. */
const imagesIn = async (directory: string, count: number): Promise<void> => {
  for (let n = 0; n < count; n++) {
    await mkdir(join(directory, nameOf(n), 'usr'), { recursive: true })
    // The age of an image is its change time, which cannot be set.
    await sleep(20)
  }
}

test('the least recently used images above the limit and old ones are removed, and recent ones stay', async (t) => {
  const directory = await tempDir(t)
  await imagesIn(directory, MAX_IMAGES_KEPT + 2)
  await mkdir(join(directory, `${NEW}left`))
  await dropUnused(ENGINE, directory)
  assert.equal((await readdir(directory)).length, MAX_IMAGES_KEPT + 3)
  await dropUnused(ENGINE, directory, Date.now() + 2 * IMAGE_SPARED_MS)
  const kept = [`${NEW}left`, nameOf(3), nameOf(4), nameOf(5)]
  assert.deepEqual((await readdir(directory)).toSorted(), kept.toSorted(), 'and room for the one that comes')
  await dropUnused(ENGINE, directory, Date.now() + IMAGE_LEFT_MS + 1_000)
  assert.equal((await readdir(directory)).includes(`${NEW}left`), false)
  await dropUnused(ENGINE, directory, Date.now() + IMAGE_KEPT_MS + 1_000)
  assert.deepEqual(await readdir(directory), [])
})

test('an image that a command uses stays, at any age and number', { skip: cannot }, async (t) => {
  const directory = await tempDir(t)
  await imagesIn(directory, MAX_IMAGES_KEPT + 1)
  const used = join(directory, nameOf(0))
  const words = ['--bind', '/', '/', '--ro-bind', join(used, 'usr'), '/mnt', '--die-with-parent', 'sh', '-c', 'echo in; exec sleep 60']
  const child = spawn('bwrap', words, { stdio: ['ignore', 'pipe', 'ignore'] })
  const gone = once(child, 'exit')
  t.after(async () => {
    child.kill('SIGKILL')
    await gone
  })
  await once(child.stdout, 'data')
  await dropUnused(ENGINE, directory, Date.now() + IMAGE_KEPT_MS + 1_000)
  assert.deepEqual(await readdir(directory), [nameOf(0)])
  child.kill('SIGKILL')
  await gone
  // Processes that it started end with it, a moment later.
  for (let n = 0; n < 500 && (await readdir(directory)).length > 0; n++) {
    await dropUnused(ENGINE, directory, Date.now() + IMAGE_KEPT_MS + 1_000)
    await sleep(20)
  }
  assert.deepEqual(await readdir(directory), [])
})
