import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { authorize } from '../../src/policy/mesh/authorize.ts'
import { scrubbedEnvironment } from '../../src/policy/environment.ts'
import { isPermit, type Permit } from '../../src/policy/permit.ts'
import { Slots } from '../../src/policy/slots.ts'
import { aclAllowing, alice, asking } from '../support/acl-text.ts'

const permitFor = (argv: string[]): Permit => {
  const acl = aclAllowing(argv)
  const verdict = authorize(asking(argv), alice, { acl, slots: new Slots(acl.caps), env: scrubbedEnvironment() })
  assert.ok(verdict.kind === 'permit')
  return verdict.permit
}

test('a permit of authorize is a permit', () => {
  assert.ok(isPermit(permitFor(['true'])))
})

test('nothing that only looks like a permit is one', () => {
  const permit = permitFor(['true'])
  const forgeries: unknown[] = [
    { ...permit },
    Object.freeze({ ...permit }),
    structuredClone(permit),
    Object.create(permit),
    new Proxy(permit, {}),
    Object.assign(Object.create(Object.getPrototypeOf(permit) as object) as object, permit),
    JSON.stringify({ argv: ['true'] }),
    null,
    undefined,
    true,
    permit.argv,
    permit.caps,
    () => permit,
  ]
  for (const forgery of forgeries) assert.equal(isPermit(forgery), false)
})

test('a permit cannot be changed, at any depth', () => {
  const permit = permitFor(['echo', 'a'])
  const changes: (() => unknown)[] = [
    () => Object.assign(permit, { cwd: '/tmp' }),
    () => Object.assign(permit.argv, { 1: 'b' }),
    () => (permit.argv as string[]).push('b'),
    () => Object.assign(permit.executable, { path: '/bin/sh' }),
    () => Object.assign(permit.env, { LD_PRELOAD: '/tmp/x.so' }),
    () => Object.assign(permit.caps, { timeout_ms: 1e9 }),
    () => Object.defineProperty(permit, 'argv', { value: ['sh'] }),
    () => Reflect.deleteProperty(permit.caps, 'timeout_ms') || assert.fail(new TypeError('not deleted')),
    () => Object.setPrototypeOf(permit, { argv: ['sh'] }) as unknown,
  ]
  for (const change of changes) assert.throws(change, TypeError)
  assert.deepEqual(permit.argv, ['echo', 'a'])
})

test('a permit keeps the argv that was judged when the request changes afterwards', () => {
  const acl = aclAllowing(['echo', 'a'])
  const argv = ['echo', 'a']
  const env = { ...scrubbedEnvironment() }
  const verdict = authorize(asking(argv), alice, { acl, slots: new Slots(acl.caps), env })
  assert.ok(verdict.kind === 'permit')
  argv[1] = 'b'
  env['PATH'] = '/tmp'
  assert.deepEqual(verdict.permit.argv, ['echo', 'a'])
  assert.notEqual(verdict.permit.env['PATH'], '/tmp')
})

test('only authorize makes permits', async () => {
  const root = new URL('../../src/', import.meta.url).pathname
  const files = (await readdir(root, { recursive: true })).filter((name) => name.endsWith('.ts'))
  assert.ok(files.length > 20, `saw only ${files.length} files`)
  const users: string[] = []
  for (const name of files) if ((await readFile(join(root, name), 'utf8')).includes('sealPermit')) users.push(name)
  assert.deepEqual(users.toSorted(), ['policy/local/authorize.ts', 'policy/mesh/authorize.ts', 'policy/permit.ts'])
})
