import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { EnrolKeysAnswer } from '../src/protocol/api/enrolment.ts'
import { decodeEnrolToken, enrolKeyId } from '../src/trust/enrolment-token.ts'
import { HostileBootstrap } from '../test/support/hostile-bootstrap.ts'
import { HostilePath, type PathTrick } from '../test/support/hostile-path.ts'
import { MeshOfDaemons, type TestDaemon, until } from '../test/support/mesh-of-daemons.ts'

// The attacker controls the bootstrap server of a host and the path to the operator's daemon. It can only delay the enrolment.

const ENTRIES = '[[exec.allow]]\ndescription = "ops"\n\n[[exec.allow.commands]]\nargv = ["uname", "-r"]\n'
const TRICKS: readonly PathTrick[] = ['impostor', 'replay', 'swallow']

const contactsOf = async (daemon: TestDaemon): Promise<readonly unknown[]> => {
  const { contacts } = await daemon.json<{ contacts: { name: string; trust: string; agent_id: string; machines: string[] }[] }>(
    'contacts',
    'list',
  )
  return contacts.map(({ name, trust, agent_id, machines }) => [name, trust, agent_id, machines])
}

const contactOf = ({ name, agentId, machineId }: TestDaemon): readonly unknown[] => [name, 'trusted', agentId, [machineId]]

test('a hostile bootstrap server learns no secret, and its false claims, replays and drops only delay the enrolment', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const ops = mesh.add('ops')
  await ops.start()
  const bootstrap = await HostileBootstrap.start(t, ops, `${ops.multiaddr}${await ops.peerSuffix()}`)
  const path = await new HostilePath(Number(ops.multiaddr.split('/').at(-1)), bootstrap.port).listen()
  t.after(async () => path.close())
  const allow = join(mesh.root, 'web.toml')
  await writeFile(allow, ENTRIES)
  const address = `/ip4/127.0.0.1/tcp/${path.port}`
  const { token } = await ops.json<{ token: string }>('enrol', 'create', '--uses', '2', '--allow', allow, '--address', address)
  const keyOf = async () => (await ops.json<EnrolKeysAnswer>('enrol', 'list')).keys[0]!
  const flags = ['--init', '--enrol', token, '--bootstrap', bootstrap.address]
  const [first, host] = [mesh.add('first', { flags }), mesh.add('host', { flags })]
  await first.start()
  path.stopRecording()

  // The attacker replays its recording to the operator and to the next host, and directs the host to itself.
  const waits = async (): Promise<number> => ((await host.log().catch(() => '')).match(/waiting for the operator/g) ?? []).length
  path.trick = TRICKS[0]!
  const given = bootstrap.cardsGiven
  const starting = host.start()
  for (const trick of TRICKS) {
    path.trick = trick
    const before = await waits()
    await until(`the host waits after ${trick}`, async () => path.played.has(trick) && (await waits()) > before)
    assert.deepEqual(await contactsOf(host), [], trick)
  }
  assert.match(await host.log(), /another machine answers at this address/)
  await path.replayToDaemon()
  assert.deepEqual(await contactsOf(ops), [contactOf(first)])
  assert.equal((await keyOf()).uses_left, 1)

  // The host followed the false claims, without effect.
  await until('the host has asked for the card of the claimed operator', () => bootstrap.cardsGiven > given)
  path.trick = null
  await starting
  assert.deepEqual(await contactsOf(host), [contactOf(ops)])
  assert.deepEqual(await contactsOf(ops), [contactOf(first), contactOf(host)])
  const { uses_left, hosts } = await keyOf()
  assert.deepEqual([uses_left, hosts.map(({ confirmed }) => confirmed)], [0, [true, true]])
  assert.equal((await ops.exec('host', ['uname', '-r'])).status, 0)

  await until('the bootstrap server has heard of the host', () =>
    Buffer.concat(bootstrap.received).includes(Buffer.from(host.agentId, 'hex')),
  )
  const seen = Buffer.concat([...bootstrap.received, ...path.seen])
  const { secret } = decodeEnrolToken(token)
  for (const part of [Buffer.from(secret), Buffer.from(enrolKeyId(secret), 'hex'), enrolKeyId(secret), token.slice(6, 60), 'x0x-enrl-v1'])
    assert.ok(!seen.includes(part), `it has seen ${Buffer.from(part).toString('hex')}`)
})
