import assert from 'node:assert/strict'
import { readFile as plain, stat, writeFile as put } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { NEVER } from '../../src/base/abort.ts'
import { exclusively } from '../../src/fs/exclusive.ts'
import { parsePatch } from '../../src/fs/patch-format.ts'
import { mtimeText } from '../../src/base/mtime.ts'
import { readFile } from '../../src/fs/read.ts'
import { writeFile } from '../../src/fs/write-file.ts'
import * as patch from '../../src/fs/apply-patch.ts'
import * as edit from '../../src/fs/edit-file.ts'
import { fileScene } from '../support/file-permit.ts'
import { alone } from '../support/files.ts'

test('an operation that is aborted while it waits for a file ends at once, changes nothing, and blocks no other', async (t) => {
  const { inside, permit } = await fileScene(t)
  const file = join(inside, 'f')
  await put(file, 'old')
  const [entered, leave] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const work = async (): Promise<void> => {
    entered.resolve()
    await leave.promise
    await put(file, 'longer')
  }
  const first = exclusively([await stat(file, { bigint: true })], work, NEVER)
  await entered.promise
  const closing = new AbortController()
  const options = { data: Buffer.from('new'), mode: 'replace', atomic: false, mkdir_parents: false, expected_mtime: null } as const
  const changes = parsePatch('*** Begin Patch\n*** Update File: f\n-old\n+new\n*** End Patch')
  const waiting = [
    readFile(permit('f'), {}, closing.signal),
    writeFile(permit('f', 'write'), options, closing.signal),
    edit.editFile(
      permit('f', 'write'),
      { old_string: 'old', new_string: 'new', replace_all: false, expected_mtime: null },
      alone(closing.signal),
    ),
    patch.applyPatch(
      changes,
      (path) => permit(path, 'write'),
      async () => undefined,
      alone(closing.signal),
    ),
  ]
  const ended = Promise.allSettled(waiting)
  const last = readFile(permit('f'))
  // All operations need time to reach the file.
  await new Promise((resolve) => setTimeout(resolve, 200))
  closing.abort(new Error('closed'))
  for (const result of await ended) assert.match(String(result.status === 'rejected' && result.reason), /closed/)
  assert.equal(await plain(file, 'utf8'), 'old')
  leave.resolve()
  await first
  // The waiting read returns the new content with its size and time.
  const { data, size, mtime } = await last
  assert.deepEqual([Buffer.from(data).toString(), size], ['longer', 6])
  assert.equal(mtime, mtimeText((await stat(file, { bigint: true })).mtimeNs))
})
