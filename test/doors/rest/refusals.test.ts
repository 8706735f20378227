import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import type { HttpRefusal } from '../../../src/doors/http.ts'
import { restComponents, startDoor, TOKEN } from '../../support/rest-server.ts'

test('each refusal for access or too many runs is reported once, in short plain text without query or token', async (t) => {
  const told: HttpRefusal[] = []
  const components = restComponents()
  const checkRoom = (): never => {
    throw new AppError('rate_limited', 'too many')
  }
  const door = await startDoor(t, {
    executor: { ...components.executor, httpRefused: (refusal) => void told.push(refusal) },
    runner: { ...components.runner, checkRoom },
  })
  const here = `127.0.0.1:${door.port}`
  await door.call('GET', `/agent?token=${TOKEN}`, { token: null })
  await door.call('POST', '/exec/run', { token: 'wrong', body: { agent: 'x', argv: ['id'] } })
  await door.call('GET', '/agent', { token: null, viaSocket: true, headers: { host: 'localhost' } })
  await door.call('GET', '/health', { headers: { origin: 'https://evil.example' } })
  await door.call('GET', '/health', { headers: { host: `\u00e4${'x'.repeat(1_000)}` } })
  await door.call('GET', '/%', { headers: { host: 'evil.example' } })
  await door.call('POST', '/exec/run', { body: { agent: 'x', argv: ['id'] } })
  const none = { host: here, origin: null, remote: '127.0.0.1' }
  assert.deepEqual(told, [
    { code: 'unauthorized', method: 'GET', path: '/agent', ...none },
    { code: 'unauthorized', method: 'POST', path: '/exec/run', ...none },
    { code: 'unauthorized', method: 'GET', path: '/agent', host: 'localhost', origin: null, remote: null },
    { code: 'forbidden_host', method: 'GET', path: '/health', ...none, origin: 'https://evil.example' },
    { code: 'forbidden_host', method: 'GET', path: '/health', ...none, host: `?${'x'.repeat(255)}` },
    { code: 'forbidden_host', method: 'GET', path: '/%', ...none, host: 'evil.example' },
    { code: 'rate_limited', method: 'POST', path: '/exec/run', ...none },
  ])
  await door.call('GET', '/health')
  await door.call('GET', '/nowhere')
  await door.call('POST', '/contacts/trust', { body: '{' })
  assert.equal(told.length, 7, 'what is wrong otherwise is no refusal')
})

test('a byte order mark before a body makes its JSON invalid, in one object and in lines', async (t) => {
  const door = await startDoor(t)
  const asked = JSON.stringify({ agent: 'nobody-here', argv: ['id'] })
  for (const [type, end] of [
    ['application/json', ''],
    ['application/x-ndjson', '\n'],
  ] as const) {
    const post = async (body: string): Promise<{ status: number; text: string }> => {
      const { status, json } = await door.call('POST', '/exec/run', { body: body + end, headers: { 'content-type': type } })
      return { status, text: JSON.stringify(json) }
    }
    assert.doesNotMatch((await post(asked)).text, /not valid JSON/)
    const marked = await post(`\ufeff${asked}`)
    assert.deepEqual([marked.status, /bad_request.*not valid JSON/.test(marked.text)], [400, true], marked.text)
  }
})
