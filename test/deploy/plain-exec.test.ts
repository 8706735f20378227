import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { bundle, TARGETS } from '../../deploy/build.mjs'
import { exitEvent } from '../support/journal-exit.ts'
import { fakeDaemon, runAnswer } from '../support/fake-daemon.ts'

const REPORT = `process.on('exit', () => require('node:fs').writeSync(2, JSON.stringify(process.moduleLoadList)))`

test('a plain exec loads no slow module of the runtime', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => runAnswer(response, exitEvent({ code: 7 })))
  const [program, report] = [join(dir, 'x0x.cjs'), join(dir, 'report.cjs')]
  await writeFile(program, (await bundle(TARGETS.x0x)).text)
  await writeFile(report, REPORT)
  const child = spawn(process.execPath, ['-r', report, program, '--data-dir', dir, 'exec', 'bob', '--', 'true'], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: {},
  })
  let text = ''
  child.stderr.setEncoding('utf8').on('data', (part: string) => (text += part))
  assert.deepEqual(await once(child, 'close'), [7, null])
  const loaded = (JSON.parse(text) as string[]).map((entry) => entry.replace(/^NativeModule /, ''))
  assert.ok(loaded.includes('net'))
  for (const slow of [
    'crypto',
    'http',
    '_http_client',
    'https',
    'child_process',
    'internal/crypto/webcrypto',
    'internal/deps/undici/undici',
    'dns',
  ])
    assert.ok(!loaded.includes(slow), slow)
})
