import assert from 'node:assert/strict'
import { cp, mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

import type { EnrolKeyRecord } from '../src/protocol/api/enrolment.ts'
import { decodeEnrolToken, encodeEnrolToken, enrolKeyId } from '../src/trust/enrolment-token.ts'
import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { HostileRelay } from '../test/support/hostile-relay.ts'
import { MeshOfDaemons, type TestDaemon, cleanEnvironment, runDaemonCommand, until } from '../test/support/mesh-of-daemons.ts'

// Enrolment with one command on the machine of an operator and one on each host.

const ENTRIES = `[[exec.allow]]
description = "ops"
discoverable = true

[[exec.allow.commands]]
argv = ["uname", "-r"]
`

interface Fleet {
  readonly mesh: MeshOfDaemons
  readonly ops: TestDaemon
  readonly allow: string
}

const fleet = async (t: TestContext): Promise<Fleet> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const ops = mesh.add('ops')
  await ops.start()
  const allow = join(mesh.root, 'web.toml')
  await writeFile(allow, ENTRIES)
  return { mesh, ops, allow }
}

const tokenOf = async (ops: TestDaemon, ...argv: readonly string[]): Promise<string> =>
  (await ops.json<{ token: string }>('enrol', 'create', ...argv)).token

const keysOf = async (ops: TestDaemon): Promise<readonly EnrolKeyRecord[]> =>
  (await ops.json<{ keys: EnrolKeyRecord[] }>('enrol', 'list')).keys

const hostsOf = async (ops: TestDaemon): Promise<readonly string[]> =>
  (await keysOf(ops)).flatMap(({ hosts }) => hosts.map(({ name, confirmed }) => `${name}${confirmed ? '' : '?'}`))

const hostWith = ({ mesh }: Pick<Fleet, 'mesh'>, name: string, token: string, ...flags: readonly string[]): TestDaemon =>
  mesh.add(name, { flags: ['--init', '--enrol', token, ...flags] })

/** Log of a host whose enrolment was refused. */
const refusalOf = async (host: TestDaemon, status = 2): Promise<string> => {
  const error: unknown = await host.start().then(
    () => new Error('it was enrolled'),
    (problem: unknown) => problem,
  )
  assert.match(String(error), /did not start/)
  assert.equal(await host.stop(), status)
  return host.log()
}

/** Copies the files of a stopped daemon to another data directory. */
const copyFiles = async (from: TestDaemon, to: TestDaemon): Promise<void> =>
  cp(from.dir, to.dir, { recursive: true, filter: async (path) => !(await stat(path)).isSocket() })

const enrolmentFile = async (host: TestDaemon): Promise<string> => readFile(join(host.dir, 'enrolment.json'), 'utf8')

test('one command enrols a host with name, label, trust, pin and ACL entries', async (t) => {
  const all = await fleet(t)
  const { ops, allow } = all
  const created = await ops.cli([
    'enrol',
    'create',
    '--uses',
    '3',
    '--for',
    '2h',
    '--name',
    'web[1-3]',
    '--label',
    'role=web',
    '--allow',
    allow,
  ])
  assert.equal(created.status, 0, created.stderr)
  const token = created.stdout.toString().trim()
  assert.match(token, /^x0xe1\.[\w-]+$/)
  assert.ok(token.length < 300, `${token.length} characters`)
  assert.match(created.stderr, /^x0x: key [0-9a-f]{16}: 3 hosts until .*Keep the token like a password\.$/m)
  const [web2, box] = [hostWith(all, 'web2', token), hostWith(all, 'box', token)]
  await Promise.all([web2.start(), box.start()])
  assert.match(web2.ready, /\nThe ACL allows 1 command$/m)
  const log = await box.log()
  assert.match(log, /^x0xd: the operator gives itself these ACL entries on this machine:$/m)
  assert.match(log, /^x0xd: {3}argv = \["uname", "-r"\]$/m)
  assert.match(log, /^x0xd: enrolled as web1 by ops \(agent [0-9a-f]{64}\)$/m)
  const ran = await ops.cli(['exec', 'role=web', '--group', '--', 'uname', '-r'])
  assert.equal(ran.status, 0, ran.stderr)
  assert.match(ran.stdout.toString(), /^web\[1-2\] \(2\): /)
  const denied = await ops.cli(['exec', 'web1', '--', 'uname', '-a'])
  assert.match(denied.stderr, /argv_not_allowed/)
  const { contacts } = await box.json<{ contacts: { name: string; trust: string; machines: string[] }[] }>('contacts', 'list')
  assert.deepEqual(
    contacts.map(({ name, trust, machines }) => [name, trust, machines]),
    [['ops', 'trusted', [ops.machineId]]],
  )
  assert.deepEqual((await hostsOf(ops)).toSorted(), ['web1', 'web2'])
  assert.match(await ops.ok('enrol', 'list'), /^[0-9a-f]{16} +1 use +\S+ +web\[1-3\] +role=web +web\d web\d$/m)
  // The state file no longer contains the token. A start with the same token is then an ordinary start.
  const state = await enrolmentFile(box)
  assert.ok(!state.includes(token) && state.includes('"done"'))
  assert.equal((await stat(join(box.dir, 'enrolment.json'))).mode & 0o777, 0o600)
  await box.restart()
  assert.match(box.ready, /\nThe ACL allows 1 command$/m)
  assert.equal((await hostsOf(ops)).length, 2)
  assert.equal((await ops.cli(['exec', 'web1', '--', 'uname', '-r'])).status, 0)
  const changes = (await box.cli(['audit', 'tail', '--json'])).stdout.toString()
  assert.match(changes, /"enrolled"/)
  assert.match(changes, /extended by the enrolment of this machine/)
  const operations = (await ops.cli(['audit', 'tail', '--outgoing', '--json'])).stdout.toString()
  assert.match(operations, /enrol_create/)
  assert.match(operations, /"enrol"/)
})

test('a token is written to a private file, and read from a file, a variable or a credential', async (t) => {
  const all = await fleet(t)
  const { mesh, ops } = all
  const file = join(mesh.root, 'web.token')
  const created = await ops.cli(['enrol', 'create', '--uses', '3', '--out', file])
  assert.equal(created.status, 0, created.stderr)
  assert.equal(created.stdout.toString(), '')
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  const again = await ops.cli(['enrol', 'create', '--out', file])
  assert.match(again.stderr, /exists, and a token is never written over a file/)
  assert.equal((await keysOf(ops)).length, 1, 'the key of a file that cannot be written is not made')
  const token = (await readFile(file, 'utf8')).trim()
  const credentials = join(mesh.root, 'credentials')
  await mkdir(credentials, { mode: 0o700 })
  await cp(file, join(credentials, 'x0x-enrol'))
  const hosts = [
    hostWith(all, 'one', `@${file}`),
    mesh.add('two', { flags: ['--init'], env: { X0X_ENROL: token } }),
    mesh.add('three', { flags: ['--init'], env: { CREDENTIALS_DIRECTORY: credentials } }),
  ]
  await Promise.all(hosts.map(async (host) => host.start()))
  assert.deepEqual((await hostsOf(ops)).toSorted(), ['one', 'three', 'two'])
  const forgot = mesh.add('forgot', { env: { X0X_ENROL: token } })
  await forgot.start()
  assert.match(await forgot.log(), /warning: X0X_ENROL has no effect without --init\n {2}Try: add --init/)
  // The host is enrolled but has no permissions yet.
  const next = /\nNothing is allowed yet\. Next: edit \S+\/exec-acl\.toml, or after a denied command: x0x acl suggest --data-dir \S+\n$/
  for (const host of hosts) assert.match(host.ready, next)
  await hosts[0]!.restart()
  assert.match(hosts[0]!.ready, next)
})

test('a daemon that accepts no unlisted peers creates no token and names the setting to change', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const ops = mesh.add('ops')
  await mkdir(ops.dir, { mode: 0o700 })
  const config = join(ops.dir, 'config.toml')
  await writeFile(config, 'strangers = false\n', { mode: 0o600 })
  await ops.start()
  const file = join(mesh.root, 'web.token')
  const created = await ops.cli(['enrol', 'create', '--out', file])
  assert.equal(created.status, 1)
  assert.match(created.stderr, /^x0x: this daemon has strangers = false, so it lets no new host connect\n {5}Try: set strangers = true /m)
  await assert.rejects(stat(file), { code: 'ENOENT' })
  assert.deepEqual(await keysOf(ops), [])
  await writeFile(config, 'strangers = true\n', { mode: 0o600 })
  await ops.restart()
  assert.equal((await ops.cli(['enrol', 'create', '--out', file])).status, 0)
})

test('a truncated or changed token, a token of another operator and an invalid entries file are refused', async (t) => {
  const all = await fleet(t)
  const { mesh, ops, allow } = all
  const token = await tokenOf(ops)
  const [cut, changed] = [token.slice(0, -3), token.replace(/.{5}$/, 'AAAAA')]
  for (const [index, text] of [cut, changed].entries()) {
    const { status, stderr } = await runDaemonCommand(['--data-dir', join(mesh.root, `cut${index}`), '--init', '--enrol', text])
    assert.deepEqual([status, stderr], [2, 'x0xd: the enrolment token is damaged or incomplete: copy the whole token\n'])
  }
  const unknown = encodeEnrolToken({ ...decodeEnrolToken(token), secret: new Uint8Array(20) })
  assert.match(
    await refusalOf(hostWith(all, 'unknown', unknown)),
    /^x0xd: this operator has no enrolment key [0-9a-f]{16}: the token is from another operator, or was forgotten$/m,
  )
  const used = await tokenOf(ops, '--allow', allow)
  const edited = mesh.add('edited', { flags: ['--init', '--enrol', used] })
  await mkdir(edited.dir, { mode: 0o700 })
  await edited.writeAcl([{ agent: ops, commands: [['df']] }])
  assert.match(await refusalOf(edited, 1), /the token brings ACL entries, and \S+ is not as --init made it\nx0xd: {3}Try: add --append/)
  const without = await runDaemonCommand(['--data-dir', join(mesh.root, 'x'), '--enrol', token])
  assert.equal(without.status, 2)
  await writeFile(allow, ENTRIES.replace('argv', 'argw'))
  const wrong = await ops.cli(['enrol', 'create', '--allow', allow])
  assert.equal(wrong.status, 2)
  assert.match(wrong.stderr, /web\.toml: exec\.allow\[0\]\.commands\[0\].*argw/)
  assert.equal((await keysOf(ops)).length, 2)
})

test('an edited ACL gets the new entries only with --append, at its end', async (t) => {
  const all = await fleet(t)
  const { mesh, ops, allow } = all
  const [other, web] = [mesh.add('other'), hostWith(all, 'web', await tokenOf(ops, '--allow', allow), '--append')]
  await other.start()
  await web.writeAcl([{ agent: other, commands: [['df', '-h']] }])
  const before = await readFile(web.aclFile, 'utf8')
  await web.start()
  assert.match(web.ready, /\nThe ACL allows 2 commands$/m)
  assert.ok((await readFile(web.aclFile, 'utf8')).startsWith(before.trimEnd()))
  assert.equal((await ops.exec('web', ['uname', '-r'])).status, 0)
})

test('the operator refuses a revoked, expired or used-up key, a copied host and a wrong name', async (t) => {
  const all = await fleet(t)
  const { mesh, ops } = all
  const token = await tokenOf(ops, '--name', 'web[1-2]', '--uses', '1')
  const first = hostWith(all, 'first', token)
  await first.start()
  assert.match(
    await refusalOf(hostWith(all, 'second', token)),
    /^x0xd: the enrolment key [0-9a-f]{16} is used up: 1 of 1 hosts have enrolled$/m,
  )
  const more = await tokenOf(ops, '--name', 'web[1-2]', '--uses', '2')
  assert.match(
    await refusalOf(hostWith(all, 'named', more, '--enrol-as', 'web1')),
    /^x0xd: the name web1 is taken by another host of the operator$/m,
  )
  assert.match(await refusalOf(hostWith(all, 'unnamed', more, '--enrol-as', 'db1')), /^x0xd: the name "db1" is not one of web\[1-2\]$/m)
  // An image of a host, or of a disk with its keys.
  const copy = hostWith(all, 'copy', more)
  await mkdir(copy.dir, { mode: 0o700 })
  for (const name of ['agent.key', 'machine.key']) await cp(join(first.dir, name), join(copy.dir, name))
  await first.stop()
  assert.match(
    await refusalOf(copy),
    /^x0xd: these machine keys were already enrolled as web1; a cloned image must be initialised again \(delete the data directory\)$/m,
  )
  const { id } = (await keysOf(ops))[1]!
  assert.equal(await ops.ok('enrol', 'revoke', id.slice(0, 8)), `${id}: revoked\n`)
  const late = hostWith(all, 'late', more)
  assert.match(await refusalOf(late), /^x0xd: the enrolment key [0-9a-f]{16} was revoked$/m)
  // The next start without the token is an ordinary start.
  const plain = mesh.add('plain')
  await copyFiles(late, plain)
  await plain.start()
  // Sets the expiry time of the key to the past.
  const expired = await tokenOf(ops)
  await ops.stop()
  const file = join(ops.dir, 'enrol-keys.json')
  const keys = JSON.parse(await readFile(file, 'utf8')) as { keys: { expires_at_ms: number }[] }
  keys.keys.at(-1)!.expires_at_ms = Date.now() - 1
  await writeFile(file, JSON.stringify(keys))
  await ops.start()
  assert.match(
    await refusalOf(hostWith(all, 'expired', expired)),
    /^x0xd: the enrolment key [0-9a-f]{16} expired at \S+, and the clock of the operator says \S+$/m,
  )
  const audit = (await ops.cli(['audit', 'tail', '--outgoing', '--json', '--lines', '50'])).stdout.toString()
  for (const reason of ['used_up', 'name_taken', 'name_unknown', 'already_enrolled', 'revoked', 'expired'])
    assert.match(audit, new RegExp(`enrolment_refused.*${reason}: `))
})

test('a false operator at the right address gets nothing, because its keys differ from those in the token', async (t) => {
  const all = await fleet(t)
  const { mesh, ops } = all
  const mallory = mesh.add('mallory')
  await mallory.start()
  const token = decodeEnrolToken(await tokenOf(ops))
  // The address of the operator leads to mallory, as with a hostile bootstrap server or name server.
  const suffix = await ops.peerSuffix()
  const misled = hostWith(all, 'misled', encodeEnrolToken({ ...token, addresses: [`${mallory.multiaddr}${suffix}`] }))
  const starting = misled.start().catch(() => undefined)
  await until(
    'the host has asked twice',
    async () => ((await misled.log().catch(() => '')).match(/waiting for the operator/g) ?? []).length >= 2,
  )
  // The right machine of the operator with another agent.
  const other = hostWith(all, 'other', encodeEnrolToken({ ...token, agentId: mallory.agentId }))
  const asking = other.start().catch(() => undefined)
  await until('the other has asked', async () => (await other.log().catch(() => '')).includes('waiting for the operator'))
  assert.match(await other.log(), /is agent [0-9a-f]{8}, not [0-9a-f]{8}/)
  for (const host of [misled, other]) assert.equal(await host.stop(), 0)
  await Promise.all([starting, asking])
  for (const daemon of [ops, mallory]) assert.deepEqual((await daemon.json<{ contacts: unknown[] }>('contacts', 'list')).contacts, [])
  assert.deepEqual(await hostsOf(ops), [])
})

test('a path that refuses connections only delays the enrolment, and the host is enrolled once', async (t) => {
  const all = await fleet(t)
  const { ops } = all
  const proxy = await new CuttableProxy(() => Number(ops.multiaddr.split('/').at(-1))).listen()
  t.after(async () => proxy.close())
  proxy.refuse()
  const token = await tokenOf(ops, '--address', `/ip4/127.0.0.1/tcp/${proxy.port}`)
  const host = hostWith(all, 'host', token)
  const starting = host.start()
  await until('the host waits', async () => (await host.log().catch(() => '')).includes('waiting for the operator'))
  proxy.allow()
  await starting
  assert.deepEqual(await hostsOf(ops), ['host'])
})

test('a hostile relay reads no secret, and its changes, drops and repeats only delay the enrolment', async (t) => {
  const relay = await new HostileRelay().start(t)
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const ops = mesh.add('ops')
  const useRelay = async ({ dir }: TestDaemon): Promise<void> => {
    await mkdir(dir, { mode: 0o700 })
    await writeFile(join(dir, 'config.toml'), `relays = ${JSON.stringify(relay.addresses)}\n`, { mode: 0o600 })
  }
  await useRelay(ops)
  await ops.start()
  const through = await until('the operator is at the relay', async () => {
    const { addresses } = await ops.get<{ addresses: string[] }>('/agent')
    return addresses.find((address) => address.includes('/p2p-circuit/')) ?? null
  })
  const token = await tokenOf(ops, '--address', through)
  let tricks = 0
  const ways: readonly ((chunk: Uint8Array) => readonly Uint8Array[])[] = [
    (chunk) => [Uint8Array.from(chunk, (byte, at) => (at === 37 % chunk.length ? byte ^ 1 : byte))],
    () => [],
    (chunk) => [chunk, chunk],
  ]
  // Disturbs each carried connection at another place, until each trick was used.
  relay.tamper = (chunk, index) => {
    const way = ways[tricks]
    if (way === undefined || index !== 6 + tricks) return [chunk]
    tricks += 1
    return way(chunk)
  }
  const host = hostWith({ mesh }, 'host', token)
  await useRelay(host)
  await host.start()
  assert.equal(tricks, ways.length)
  assert.ok(((await host.log()).match(/waiting for the operator/g) ?? []).length > 0)
  assert.deepEqual(await hostsOf(ops), ['host'])
  assert.equal((await keysOf(ops))[0]!.uses_left, 0)
  const { secret } = decodeEnrolToken(token)
  const seen = Buffer.concat(relay.seen)
  assert.ok(seen.length > 10_000)
  for (const part of [Buffer.from(secret), Buffer.from(enrolKeyId(secret), 'hex'), Buffer.from('x0x-enrl-v1')])
    assert.ok(!seen.includes(part))
})

test('while the operator is down the host waits and says so, and it is enrolled afterwards', async (t) => {
  const all = await fleet(t)
  const { ops } = all
  const token = await tokenOf(ops)
  await ops.stop()
  const host = hostWith(all, 'host', token)
  const starting = host.start()
  await until('the host waits', async () =>
    /^x0xd: waiting for the operator: 127\.0\.0\.1:\d+: connection refused; next try in \d+ s$/m.test(await host.log().catch(() => '')),
  )
  await ops.start()
  await starting
  assert.deepEqual(await hostsOf(ops), ['host'])
})

test('a host that is killed while it waits continues at its next start, even without the token', async (t) => {
  const all = await fleet(t)
  const { ops, mesh } = all
  const token = await tokenOf(ops)
  await ops.stop()
  const host = hostWith(all, 'host', token)
  const starting = host.start().catch(() => undefined)
  await until('the host waits', async () => (await host.log().catch(() => '')).includes('waiting for the operator'))
  await host.stop('SIGKILL')
  await starting
  await ops.start()
  const again = mesh.add('again')
  await copyFiles(host, again)
  await again.start()
  assert.deepEqual(await hostsOf(ops), ['again'])
})

test('a host that is killed during its enrolment is enrolled once, and its ACL gets the entries once', async (t) => {
  const all = await fleet(t)
  const { ops, allow } = all
  const token = await tokenOf(ops, '--uses', '2', '--allow', allow)
  const host = hostWith(all, 'host', token)
  await host.start()
  await host.stop()
  const keysFile = join(ops.dir, 'enrol-keys.json')
  const stateFile = join(host.dir, 'enrolment.json')
  const acl = await readFile(host.aclFile, 'utf8')
  const unconfirmed = async (): Promise<void> => {
    await ops.stop()
    await writeFile(keysFile, (await readFile(keysFile, 'utf8')).replace('"confirmed": true', '"confirmed": false'))
    await ops.start()
    assert.deepEqual(await hostsOf(ops), ['host?'])
  }
  // Killed before it wrote its files, and killed before it reported to the operator.
  for (const before of [
    { state: 'pending', token, attempt: null },
    { state: 'written', token },
  ]) {
    await unconfirmed()
    const done = JSON.parse(await enrolmentFile(host)) as Record<string, unknown>
    await writeFile(stateFile, JSON.stringify({ ...done, ...before }), { mode: 0o600 })
    await host.start()
    assert.deepEqual(await hostsOf(ops), ['host'])
    assert.equal(await readFile(host.aclFile, 'utf8'), acl)
    assert.equal((await ops.exec('host', ['uname', '-r'])).status, 0)
    await host.stop()
  }
  assert.equal((await keysOf(ops))[0]!.uses_left, 1)
})

test('exactly eight of ten hosts are enrolled with eight uses, even if the operator restarts', async (t) => {
  const all = await fleet(t)
  const { ops, allow } = all
  const token = await tokenOf(ops, '--uses', '8', '--name', 'web[1-8]', '--label', 'role=web', '--allow', allow)
  const hosts = Array.from({ length: 10 }, (_, index) => hostWith(all, `h${index}`, token))
  const starting = hosts.map(async (host) =>
    host.start().then(
      () => true,
      () => false,
    ),
  )
  await until('the first host is there', async () => (await hostsOf(ops)).length > 0)
  await ops.restart('SIGKILL')
  const enrolled = (await Promise.all(starting)).filter(Boolean)
  assert.equal(enrolled.length, 8)
  const names = await hostsOf(ops)
  assert.deepEqual(names.toSorted(), ['web1', 'web2', 'web3', 'web4', 'web5', 'web6', 'web7', 'web8'])
  for (const host of hosts.filter(({ running }) => !running)) assert.match(await host.log(), /is used up: 8 of 8 hosts have enrolled/)
  for (const host of hosts.filter(({ running }) => !running)) await host.stop()
  const ran = await ops.cli(['exec', 'role=web', '--group', '--', 'uname', '-r'])
  assert.equal(ran.status, 0, ran.stderr)
  assert.match(ran.stdout.toString(), /^web\[1-8\] \(8\): /)
})

test('--help lists --enrol', async () => {
  const help = await runDaemonCommand(['--help'])
  assert.match(help.stdout, /--enrol <token>/)
  assert.equal(Object.keys(cleanEnvironment()).includes('X0X_ENROL'), false)
})
