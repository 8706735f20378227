import assert from 'node:assert/strict'
import type { MakeDirectoryOptions } from 'node:fs'
import promises from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { listenAt } from '../../src/base/private-socket.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a directory that somebody else made between the look and our own mkdir is not used', async (t) => {
  const dir = await tempDir(t)
  const path = join(dir, 'theirs', 'rexd.sock')
  const { mkdir, chmod } = promises
  const mock = t.mock.method(promises, 'mkdir', async (made: string, options: MakeDirectoryOptions) => {
    // Theirs: with other rights than we would have given it.
    await mkdir(made)
    await chmod(made, 0o777)
    return mkdir(made, options)
  })
  syncBuiltinESMExports()
  const server = createServer()
  await assert.rejects(
    listenAt(server, { kind: 'unix', path }, ''),
    (error) => isAppError(error, 'loose_permissions') && /lets others in/.test(error.message),
  )
  mock.mock.restore()
  syncBuiltinESMExports()
  await listenAt(server, { kind: 'unix', path: join(dir, 'ours', 'rexd.sock') }, '')
  server.close()
})
