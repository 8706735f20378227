import assert from 'node:assert/strict'
import { test } from 'node:test'

import { camelCase } from '../../src/sdk/fields.ts'

test('names of fields, all the way down', () => {
  const value = { bytes_stdout: 1, exit_code: null, inner: [{ symlink_target: 'a_b' }], plain: true }
  assert.deepEqual(camelCase(value), { bytesStdout: 1, exitCode: null, inner: [{ symlinkTarget: 'a_b' }], plain: true })
})
