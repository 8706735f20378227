import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { authorizeFile } from '../../src/policy/local/authorize.ts'
import { isFilePermit, type FilePermit, type Root } from '../../src/policy/local/file-permit.ts'
import { authorize } from '../../src/policy/mesh/authorize.ts'
import { scrubbedEnvironment } from '../../src/policy/environment.ts'
import { isPermit, type Permit } from '../../src/policy/permit.ts'
import { Slots } from '../../src/policy/slots.ts'
import { aclAllowing, alice, asking } from '../support/acl-text.ts'
import { policyOf, rightsOf } from '../support/local-policy.ts'

const permitFor = (argv: string[]): Permit => {
  const acl = aclAllowing(argv)
  const verdict = authorize(asking(argv), alice, { acl, slots: new Slots(acl.caps), env: scrubbedEnvironment() })
  assert.ok(verdict.kind === 'permit')
  return verdict.permit
}

const filePermitFor = (path: string): FilePermit => {
  const verdict = authorizeFile({ path, access: 'write' }, rightsOf(policyOf(['/usr', '/etc'])))
  assert.ok(verdict.kind === 'permit')
  return verdict.permit
}

test('only a permit from an authorize function counts, as its own kind, and copies and proxies do not', () => {
  const kinds = [
    { permit: permitFor(['true']), is: isPermit, isOther: isFilePermit },
    { permit: filePermitFor('/usr/share'), is: isFilePermit, isOther: isPermit },
  ]
  for (const { permit, is, isOther } of kinds) {
    assert.deepEqual([is(permit), isOther(permit)], [true, false])
    const forgeries: unknown[] = [
      { ...permit },
      Object.freeze({ ...permit }),
      structuredClone(permit),
      Object.create(permit),
      new Proxy(permit, {}),
      Object.assign(Object.create(Object.getPrototypeOf(permit) as object) as object, permit),
      ...Object.values(permit),
      JSON.stringify({ argv: ['true'], access: 'write', names: [] }),
      () => permit,
      null,
      undefined,
      true,
    ]
    for (const forgery of forgeries) assert.equal(is(forgery), false)
  }
})

test('a permit cannot be changed at any depth', () => {
  const permit = permitFor(['echo', 'a'])
  const ofFile = filePermitFor('/usr/share/x')
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
    () => Object.assign(ofFile, { access: 'read' }),
    () => Object.assign(ofFile.root, { real: '/' }),
    () => Object.assign(ofFile.root, { ino: 1n }),
    () => (ofFile.names as string[]).push('..'),
    () => Object.assign(ofFile.names, { 0: '..' }),
    () => (ofFile.roots as Root[]).push(ofFile.root),
    () => Object.assign(ofFile.roots[1] as Root, { real: '/' }),
    () => Object.assign(ofFile, { max_read_bytes: 1e9 }),
    () => Object.defineProperty(ofFile, 'names', { value: [] }),
    () => Object.setPrototypeOf(ofFile, { names: [] }) as unknown,
    () => Reflect.deleteProperty(ofFile, 'root') || assert.fail(new TypeError('not deleted')),
  ]
  for (const change of changes) assert.throws(change, TypeError)
  assert.deepEqual(permit.argv, ['echo', 'a'])
  assert.deepEqual([ofFile.names, ofFile.root.real, ofFile.roots.length, ofFile.access], [['share', 'x'], '/usr', 2, 'write'])
})

test('a permit does not change with the request or the rights', () => {
  const acl = aclAllowing(['echo', 'a'])
  const argv = ['echo', 'a']
  const env = { ...scrubbedEnvironment() }
  const verdict = authorize(asking(argv), alice, { acl, slots: new Slots(acl.caps), env })
  assert.ok(verdict.kind === 'permit')
  argv[1] = 'b'
  env['PATH'] = '/tmp'
  assert.deepEqual(verdict.permit.argv, ['echo', 'a'])
  assert.notEqual(verdict.permit.env['PATH'], '/tmp')

  const root = { ...policyOf(['/usr']).roots[0]! }
  const roots = [root]
  const ofFile = authorizeFile({ path: 'x', access: 'read' }, { ...rightsOf(policyOf(['/usr'])), roots })
  assert.ok(ofFile.kind === 'permit')
  root.real = '/'
  roots.push({ ...root, path: '/etc' })
  assert.deepEqual([ofFile.permit.root.real, ofFile.permit.roots[0]?.real, ofFile.permit.roots.length], ['/usr', '/usr', 1])
})

const SRC = join(import.meta.dirname, '../../src')
const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'))
const filesWith = (text: string | RegExp): string[] => files.filter((path) => readFileSync(join(SRC, path), 'utf8').match(text)).toSorted()

test('only the authorize files can create permits, and no other file casts a value to a permit', () => {
  assert.ok(files.length > 200, `saw only ${files.length} files`)
  assert.deepEqual(filesWith('sealFilePermit'), [
    'policy/local/authorize.ts',
    'policy/local/file-permit.ts',
    'policy/mesh/authorize-file.ts',
  ])
  assert.deepEqual(filesWith('sealPermit'), ['policy/local/authorize.ts', 'policy/mesh/authorize.ts', 'policy/permit.ts'])
  assert.deepEqual(filesWith(/(import|export) \*[^'"]*['"][^'"]*permit\.ts['"]|import\(['"][^'"]*permit\.ts/), [])
  assert.deepEqual(filesWith(/\bas (unknown as )?(File)?Permit\b/), ['policy/local/file-permit.ts', 'policy/permit.ts'])
})
