import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { Logger } from '../../src/base/log.ts'
import type { LoadedAcl } from '../../src/policy/mesh/load-acl.ts'
import { AclCopy } from '../../src/supervision/acl-copy.ts'
import { silent } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a copy of the ACL that cannot be made anew is gone, and the log says that and no more', async (t) => {
  const dir = await tempDir(t)
  const file = join(dir, 'exec-acl.toml')
  const said: unknown[] = []
  const log: Logger = { ...silent, error: (_facts: unknown, text?: unknown) => void said.push(text) }
  const write = async (text: string): Promise<LoadedAcl> => {
    await writeFile(file, text)
    return { loaded_from: file, sha256: createHash('sha256').update(text).digest('hex') } as LoadedAcl
  }
  let loaded = await write('wide')
  // A name that a file may have, and whose temporary file may not.
  for (const [name, isMade] of [
    ['copy', true],
    ['c'.repeat(250), false],
  ] as const) {
    const path = join(dir, name)
    const copy = new AclCopy({ log }, { path, loaded: () => loaded })
    await writeFile(path, 'wide')
    loaded = await write('narrow')
    await copy.renew()
    assert.equal(await readFile(path, 'utf8').catch(() => null), isMade ? 'narrow' : null)
    assert.equal(said.length, isMade ? 0 : 1)
    await copy.stop()
  }
  assert.match(String(said[0]), /could not be copied/)
  assert.deepEqual(await readdir(dir), ['exec-acl.toml'])
})
