import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { AppendedFile } from '../../src/journal/file.ts'
import { fileHandles } from '../support/file-handles.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a failed write that could not be undone at once is removed before the next write', async (t) => {
  const directory = await tempDir(t)
  const handles = await fileHandles()
  const file = await AppendedFile.create(join(directory, 'lines'))
  t.after(() => file.close())
  const fails = async (): Promise<never> => Promise.reject(new Error('the disk fails'))
  await file.append(Buffer.from('one\n'))
  const faults = [t.mock.method(handles, 'datasync', fails), t.mock.method(handles, 'truncate', fails)]
  for (const line of ['two\n', 'two again\n']) await assert.rejects(file.append(Buffer.from(line)), /the disk fails/)
  for (const fault of faults) fault.mock.restore()
  assert.equal(await readFile(file.path, 'utf8'), 'one\ntwo\n')
  await file.append(Buffer.from('three\n'))
  assert.equal(await readFile(file.path, 'utf8'), 'one\nthree\n')
  assert.equal(file.size, 10)
})
