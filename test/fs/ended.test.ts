import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { TimeSlice } from '../../src/base/time-slices.ts'
import { applyPatch } from '../../src/fs/apply-patch.ts'
import { editFile } from '../../src/fs/edit-file.ts'
import { globFiles } from '../../src/fs/glob.ts'
import { listDirectory } from '../../src/fs/read.ts'
import { parsePatch } from '../../src/fs/patch-format.ts'
import { everythingIn, fileScene, type Scene } from '../support/file-permit.ts'
import { alone } from '../support/files.ts'

const WORKS: Readonly<Record<string, (permit: Scene['permit'], share: TimeSlice) => Promise<unknown>>> = {
  edit: (permit, share) =>
    editFile(permit('f', 'write'), { old_string: 'a', new_string: 'b', replace_all: true, expected_mtime: null }, share),
  patch: (permit, share) =>
    applyPatch(
      parsePatch('*** Begin Patch\n*** Update File: f\n-a\n+b\n*** Add File: g\n+g\n*** End Patch'),
      (path) => permit(path, 'write'),
      async () => undefined,
      share,
    ),
  glob: (permit, share) => globFiles(permit(), { pattern: '**' }, share),
  list: (permit, share) => listDirectory(permit(), { recursive: true }, share),
}

for (const [name, work] of Object.entries(WORKS)) {
  test(`${name}: an aborted operation ends with the reason of the abort and changes nothing`, async (t) => {
    const { inside, permit } = await fileScene(t)
    await mkdir(join(inside, 'd'))
    await writeFile(join(inside, 'f'), 'a\n')
    const reason = new Error('gone')
    await assert.rejects(work(permit, alone(AbortSignal.abort(reason))), (error) => error === reason)
    const ending = new AbortController()
    const begun = work(permit, alone(ending.signal))
    ending.abort(reason)
    await assert.rejects(begun, (error) => error === reason)
    assert.deepEqual(await everythingIn(inside), ['d', 'f'])
    assert.equal(await readFile(join(inside, 'f'), 'utf8'), 'a\n')
  })
}
