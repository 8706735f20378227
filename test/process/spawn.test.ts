import assert from 'node:assert/strict'
import { existsSync, readdirSync } from 'node:fs'
import { chmod, copyFile, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { Permit } from '../../src/policy/permit.ts'
import { DescendantTracker } from '../../src/process/descendant-tracker.ts'
import { spawnPermitted } from '../../src/process/spawn.ts'
import { permitFor } from '../support/permit.ts'
import { groupCells, startGuardian, temporaryDirectory } from '../support/processes.ts'

const failureOf = async (t: TestContext, permit: Permit): Promise<string> => {
  const result = await spawnPermitted(permit, { cleanup: startGuardian(t), trees: await groupCells() }, { stdin: false })
  assert.equal(result.kind, 'spawn_failed')
  return result.detail
}

const program = async (t: TestContext, text = '#!/bin/sh\nexit 0\n'): Promise<string> => {
  const path = join(await temporaryDirectory(t), 'program')
  await writeFile(path, text)
  await chmod(path, 0o755)
  return path
}

test('only the exact object that policy created is run, not a copy of it', async (t) => {
  const permit = permitFor(['true'])
  const cleanup = startGuardian(t)
  for (const forged of [{ ...permit }, structuredClone(permit), Object.create(permit), null])
    await assert.rejects(spawnPermitted(forged as Permit, { cleanup, trees: await groupCells() }, { stdin: false }), {
      code: 'internal',
      message: /permit/,
    })
})

test('a program that was replaced after it was permitted is not run', async (t) => {
  const path = await program(t)
  const permit = permitFor([path])
  await copyFile('/bin/true', `${path}.new`)
  await rename(`${path}.new`, path)
  assert.match(await failureOf(t, permit), /was replaced after it was permitted/)
})

test('a program that was removed after it was permitted is a failure to start', async (t) => {
  const path = await program(t)
  const permit = permitFor([path])
  await rm(path)
  assert.match(await failureOf(t, permit), /ENOENT/)
})

test('a program that lost its execute permission is a failure to start', async (t) => {
  const path = await program(t)
  const permit = permitFor([path])
  await chmod(path, 0o644)
  assert.match(await failureOf(t, permit), /EACCES/)
})

test('a script without an interpreter is a failure to start', async (t) => {
  const permit = permitFor([await program(t, '#!/nowhere/interpreter\n')])
  assert.match(await failureOf(t, permit), /ENOENT/)
})

test('a missing working directory is reported as such, not as a missing program', async (t) => {
  const cwd = join(await temporaryDirectory(t), 'gone')
  assert.match(await failureOf(t, permitFor(['true'], { cwd })), /working directory.*gone/)
  const file = await program(t)
  assert.match(await failureOf(t, permitFor(['true'], { cwd: file })), /not a directory/)
})

test('an argument that is too long for the system is a failure to start', async (t) => {
  // Linux accepts 128 KiB per argument.
  assert.match(await failureOf(t, permitFor(['true', 'x'.repeat(4 * 1024 * 1024)])), /E2BIG/)
})

test('the PIDs of init, of this process and of all processes are refused as process trees', () => {
  for (const pid of [1, 0, -1, -5, 1.5, Number.NaN]) assert.throws(() => new DescendantTracker(pid), RangeError)
})

test('a signal to a process tree without processes has no effect and gives no error', () => {
  // Above any PID that Linux uses (2^22).
  const tree = new DescendantTracker(2 ** 22 + 12_345)
  tree.signal('SIGTERM')
  tree.end()
  tree.end()
  tree.signal('SIGKILL')
})

const FURTHER = '/proc/sys/fs/binfmt_misc'
const skip = existsSync(FURTHER) && readdirSync(FURTHER).length > 2 && 'this kernel has further formats, and says itself what it knows'

test('a damaged ELF file, or one of another machine, is not passed to a shell', { skip }, async (t) => {
  const directory = await temporaryDirectory(t)
  const node = (await readFile(process.execPath)).subarray(0, 4096)
  const other = Buffer.from(node)
  other.writeUInt16LE(0x1234, 18)
  const noHeaders = Buffer.from(node)
  noHeaders.writeUInt16LE(0, 56)
  for (const [name, content] of [
    ['magic', Buffer.from('\u007fELF\necho ran by a shell\n')],
    ['machine', other],
    ['headers', noHeaders],
    // The program headers would be after the end of the file.
    ['cut', node.subarray(0, 64)],
  ] as const) {
    const path = join(directory, name)
    await writeFile(path, content, { mode: 0o755 })
    const result = await spawnPermitted(permitFor([path]), { trees: await groupCells(), cleanup: startGuardian(t) }, { stdin: false })
    assert.equal(result.kind, 'spawn_failed', name)
    assert.match(result.detail, /neither an ELF file of this machine nor/, name)
  }
})
