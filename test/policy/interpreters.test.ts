import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmod, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { checkAclFile } from '../../src/policy/mesh/check-acl.ts'
import { findExecutable, type ExecutableLookup } from '../../src/policy/executable.ts'
import { explain } from '../../src/policy/mesh/explain.ts'
import { inspectAcl } from '../../src/policy/mesh/load-acl.ts'
import { aclText, ALICE, entryText, LAPTOP } from '../support/acl-text.ts'
import { tempDir } from '../support/temp-dir.ts'

/** An executable file. By default it is a script that any `sh` runs. */
const program = async (path: string, text = '#!/bin/sh\nexit 0\n', mode = 0o755): Promise<string> => {
  await writeFile(path, text)
  await chmod(path, mode)
  return path
}

const unsafe = (lookup: ExecutableLookup, why: RegExp): void => {
  assert.equal(lookup.kind, 'unsafe')
  assert.match(lookup.kind === 'unsafe' ? lookup.detail : '', why)
}

/** A script of this user with an interpreter that other users may write. */
const everyday = async (t: TestContext) => {
  const dir = await tempDir(t)
  await mkdir(join(dir, 'venv'))
  const python = await program(join(dir, 'venv', 'python'), '#!/bin/sh\nexit 0\n', 0o777)
  return { dir, python, report: await program(join(dir, 'report'), `#!${python} -u\nprint("hi")\n`) }
}

test('a script with an interpreter that others may write is refused by the lookup, explain and check', async (t) => {
  const { dir, python, report } = await everyday(t)
  const why = new RegExp(`${report} runs ${python}, and ${python} is writable by other users`)
  unsafe(findExecutable(report), why)
  const file = join(dir, 'acl.toml')
  await writeFile(file, aclText([entryText([[report]])]), { mode: 0o600 })
  const { ok, problems } = await checkAclFile(file)
  assert.equal(ok, false)
  assert.match(problems.join(), why)
  const { acl } = await inspectAcl(file)
  const { allowed, reason, detail } = explain({ acl: acl!, agent_id: ALICE, machine_id: LAPTOP, argv: [report] })
  assert.deepEqual([allowed, reason], [false, 'spawn_failed'])
  assert.match(detail ?? '', why)
  await chmod(python, 0o755)
  assert.equal(findExecutable(report).kind, 'found')
  assert.equal((await checkAclFile(file)).ok, true)
  await chmod(join(dir, 'venv'), 0o777)
  unsafe(findExecutable(report), /venv is writable by other users/)
})

test('each interpreter in a chain is checked, also behind links and env', async (t) => {
  const { dir, python, report } = await everyday(t)
  const outer = await program(join(dir, 'outer'), `#!${report}\n`)
  unsafe(findExecutable(outer), new RegExp(`${report} runs ${python}, and`))
  const link = join(dir, 'link')
  await symlink(python, link)
  unsafe(findExecutable(await program(join(dir, 'by-link'), `#! ${link}\n`)), /python is writable by other users/)
  const path = `${join(dir, 'venv')}:/usr/bin:/bin`
  for (const words of ['python', '-S python -u', '-i A=b python'])
    unsafe(findExecutable(await program(join(dir, 'by-env'), `#!/usr/bin/env ${words}\n`), path), /python is writable by other users/)
  assert.equal(findExecutable(join(dir, 'by-env')).kind, 'found', 'env finds another in another PATH')
})

test('policy knows which interpreter env starts in each known syntax, and otherwise refuses the script', async (t) => {
  const { dir, python } = await everyday(t)
  const path = `${join(dir, 'venv')}:/usr/bin:/bin`
  const byEnv = async (words: string): Promise<ExecutableLookup> =>
    findExecutable(await program(join(dir, 'by-env'), `#!/usr/bin/env ${words}\n`), path)
  for (const words of [python, `-S ${python} -u`, '-Spython -u', '-vS python', '--split-string=python -u', '-S -i A=b python "$HOME"'])
    unsafe(await byEnv(words), /python is writable by other users/)
  for (const words of ['-S -u A python', '-S "python" -u', '-S A="b c" python', '-S ${A}', '-S PATH=/usr/bin python', './python'])
    unsafe(await byEnv(words), /by-env uses env with .*, which cannot be checked: name the interpreter/)
  for (const words of ['sh', '-S sh -c "exit 0"', '-i']) assert.equal((await byEnv(words)).kind, 'found', words)
})

test('a missing interpreter is allowed if only the owner could create it, otherwise the script is refused', async (t) => {
  const dir = await tempDir(t)
  const script = await program(join(dir, 'script'), `#!${dir}/none\n`)
  assert.equal(findExecutable(script).kind, 'found')
  await mkdir(join(dir, 'open'))
  await chmod(join(dir, 'open'), 0o777)
  unsafe(findExecutable(await program(join(dir, 'other'), `#!${dir}/open/none\n`)), /open is writable by other users/)
})

test('an interpreter that is relative, not a regular file, or the script itself is refused at once', async (t) => {
  const dir = await tempDir(t)
  unsafe(findExecutable(await program(join(dir, 'relative'), '#!sh\n')), /relative path \(sh\)/)
  const fifo = join(dir, 'fifo')
  execFileSync('mkfifo', ['-m', '755', fifo])
  unsafe(findExecutable(await program(join(dir, 'waits'), `#!${fifo}\n`)), /is not a regular file/)
  unsafe(findExecutable(await program(join(dir, 'self'), `#!${join(dir, 'self')}\n`)), /too many interpreters/)
  for (const name of ['sh', 'true']) assert.equal(findExecutable(name).kind, 'found')
})

test('policy also checks the loader that an ELF file names', async (t) => {
  const dir = await tempDir(t)
  const image = await readFile('/bin/true')
  const at = image.indexOf('/lib')
  const loader = image.toString('latin1', at, image.indexOf(0, at))
  if (image.toString('latin1', 1, 4) !== 'ELF' || !loader.includes('/ld')) return t.skip('/bin/true names no loader where we know one')
  const own = `/tmp/l${process.pid % 10_000}`
  assert.ok(own.length <= loader.length)
  t.after(async () => rm(own, { force: true }))
  await program(own, '#!/bin/sh\n', 0o777)
  image.fill(0, at, at + loader.length).write(own, at, 'latin1')
  const binary = join(dir, 'binary')
  await writeFile(binary, image, { mode: 0o755 })
  unsafe(findExecutable(binary), new RegExp(`runs ${own}, and ${own} is writable by other users`))
})
