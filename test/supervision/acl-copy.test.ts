import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { Logger } from '../../src/base/log.ts'
import { loadAcl, type LoadedAcl } from '../../src/policy/mesh/load-acl.ts'
import { AclCopy } from '../../src/supervision/copies.ts'
import { silent } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a copy of the ACL that cannot be made anew is gone, and the log says that and no more', async (t) => {
  const dir = await tempDir(t)
  const said: unknown[] = []
  const log: Logger = { ...silent, error: (_facts: unknown, text?: unknown) => void said.push(text) }
  let loaded = { bytes: Buffer.from('wide') }
  // A name that a file may have, and whose temporary file may not.
  for (const [name, isMade] of [
    ['copy', true],
    ['c'.repeat(250), false],
  ] as const) {
    const path = join(dir, name)
    const copy = new AclCopy({ log, signing: null }, { path, loaded: () => loaded as unknown as LoadedAcl })
    await writeFile(path, 'wide')
    loaded = { bytes: Buffer.from('narrow') }
    await copy.renew()
    assert.equal(await readFile(path, 'utf8').catch(() => null), isMade ? 'narrow' : null)
    assert.equal(said.length, isMade ? 0 : 1)
    await copy.stop()
  }
  assert.match(String(said[0]), /could not be copied/)
  assert.deepEqual(await readdir(dir), [])
})

test('what the copy has is what was loaded: a pipe in the place of the file holds up neither it nor a later reload', async (t) => {
  const dir = await tempDir(t)
  const [file, path] = [join(dir, 'exec-acl.toml'), join(dir, 'copy')]
  const text = '# nothing but a line\n'
  await writeFile(file, text)
  const loaded = await loadAcl({ path: file, explicit: true })
  await rm(file)
  execFileSync('mkfifo', [file])
  await new AclCopy({ log: silent, signing: null }, { path, loaded: () => loaded }).start()
  assert.equal(await readFile(path, 'utf8'), text)
  await assert.rejects(loadAcl({ path: file, explicit: true }), /exec-acl\.toml: is not a regular file/)
  await rm(file)
  await writeFile(file, '#'.repeat(17 * 1024 * 1024))
  await assert.rejects(loadAcl({ path: file, explicit: true }), /has more than 16777216 bytes/)
})
