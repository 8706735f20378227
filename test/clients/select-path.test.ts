import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { selectPath } from '../../src/clients/daemon.ts'

test('the path contains the words as typed, and too many words are refused before any request', () => {
  assert.equal(selectPath(['web[1-2]', '!a=b']), '/contacts/select?expr=web%5B1-2%5D&expr=!a%3Db')
  const many = Array.from({ length: 2_000 }, (_, at) => `web${at}`)
  assert.throws(
    () => selectPath(many),
    (error) => isAppError(error, 'bad_request') && /node set/.test(String(error.data['next'])),
  )
})
