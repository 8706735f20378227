import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { authorizeFile } from '../../../src/policy/local/authorize.ts'
import { isFilePermit, type FilePermit, type Root } from '../../../src/policy/local/file-permit.ts'
import { isPermit } from '../../../src/policy/permit.ts'
import { askRun, permitted, policyOf, rightsOf } from '../../support/local-policy.ts'

const permitFor = (path: string): FilePermit => {
  const verdict = authorizeFile({ path, access: 'write' }, rightsOf(policyOf(['/usr', '/etc'])))
  assert.ok(verdict.kind === 'permit')
  return verdict.permit
}

test('a permit of authorize is a permit, for files and for files alone', () => {
  const permit = permitFor('/usr/share')
  assert.ok(isFilePermit(permit))
  assert.equal(isPermit(permit), false)
  assert.equal(isFilePermit(permitted(askRun(policyOf(['/usr'])))), false)
})

test('nothing that only looks like a permit is one', () => {
  const permit = permitFor('/usr/share')
  const forgeries: unknown[] = [
    { ...permit },
    Object.freeze({ ...permit }),
    structuredClone(permit),
    Object.create(permit),
    new Proxy(permit, {}),
    Object.assign(Object.create(Object.getPrototypeOf(permit) as object) as object, permit),
    permit.root,
    permit.names,
    JSON.stringify({ access: 'write', names: [] }),
    () => permit,
    null,
    undefined,
    true,
  ]
  for (const forgery of forgeries) assert.equal(isFilePermit(forgery), false)
})

test('a permit cannot be changed, at any depth', () => {
  const permit = permitFor('/usr/share/x')
  const changes: (() => unknown)[] = [
    () => Object.assign(permit, { access: 'read' }),
    () => Object.assign(permit.root, { real: '/' }),
    () => Object.assign(permit.root, { ino: 1n }),
    () => (permit.names as string[]).push('..'),
    () => Object.assign(permit.names, { 0: '..' }),
    () => (permit.roots as Root[]).push(permit.root),
    () => Object.assign(permit.roots[1] as Root, { real: '/' }),
    () => Object.assign(permit, { max_read_bytes: 1e9 }),
    () => Object.defineProperty(permit, 'names', { value: [] }),
    () => Object.setPrototypeOf(permit, { names: [] }) as unknown,
    () => Reflect.deleteProperty(permit, 'root') || assert.fail(new TypeError('not deleted')),
  ]
  for (const change of changes) assert.throws(change, TypeError)
  assert.deepEqual([permit.names, permit.root.real, permit.roots.length, permit.access], [['share', 'x'], '/usr', 2, 'write'])
})

test('a permit keeps what was judged when the rights that it came from change afterwards', () => {
  const root = { ...policyOf(['/usr']).roots[0]! }
  const roots = [root]
  const verdict = authorizeFile({ path: 'x', access: 'read' }, { ...rightsOf(policyOf(['/usr'])), roots })
  assert.ok(verdict.kind === 'permit')
  root.real = '/'
  roots.push({ ...root, path: '/etc' })
  assert.deepEqual([verdict.permit.root.real, verdict.permit.roots[0]?.real, verdict.permit.roots.length], ['/usr', '/usr', 1])
})

const SRC = join(import.meta.dirname, '../../../src')
const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'))
const filesWith = (text: string): string[] => files.filter((path) => readFileSync(join(SRC, path), 'utf8').includes(text)).toSorted()

test('only the authorize files make permits, by whatever name they would import it', () => {
  assert.ok(files.length > 200, `saw only ${files.length} files`)
  assert.deepEqual(filesWith('sealFilePermit'), ['policy/local/authorize.ts', 'policy/local/file-permit.ts'])
  assert.deepEqual(filesWith('sealPermit'), ['policy/local/authorize.ts', 'policy/mesh/authorize.ts', 'policy/permit.ts'])
  const whole = files.filter((path) =>
    /(import|export) \*[^'"]*['"][^'"]*permit\.ts['"]|import\(['"][^'"]*permit\.ts/.test(readFileSync(join(SRC, path), 'utf8')),
  )
  assert.deepEqual(whole, [])
})

test('what needs a permit says so in the type, and nobody else claims to have one', () => {
  const casts = files.filter((path) => /\bas (unknown as )?(File)?Permit\b/.test(readFileSync(join(SRC, path), 'utf8'))).toSorted()
  assert.deepEqual(casts, ['policy/local/file-permit.ts', 'policy/permit.ts'])
})
