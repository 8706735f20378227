import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test } from 'node:test'

import { verifyJournal } from '../../../src/journal/verify.ts'
import { parseRecordLine } from '../../../src/protocol/tool-record.ts'
import { MeshOfDaemons, runDaemonCommand } from '../../support/mesh-of-daemons.ts'
import { tempDir } from '../../support/temp-dir.ts'

// The data directory has files of a later x0x, which was replaced by this release. See docs/upgrade.md.

const put = async (path: string, text: string): Promise<void> => {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  await writeFile(path, text, { mode: 0o600 })
}

const SECRET = 'ab'.repeat(32)
/** A file of a later version with an unknown key. */
const json = (more: object): string => JSON.stringify({ version: 2, sealed_with: 'another key', ...more })

/** Files that keep a daemon from starting, and the message for each. */
const REFUSED: Readonly<Record<string, readonly [text: string, says: RegExp]>> = {
  'agent.key': [
    `x0x-agent-key-v2\n${SECRET}\nmore\n`,
    /: version 2 is from a later x0x, and this one reads version 1: .*; nothing was changed/,
  ],
  'machine.key': [`x0x-machine-key-v12\n${SECRET}\n`, /: version 12 is from a later x0x, and this one reads version 1: /],
  'operator.key': [`x0x-operator-key-v2\n${SECRET}\n`, /: version 2 is from a later x0x, and this one reads files without a version: /],
  'contacts.json': [json({ contacts: [] }), /: version: version 2 is from a later x0x, and this one reads version 1: /],
  'revocations.json': [json({ revocations: [] }), /: version: version 2 is from a later x0x, and this one reads version 1: /],
  'successions.json': [json({ successions: [] }), /: version: version 2 is from a later x0x, and this one reads version 1: /],
  'config.toml': ['quantum_links = true\n', /:1: quantum_links: unknown key/],
  'exec-acl.toml': ['[exec]\nenabled = true\nweather = "fair"\n', /:3: exec\.weather: unknown key/],
}

test('a daemon refuses to start with a file of a later version, names it, and leaves it unchanged', async (t) => {
  const root = await tempDir(t)
  const tried = Object.entries(REFUSED).map(async ([name, [text, says]]) => {
    const file = join(root, name.replace('.', '-'), name)
    await put(file, text)
    const acl = name === 'exec-acl.toml' ? ['--exec-acl', file] : []
    const port = name === 'config.toml' ? [] : ['--api-port', '0']
    const { status, stderr } = await runDaemonCommand(['--data-dir', dirname(file), ...port, '--listen', '/ip4/127.0.0.1/tcp/0', ...acl])
    assert.equal(status, 2, `${name}: ${stderr}`)
    assert.ok(stderr.includes(file), `${name}: ${stderr}`)
    assert.match(stderr, says)
    assert.equal(await readFile(file, 'utf8'), text)
  })
  await Promise.all(tried)
})

test('store, run markers and audit log of a later version do not prevent a start, and stay unchanged', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice')
  const store = join(daemon.dir, 'exec-approvals.json')
  const mark = join(daemon.dir, 'runs', 'v2-of-a-later-version')
  const later = { ts: '2026-01-01T00:00:00.000Z', event: 'weather', chain: '01900000-0000-7000-8000-00000000c0de', n: 0 }
  const line = JSON.stringify({ ...later, prev: '0'.repeat(64), sky: 'clear' })
  const runs = join(daemon.dir, 'detached-runs.json')
  await put(store, json({ agents: {} }))
  await put(runs, json({ runs: [] }))
  await put(mark, '')
  await put(daemon.journalFile, `${line}\n`)
  await daemon.writeAcl([])
  await daemon.start()
  assert.match(await daemon.log(), /exec-approvals\.json: version: version 2 is from a later x0x, and this one reads version 1: /)
  assert.match(await daemon.log(), /detached-runs\.json: version: version 2 is from a later x0x, and this one reads version 1: /)
  assert.equal(await daemon.stop(), 0)

  assert.equal(await readFile(runs, 'utf8'), json({ runs: [] }))
  assert.equal(await readFile(store, 'utf8'), json({ agents: {} }))
  assert.ok((await readdir(dirname(mark))).includes('v2-of-a-later-version'))
  assert.match(await daemon.log(), /marks of runs that this version does not know are left for a later one/)
  const [first, began] = (await readFile(daemon.journalFile, 'utf8')).split('\n')
  assert.equal(first, line)
  assert.match(began ?? '', /"after":\{"chain":"01900000-0000-7000-8000-00000000c0de","n":0,/)
  const { problems } = await verifyJournal([daemon.journalFile])
  assert.match(problems[0]?.message ?? '', /its event "weather" is not known to this version of x0x/)
})

test('a record of a later version is refused for its version before its fields', () => {
  const line = { event: 'record', version: 2, x0x: '9', whoami: 'a', began_at: 'b', host: 'c' }
  assert.match(String(parseRecordLine(Buffer.from(JSON.stringify(line)))), /version 2 is from a later x0x, and this one reads version 1/)
})
