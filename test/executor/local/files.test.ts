import assert from 'node:assert/strict'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { FileAnswer, FileCall } from '../../../src/executor-api/local.ts'
import { FILE_LOOK_PLACES, MAX_FILE_PLACES } from '../../../src/protocol/limits/rexd.ts'
import { everythingIn, refuses } from '../../support/file-permit.ts'
import { LocalHost, type LocalHostOptions, type Opening } from '../../support/local-engine.ts'

type FileMethod = FileCall['method']

const bytes = (text: string): Buffer => Buffer.from(text)

/** One call of each kind on a path. */
const CALLS: { readonly [M in FileMethod]: (path: string) => object } = {
  'fs.read': (path) => ({ path, offset: 0, length: null }),
  'fs.write': (path) => ({ path, mode: 'replace', mkdir_parents: false, atomic: true, expected_mtime: null, data: bytes('old') }),
  'fs.list': (path) => ({ path, recursive: false, max_entries: null }),
  'fs.glob': (path) => ({ path, pattern: '*', max_matches: null }),
  'fs.stat': (path) => ({ path }),
  'fs.edit': (path) => ({ path, old_string: bytes('old'), new_string: bytes('fresh'), replace_all: false, expected_mtime: null }),
  'fs.patch': (path) => ({ path, patch_text: bytes('*** Begin Patch\n*** Add File: added\n+x\n*** End Patch') }),
}
const methods = Object.keys(CALLS) as FileMethod[]
const CHANGES: readonly FileMethod[] = ['fs.write', 'fs.edit', 'fs.patch']
const ON_DIRECTORIES: readonly FileMethod[] = ['fs.list', 'fs.glob', 'fs.patch']

const hostWith = async (t: TestContext, opening: Opening = {}, options: LocalHostOptions = {}) => {
  const host = await LocalHost.start(t, options)
  await mkdir(join(host.root, 'dir'))
  await writeFile(join(host.root, 'file'), 'old')
  const session = await host.open(opening)
  const call = (method: FileMethod, path: string, more: object = {}): Promise<FileAnswer> =>
    host.executor.file({ method, session, ...CALLS[method](path), ...more } as FileCall)
  return { host, session, call }
}

const pathFor = (method: FileMethod): string => (ON_DIRECTORIES.includes(method) ? 'dir' : 'file')

for (const method of methods)
  test(`${method} is answered, and its line is in the audit log`, async (t) => {
    const { host, session, call } = await hostWith(t)
    const { result } = await call(method, pathFor(method))
    assert.equal(typeof result, 'object')
    const { ts: _ts, chain: _chain, n: _n, prev: _prev, ...line } = (await host.lines()).find(({ event }) => event.startsWith('file_'))!
    const changes = CHANGES.includes(method)
    const content = { 'fs.write': 3, 'fs.edit': 5, 'fs.patch': bytes('*** Begin Patch\n*** Add File: added\n+x\n*** End Patch').length }
    assert.deepEqual(line, {
      event: changes ? 'file_write' : 'file_read',
      door: 'stdio',
      session_id: session,
      client_name: 'a test',
      method,
      path: join(host.root, pathFor(method)),
      ...(method === 'fs.glob' ? { pattern: '*' } : method === 'fs.list' ? { recursive: false } : {}),
      bytes: changes ? content[method as keyof typeof content] : null,
    })
  })

test('a patch has an audit log line for every path that it changes', async (t) => {
  const { host, call } = await hostWith(t)
  const patch = ['*** Add File: new', '+x', `*** Update File: ${host.root}/file`, '*** Move to: dir/moved', '*** Delete File: dir/gone']
  await writeFile(join(host.root, 'dir/gone'), '')
  const patch_text = bytes(['*** Begin Patch', ...patch, '*** End Patch'].join('\n'))
  await call('fs.patch', '.', { patch_text })
  const lines = (await host.lines()).filter(({ event }) => event === 'file_write')
  const paths = ['new', 'file', 'dir/moved', 'dir/gone'].map((path) => ({ path: join(host.root, path), bytes: null }))
  assert.deepEqual(
    (lines as unknown as { path: string; bytes: number | null }[]).map(({ path, bytes }) => ({ path, bytes })),
    [{ path: host.root, bytes: patch_text.length }, ...paths],
  )
})

test('every method refuses paths outside the roots, and the attempt is in the audit log', async (t) => {
  const { host, call } = await hostWith(t)
  await mkdir(join(host.dir, 'app2'))
  await writeFile(join(host.dir, 'app2/file'), 'theirs')
  await symlink(join(host.dir, 'app2'), join(host.root, 'out'))
  const before = await everythingIn(host.dir)
  const paths = ['/etc', '..', '../app2', `${host.root}2`, `${host.root}/../app2`, 'dir/../../app2', 'out', 'out/file', '/proc/1/root/etc']
  for (const method of methods)
    for (const path of paths) {
      if (method === 'fs.stat' && path === 'out') continue
      await refuses(call(method, path), 'forbidden_path', { allowed_roots: [host.root] })
    }
  assert.deepEqual([await everythingIn(host.dir), await readFile(join(host.dir, 'app2/file'), 'utf8')], [before, 'theirs'])
  const refusals = (await host.lines()).filter((line) => line.event === 'refused' && line.code === 'forbidden_path')
  assert.equal(refusals.length, methods.length * paths.length - 1)
})

test('a patch with one file outside the roots is refused as a whole', async (t) => {
  const { host, call } = await hostWith(t)
  const before = await everythingIn(host.root)
  const outside = ['../x', '/etc/x', 'dir/../../x', `${host.root}2/x`]
  for (const name of outside)
    for (const change of [
      `*** Add File: ${name}\n+x`,
      `*** Delete File: ${name}`,
      `*** Update File: file\n*** Move to: ${name}\n@@\n-old\n+new`,
    ]) {
      const patch_text = bytes(`*** Begin Patch\n*** Add File: added\n+x\n${change}\n*** End Patch`)
      await refuses(call('fs.patch', '.', { patch_text }), 'forbidden_path')
    }
  assert.deepEqual(await everythingIn(host.root), before)
  assert.equal(await readFile(join(host.root, 'file'), 'utf8'), 'old')
})

test('a read returns at most the limit of its session, and a session cannot ask for a higher limit', async (t) => {
  const { host, call } = await hostWith(t, { limits: { max_file_read_bytes: 2 } })
  const { result, data } = await call('fs.read', 'file')
  assert.deepEqual([Buffer.from(data).toString(), (result as { truncated: boolean }).truncated], ['ol', true])
  await refuses(host.open({ limits: { max_file_read_bytes: 1_048_577 } }), 'resource_limit')
})

test('text arguments that are not UTF-8 are refused without a change', async (t) => {
  const { host, call } = await hostWith(t)
  const wrong = Buffer.from([0xff, 0xfe])
  await refuses(call('fs.edit', 'file', { old_string: wrong }), 'bad_request')
  await refuses(call('fs.edit', 'file', { new_string: wrong }), 'bad_request')
  await refuses(call('fs.patch', '.', { patch_text: wrong }), 'bad_request')
  assert.equal(await readFile(join(host.root, 'file'), 'utf8'), 'old')
})

test('a failed file call has an audit log line with the reason', async (t) => {
  const { host, call } = await hostWith(t)
  await refuses(call('fs.write', './dir/../file', { mode: 'create' }), 'conflict')
  await refuses(call('fs.edit', 'file', { old_string: bytes('not there') }), 'conflict')
  await refuses(call('fs.read', 'gone'), 'file_not_found')
  const lines = (await host.lines()) as unknown as { event: string; method: string; path?: string; code?: string }[]
  assert.deepEqual(
    lines.filter(({ event }) => event !== 'session').map(({ event, method, path, code }) => [event, method, code ?? path]),
    [
      ['file_write', 'fs.write', join(host.root, 'file')],
      ['refused', 'fs.write', 'conflict'],
      ['file_write', 'fs.edit', join(host.root, 'file')],
      ['refused', 'fs.edit', 'conflict'],
      ['file_read', 'fs.read', join(host.root, 'gone')],
      ['refused', 'fs.read', 'file_not_found'],
    ],
  )
})

for (const method of methods) {
  const isLook = method === 'fs.read' || method === 'fs.stat'
  test(`${method} ${isLook ? 'needs one file slot of its session' : 'waits for as many file slots of its session as a patch needs'}`, async (t) => {
    const { host, session, call } = await hostWith(t)
    const other = await host.open()
    const over = Promise.withResolvers<void>()
    const holding = host.engine.session(session).aboutFiles(MAX_FILE_PLACES - FILE_LOOK_PLACES, () => over.promise)
    const asked = call(method, pathFor(method))
    // The line of this call would come after that of the first call if the first call had not waited.
    await call('fs.read', 'file', { session: other })
    const begun = (await host.lines()).filter((line) => 'path' in line && 'session_id' in line && line.session_id === session)
    assert.equal(begun.length, isLook ? 1 : 0)
    over.resolve()
    await Promise.all([holding, asked])
  })
}
