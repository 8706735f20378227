import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import { overStdio } from './transports.ts'
import { COMMON } from './server.ts'

// The journal must never contain the data that programs and files receive or return.

const SECRETS = ['in-stdin', 'in-input', 'in-a-value', 'in-content', 'in-the-old', 'in-the-new', 'in-a-patch', 'in-output'].map(
  (where) => `secret-${where}-7f3a`,
)

test('the journal never contains the input, output or contents of programs and files', async (t) => {
  const peer = await overStdio.open(t, COMMON)
  const [stdin, input, value, content, old, fresh, patch, output] = SECRETS as [
    string,
    string,
    string,
    string,
    string,
    string,
    string,
    string,
  ]
  const session = await peer.session()
  const log = await session.start({ argv: ['cat'], stdin, stdin_open: true, env: { LC_TIME: value } })
  await session.call('exec.input', { process_id: log.id, data: input, eof: true })
  await log.finished()
  await session.call('fs.write', { path: 'file', content: `${content} ${old}` })
  await session.call('fs.read', { path: 'file' })
  await session.call('fs.edit', { path: 'file', old_string: old, new_string: fresh })
  await session.failure(-32006, 'fs.edit', { path: 'file', old_string: old, new_string: fresh })
  await session.call('fs.patch', { patch_text: `*** Begin Patch\n*** Add File: other\n+${patch}\n*** End Patch` })
  await writeFile(session.path('printed'), output)
  await (await session.start({ argv: ['cat', 'printed'] })).finished()
  await session.failure(-32002, 'fs.write', { path: '/etc/x', content })
  await peer.close()
  const journal = JSON.stringify(await peer.home.journal())
  assert.deepEqual(
    SECRETS.filter((secret) => journal.includes(secret)),
    [],
  )
  assert.equal(peer.process.stderr, '')
})
