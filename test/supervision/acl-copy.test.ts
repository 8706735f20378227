import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import type { Logger } from '../../src/base/log.ts'
import { loadAcl, type LoadedAcl } from '../../src/policy/mesh/load-acl.ts'
import { AclCopy } from '../../src/supervision/copies.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent, until } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a copy of the ACL that cannot be written is deleted, with one log message for each attempt', async (t) => {
  const dir = await tempDir(t)
  const said: unknown[] = []
  const log: Logger = { ...silent, error: (_facts: unknown, text?: unknown) => void said.push(text) }
  let loaded = { bytes: Buffer.from('wide') }
  // The second name is valid for a file, but too long for its temporary file.
  for (const [name, isMade] of [
    ['copy', true],
    ['c'.repeat(250), false],
  ] as const) {
    const path = join(dir, name)
    const copy = new AclCopy({ clock: systemClock, log, signing: null }, { path, loaded: () => loaded as unknown as LoadedAcl })
    await writeFile(path, 'wide')
    loaded = { bytes: Buffer.from('narrow') }
    await copy.renew()
    assert.equal(await readFile(path, 'utf8').catch(() => null), isMade ? 'narrow' : null)
    assert.equal(said.length, isMade ? 0 : 1)
    await copy.stop()
    // The last attempt fails as well.
    assert.equal(said.length, isMade ? 0 : 2)
  }
  assert.match(String(said[0]), /could not be copied/)
  assert.deepEqual(await readdir(dir), [])
})

test('the copy has the text that was loaded, and a later load refuses a pipe or an oversized file', async (t) => {
  const dir = await tempDir(t)
  const [file, path] = [join(dir, 'exec-acl.toml'), join(dir, 'copy')]
  const text = '# nothing but a line\n'
  await writeFile(file, text)
  const loaded = await loadAcl({ path: file, explicit: true })
  await rm(file)
  execFileSync('mkfifo', [file])
  await new AclCopy({ clock: systemClock, log: silent, signing: null }, { path, loaded: () => loaded }).start()
  assert.equal(await readFile(path, 'utf8'), text)
  await assert.rejects(loadAcl({ path: file, explicit: true }), /exec-acl\.toml: is not a regular file/)
  await rm(file)
  await writeFile(file, '#'.repeat(17 * 1024 * 1024))
  await assert.rejects(loadAcl({ path: file, explicit: true }), /has more than 16777216 bytes/)
})

test('an ACL version that could not be recorded is tried again every minute and at the stop', async (t) => {
  const path = join(await tempDir(t), 'copy')
  const clock = new ManualClock()
  const loaded = { bytes: Buffer.from('narrow'), signature: { version: 5 } } as unknown as LoadedAcl
  let isFull = true
  const kept: unknown[] = []
  const remember = async (signature: unknown): Promise<void> => {
    if (isFull) throw new Error('no space left')
    kept.push(signature)
  }
  const copy = new AclCopy({ clock, log: silent, signing: { remember } }, { path, loaded: () => loaded })
  await copy.renew()
  await clock.advance(60_000)
  await until(() => clock.pending === 1)
  assert.deepEqual(kept, [])
  isFull = false
  await clock.advance(60_000)
  await until(() => kept.length === 1)
  isFull = true
  await copy.renew()
  isFull = false
  await copy.stop()
  assert.equal(kept.length, 2)
})
