import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { selectPath } from '../../src/clients/daemon.ts'

test('words stand in the path as they were typed, and too many are refused before a daemon is asked', () => {
  assert.equal(selectPath(['web[1-2]', '!a=b']), '/contacts/select?expr=web%5B1-2%5D&expr=!a%3Db')
  const many = Array.from({ length: 2_000 }, (_, at) => `web${at}`)
  assert.throws(
    () => selectPath(many),
    (error) => isAppError(error, 'bad_request') && /node set/.test(String(error.data['next'])),
  )
})
