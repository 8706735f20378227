import assert from 'node:assert/strict'
import { readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { overStdio } from './transports.ts'

// File requests in the formats of the reference client and its plugins: absolute paths, times in whole milliseconds, an empty old text for
// a new file, and patches as models write them.

test('file requests in the format of the reference client get answers that it can read', async (t) => {
  const peer = await overStdio.open(t)
  const { id, dir } = await peer.session()
  const whole = (name: string): string => join(dir, name)
  const ask = async (method: string, params: object): Promise<Record<string, unknown>> => {
    const { result, error } = await peer.ask(method, { session_id: id, ...params })
    assert.equal(error, undefined, `${method}: ${JSON.stringify(error)}`)
    return result as Record<string, unknown>
  }
  const target = whole('src/edit-target.txt')
  const written = await ask('fs.write', { path: target, content: 'hello\nworld\n', encoding: 'utf8', mode: 'replace', mkdir_parents: true })
  assert.deepEqual([written['path'], written['bytes_written'], written['created']], [target, 12, true])
  assert.ok(Number.isInteger(written['mtime_ms']))

  const edit = { path: target, old_string: 'world', new_string: 'earth', replace_all: false, expected_mtime: written['mtime_ms'] }
  const edited = await ask('fs.edit', edit)
  assert.deepEqual([edited['replacements'], edited['bytes_written'], edited['created']], [1, 12, false])
  const { error } = await peer.ask('fs.edit', { session_id: id, ...edit, old_string: 'earth', new_string: 'world' })
  assert.equal(error?.code, -32006)
  const read = await ask('fs.read', { path: target })
  assert.deepEqual([read['content'], read['encoding'], read['size'], read['mtime_ms']], ['hello\nearth\n', 'utf8', 12, edited['mtime_ms']])
  const atomic = {
    path: target,
    content: 'hello\nearth\n',
    encoding: 'utf8',
    mode: 'replace',
    atomic: true,
    expected_mtime: read['mtime_ms'],
  }
  assert.equal((await ask('fs.write', atomic))['created'], false)

  const made = await ask('fs.edit', { path: whole('new/file.txt'), old_string: '', new_string: 'made\n' })
  assert.deepEqual([made['replacements'], made['created']], [1, true])
  assert.equal((await ask('fs.edit', { path: whole('new/file.txt'), old_string: '', new_string: 'again\n' }))['created'], false)

  await writeFile(whole('delete-me.txt'), 'remove me\n')
  await writeFile(whole('src/indented.py'), 'def f():\n    if x:\n        return 1\n')
  const patch_text = [
    'I apply this:',
    '```',
    '*** Begin Patch',
    `*** Update File: ${target}`,
    '@@',
    '-earth',
    '+patched',
    `*** Update File: ${whole('src/indented.py')}`,
    '@@ def f():',
    ' if x:',
    '-    return 1',
    '+        return 2',
    `*** Add File: ${whole('added-from-patch.txt')}`,
    '+created from patch',
    `*** Delete File: ${whole('delete-me.txt')}`,
    '*** End Patch',
    '```',
  ].join('\n')
  await ask('fs.patch', { patch_text })
  assert.equal(await readFile(target, 'utf8'), 'hello\npatched\n')
  assert.equal(await readFile(whole('src/indented.py'), 'utf8'), 'def f():\n    if x:\n        return 2\n')
  assert.deepEqual((await readdir(dir)).toSorted(), ['added-from-patch.txt', 'new', 'src'])

  assert.deepEqual((await ask('fs.glob', { pattern: whole('src/*.txt'), max_matches: 100 }))['matches'], [target])
  await writeFile(whole('latin1.txt'), Buffer.from('grün\n', 'latin1'))
  const latin1 = await ask('fs.read', { path: whole('latin1.txt'), encoding: 'utf8' })
  assert.deepEqual([latin1['content'], latin1['lossy'], latin1['truncated']], ['gr\ufffdn\n', true, false])
  const list = await ask('fs.list', { path: dir, recursive: false, max_entries: 100 })
  const entries = list['entries'] as Record<string, unknown>[]
  assert.ok(entries.every(({ name, type, mtime_ms }) => typeof name === 'string' && typeof type === 'string' && Number.isInteger(mtime_ms)))
  const status = await ask('fs.stat', { path: target })
  assert.deepEqual([status['exists'], status['type'], status['size']], [true, 'file', 14])
  assert.match(String(status['mode']), /^0[0-7]{3}$/)
  await peer.close()
})
