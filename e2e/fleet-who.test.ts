import assert from 'node:assert/strict'
import { chmod, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

let mesh: MeshOfDaemons
let alice: TestDaemon
let hosts: readonly TestDaemon[]

before(async () => {
  mesh = await MeshOfDaemons.create()
  alice = mesh.add('alice')
  hosts = ['web1', 'web2', 'db1'].map((name) => mesh.add(name))
  await Promise.all([alice, ...hosts].map(async (daemon) => daemon.start()))
  for (const host of hosts) await alice.meet(host, 'trusted')
})

after(async () => mesh.stop())

test('labels and groups choose hosts, before a restart and after it', async () => {
  assert.match(await alice.ok('contacts', 'label', 'web1', 'role=web', 'site=ber'), /role=web site=ber/)
  await alice.ok('contacts', 'label', 'web2', 'role=web', 'site=ams')
  await alice.ok('contacts', 'label', 'db1', 'role=db')
  await alice.ok('contacts', 'label', 'web2', 'site=')
  assert.equal(await alice.ok('contacts', 'select', 'role=web'), 'web1  role=web site=ber\nweb2  role=web\n')
  assert.equal(await alice.ok('contacts', 'select', '--fold', 'web[1-2]', 'db1', '!site=ber'), 'db1,web2\n')
  assert.match(await alice.ok('contacts', 'list'), /LABELS[^]*role=web site=ber/)

  await writeFile(join(alice.dir, 'groups.toml'), '[groups]\nweb = ["role=web"]\nall = ["@web", "db[1-1]"]\n', { mode: 0o600 })
  await alice.restart()
  assert.equal(await alice.ok('contacts', 'select', '@all', '!web2', '--fold'), 'db1,web1\n')
  const { hosts: chosen } = JSON.parse(await alice.ok('--json', 'contacts', 'select', '@web')) as {
    hosts: { host: string; labels: object }[]
  }
  assert.deepEqual(
    chosen.map(({ host, labels }) => [host, labels]),
    [
      ['web1', { role: 'web', site: 'ber' }],
      ['web2', { role: 'web' }],
    ],
  )
  const words = await alice.ok('completion', 'words', '--', 'x0x', '--data-dir', alice.dir, 'contacts', 'select', 'web1,!')
  for (const word of ['web1,!@web', 'web1,!role=db', 'web1,!db1']) assert.ok(words.includes(`${word}\t`), words)
})

test('what means nobody, or somebody that is not there, is told and is no success', async () => {
  for (const [args, status, why] of [
    [['web[1-4]'], 255, /no contact is named web\[3-4\]/],
    [['@alll'], 255, /there is no group @alll \(did you mean @all\?\)\n.*groups\.toml.*x0xd --replace/],
    [['role=wbe'], 255, /no contact has the label role=wbe \(did you mean role=web\?\)\n.*x0x contacts label NAME/],
    [['web1', '!web1'], 255, /mean nobody/],
    [['web[3-1]'], 2, /goes backwards/],
    [['web[1-999999999]'], 2, /means 999999999 hosts/],
    [['!web1,web2'], 2, /leaves out its first part alone/],
    [
      Array.from({ length: 1_000 }, () => 'a-name-of-some-length'),
      2,
      /so many words cannot be asked.*\n.*as a node set, such as web\[1-20\], by a label or as a group/,
    ],
  ] as const) {
    const { status: ended, stderr } = await alice.cli(['contacts', 'select', ...args])
    assert.equal(ended, status, stderr)
    assert.match(stderr, why)
  }
  for (const [labels, status, why] of [
    [['role'], 2, /is no label/],
    [['role=a b'], 2, /is no value of a label/],
    [['none='], 1, /has no label "none"/],
    [['a=1', 'a=2'], 2, /named twice/],
  ] as const) {
    const { status: ended, stderr } = await alice.cli(['contacts', 'label', 'web1', ...labels])
    assert.equal(ended, status, stderr)
    assert.match(stderr, why)
  }
})

test('a daemon does not start with groups that are wrong or others’, nor with contacts that were altered', async () => {
  const groups = join(alice.dir, 'groups.toml')
  await alice.stop()
  await writeFile(groups, '[groups]\nweb = ["@web"]\n')
  await assert.rejects(alice.start(), /groups\.toml:2: groups\.web: this group is in itself/)
  await writeFile(groups, '[groups]\n')
  await chmod(groups, 0o666)
  await assert.rejects(alice.start(), /groups\.toml/)
  await rm(groups)
  const contacts = join(alice.dir, 'contacts.json')
  const text = await readFile(contacts, 'utf8')
  await writeFile(contacts, text.replace('"role": "web"', '"role": "we b"'))
  await assert.rejects(alice.start(), /contacts\.json: contacts\[0\]\.labels: "we b" is no value of a label/)
  await writeFile(contacts, text)
  await alice.start()
  assert.equal(await alice.ok('contacts', 'select', '--fold', 'role=web'), 'web[1-2]\n')
})
