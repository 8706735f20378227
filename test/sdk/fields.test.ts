import assert from 'node:assert/strict'
import { test } from 'node:test'

import { camelCase } from '../../src/sdk/fields.ts'

test('camelCase renames the fields of nested objects and lists', () => {
  const value = { bytes_stdout: 1, exit_code: null, inner: [{ symlink_target: 'a_b' }], plain: true }
  assert.deepEqual(camelCase(value), { bytesStdout: 1, exitCode: null, inner: [{ symlinkTarget: 'a_b' }], plain: true })
})
