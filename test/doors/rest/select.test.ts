import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { AGENT, OTHER_AGENT, restComponents, startDoor } from '../../support/rest-server.ts'

test('a selection keeps the order of hosts and folds their names into a node set', async (t) => {
  const asked: unknown[] = []
  const hosts = [
    { host: 'web2', agent_id: AGENT, labels: { role: 'web' }, trust: 'trusted' as const },
    { host: 'web1', agent_id: OTHER_AGENT, labels: {}, trust: null },
  ]
  const select = (words: readonly string[]): typeof hosts => {
    asked.push(words)
    return hosts
  }
  const door = await startDoor(t, { directory: { ...restComponents().directory, select } })
  const several = await door.call('GET', `/contacts/select?expr=${encodeURIComponent('web[2,1]')}&expr=!web3`)
  assert.deepEqual(several.json, { ok: true, hosts, expression: 'web[1-2]' })
  await door.call('GET', '/contacts/select?expr=role%3Dweb')
  assert.deepEqual(asked, [['web[2,1]', '!web3'], ['role=web']])
})

test('a selection that matches no host, and a request without words, are refused', async (t) => {
  const select = (): never => {
    throw new AppError('no_hosts', 'no host is left')
  }
  const door = await startDoor(t, { directory: { ...restComponents().directory, select } })
  const nobody = await door.call('GET', '/contacts/select?expr=web1&expr=!web1')
  assert.deepEqual([nobody.status, nobody.json], [404, { ok: false, error: 'no_hosts', message: 'no host is left' }])
  for (const query of ['', '?expr=a&words=b', `?expr=${'a'.repeat(100)}&expr[x]=1`]) {
    const { status, json } = await door.call('GET', `/contacts/select${query}`)
    assert.deepEqual([status, (json as { error: string }).error], [400, 'bad_request'], query)
  }
})
