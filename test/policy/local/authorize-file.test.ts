import assert from 'node:assert/strict'
import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { authorizeFile } from '../../../src/policy/local/authorize.ts'
import type { SessionRights } from '../../../src/policy/local/intent.ts'
import { isFilePermit, type FileAccess, type FilePermit } from '../../../src/policy/local/file-permit.ts'
import type { Capability } from '../../../src/protocol/rexd/fields.ts'
import { policyOf, refused, rightsOf } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

const file = (rights: SessionRights, path: string, access: FileAccess = 'read') => authorizeFile({ path, access }, rights)

const permitOf = (rights: SessionRights, path: string, access: FileAccess = 'read'): FilePermit => {
  const verdict = file(rights, path, access)
  assert.ok(verdict.kind === 'permit', verdict.kind === 'refused' ? verdict.message : '')
  assert.ok(isFilePermit(verdict.permit))
  return verdict.permit
}

/** Creates `/…/app`, its sibling `/…/app2`, and the link `/…/link` to the first. */
const scene = async (t: TestContext) => {
  const base = await tempDir(t)
  for (const name of ['app', 'app/sub', 'app2']) await mkdir(join(base, name))
  await symlink('app', join(base, 'link'))
  return { base, app: join(base, 'app') }
}

test('a path below a root gets a permit with its names and the rights of the session', async (t) => {
  const { base, app } = await scene(t)
  const policy = policyOf([app, join(base, 'app2')], { limits: 'max_file_read_bytes = 9' })
  const permit = permitOf(rightsOf(policy), join(app, 'sub/a file'), 'write')
  assert.deepEqual(
    { ...permit },
    { access: 'write', root: policy.roots[0], names: ['sub', 'a file'], roots: policy.roots, max_read_bytes: 9 },
  )
  assert.deepEqual(permitOf(rightsOf(policy), join(base, 'app2', 'x')).root, policy.roots[1])
})

test('a client may name a root by its configured link or by the target of the link', async (t) => {
  const { base, app } = await scene(t)
  const rights = rightsOf(policyOf([join(base, 'link')]))
  for (const path of [join(base, 'link/sub'), join(app, 'sub'), 'sub']) assert.deepEqual(permitOf(rights, path).names, ['sub'], path)
  assert.equal(file(rights, join(base, 'link/../app2')).kind, 'refused')
})

test('the root / contains every path', () => {
  const rights = rightsOf(policyOf(['/']))
  for (const [path, names] of [
    ['/', []],
    ['//', []],
    ['/etc//passwd', ['etc', 'passwd']],
    ['..', []],
    ['x', ['x']],
  ] as const)
    assert.deepEqual(permitOf(rights, path).names, names, path)
})

test('an empty path and a path with a NUL are refused', () => {
  const rights = rightsOf(policyOf(['/usr']))
  for (const path of ['', '\0', '/usr\0', '/usr/x\0/../../etc'])
    refused(file(rights, path), 'bad_request', /^path: empty, or with a NUL character$/, {})
})

test('reading and writing are separate capabilities, which are checked before the path', () => {
  const only = (...capabilities: Capability[]): SessionRights => rightsOf(policyOf(['/usr']), { capabilities })
  const reads = only('fs.read')
  const writes = only('fs.write')
  permitOf(reads, '/usr')
  permitOf(writes, '/usr', 'write')
  const granted = /^this session may not use fs\.write; security\.allow_write grants it$/
  for (const path of ['/usr', '/etc', '']) {
    refused(file(reads, path, 'write'), 'unsupported_capability', granted, { capability: 'fs.write' })
    refused(file(writes, path, 'read'), 'unsupported_capability', /^this session may not use fs\.read$/, { capability: 'fs.read' })
  }
})

test('a session that asks for no roots gets no roots and can read no path', () => {
  const rights = rightsOf(policyOf(['/usr']), { roots: [] })
  assert.deepEqual(rights.roots, [])
  refused(file(rights, '/usr'), 'forbidden_path', /outside/, { path: '/usr', allowed_roots: [] })
  refused(file(rights, 'x'), 'forbidden_path', /outside/, { path: '/x', allowed_roots: [] })
})
