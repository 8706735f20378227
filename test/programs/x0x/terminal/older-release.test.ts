import assert from 'node:assert/strict'
import { test } from 'node:test'

import { fakeDaemon, json, runCli } from '../../../support/fake-daemon.ts'

test('a daemon of a release without terminals is reported as older, with the next step', async (t) => {
  const { dir } = await fakeDaemon(
    t,
    (_request, response) => json(response, 200, { routes: [{ method: 'POST', path: '/exec/run' }] }),
    // The request body of a terminal does not end, so this answer comes before its end.
    ({ url }, response) => {
      if (url !== '/routes') json(response, 404, { ok: false, error: 'not_found', message: 'no such route' })
    },
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', '-tt', 'bob', '--', 'sh'])
  assert.equal(status, 255)
  assert.match(stderr, /this daemon has no route POST \/exec\/terminal: its release differs/)
  assert.match(stderr, /restart the daemon/)
})
