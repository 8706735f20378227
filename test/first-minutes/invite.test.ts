import assert from 'node:assert/strict'
import { test } from 'node:test'

import { makeInvitation, makeReply, readInvitation } from '../../src/trust/invitation.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { talkTo } from '../support/dialogue.ts'
import { MeshOfDaemons, type TestDaemon } from '../support/mesh-of-daemons.ts'

const contactsOf = async (daemon: TestDaemon) =>
  (await daemon.get<{ contacts: { name: string; trust: string; machines: string[]; agent_id: string }[] }>('/contacts')).contacts

/** The line as mail programs wrap and quote it, and as quoted-printable. */
const wrapped = (line: string): string[] => (line.match(/.{1,74}/g) ?? []).map((part) => `> ${part}\u00ad`)
const quotedPrintable = (line: string): string[] => (line.match(/.{1,75}/g) ?? []).map((part) => `${part}=`)

test('invite and join pair two machines, unless the lines are replaced or a user presses Ctrl-C', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const [bob, alice] = [mesh.add('bob'), mesh.add('alice')]
  await Promise.all([bob.start(), alice.start()])
  const unchanged = async (): Promise<void> => assert.deepEqual([await contactsOf(bob), await contactsOf(alice)], [[], []])
  const machine = 'e'.repeat(64)
  const mallory = {
    agent_id: 'e'.repeat(64),
    machine_id: machine,
    name: 'bob',
    addresses: [`/ip4/127.0.0.1/tcp/9/p2p/${peerIdOf(machine)}`],
  }

  await t.test('join detects that a man in the middle replaced both lines, and nothing changes', async () => {
    const invite = talkTo([...bob.selector, 'invite', 'alice'])
    const invitation = await invite.until(/x0x:\/\/invite\/\S+/)
    const join = talkTo([...alice.selector, 'join', makeInvitation(mallory, Date.now()).line, '--as', 'bob'])
    await join.until(/x0x:\/\/reply\/\S+/)
    await invite.type(makeReply(mallory, readInvitation(invitation, Date.now()).encoded).line)
    const code = await invite.until(/\w{4}-\w{4}-\w{4}/)
    await join.type(code)
    const { status, text } = await join.ended
    assert.equal(status, 1)
    assert.match(text, /a line was changed on its way/)
    await invite.type('no')
    assert.equal((await invite.ended).status, 1)
    assert.match((await invite.ended).text, /the other machine refused: nothing was changed/)
    await unchanged()
  })

  await t.test('join and invite refuse a line of the agent itself before they show a code', async () => {
    const invite = talkTo([...bob.selector, 'invite', 'alice'])
    const line = await invite.until(/x0x:\/\/invite\/\S+/)
    const join = talkTo([...bob.selector, 'join', line, '--as', 'bob'])
    const itself = /this line is from this agent itself[^]*add --name NAME/
    assert.equal((await join.ended).status, 1)
    assert.match((await join.ended).text, itself)
    const { agent_id, machine_id, name, addresses } = await bob.get<typeof mallory>('/agent')
    await invite.type(makeReply({ agent_id, machine_id, name, addresses }, readInvitation(line, Date.now()).encoded).line)
    assert.equal((await invite.ended).status, 1)
    assert.match((await invite.ended).text, itself)
    await unchanged()
  })

  await t.test('Ctrl-C at a question of invite or join leaves both machines unchanged', async () => {
    const invite = talkTo([...bob.selector, 'invite', 'alice'])
    const line = await invite.until(/x0x:\/\/invite\/\S+/)
    const join = talkTo([...alice.selector, 'join', line])
    await invite.type(await join.until(/x0x:\/\/reply\/\S+/))
    await invite.until(/\w{4}-\w{4}-\w{4}/)
    for (const one of [invite, join]) {
      one.interrupt()
      const { status, text } = await one.ended
      assert.equal(status, 1)
      assert.match(text, /given up: nothing was changed/)
    }
    await unchanged()
  })

  await t.test('invite and join succeed despite wrapped lines and typing errors, and a replayed reply is refused', async () => {
    const invite = talkTo([...bob.selector, 'invite', 'alice', '--', 'df', '-h'])
    const invitation = await invite.until(/x0x:\/\/invite\/\S+/)
    const join = talkTo([...alice.selector, 'join', ...wrapped(invitation), '--as', 'bob'])
    const reply = await join.until(/x0x:\/\/reply\/\S+/)
    await invite.type(reply.slice(0, -3))
    await invite.until(/the line is incomplete/)
    for (const line of ['', ...quotedPrintable(reply)]) await invite.type(line)
    const code = await invite.until(/\w{4}-\w{4}-\w{4}/)
    for (const typed of ['', code.slice(1)]) await join.type(typed)
    await join.until(/the code has 12 characters, and you typed 11/)
    await join.type(code)
    await invite.type(await join.until(/(?<=Read this back aloud: {2})\w{4}/))
    assert.deepEqual([(await invite.ended).status, (await join.ended).status], [0, 0])
    assert.match((await invite.ended).text, /Next, when the entry is in the ACL: x0xd --data-dir \S+ --replace &/)
    const seen = async (daemon: TestDaemon) =>
      (await contactsOf(daemon)).map(({ name, trust, machines, agent_id }) => ({ name, trust, machines, agent_id }))
    assert.deepEqual(await seen(bob), [{ name: 'alice', trust: 'trusted', machines: [alice.machineId], agent_id: alice.agentId }])
    assert.deepEqual(await seen(alice), [{ name: 'bob', trust: 'trusted', machines: [bob.machineId], agent_id: bob.agentId }])
    const replayed = talkTo([...bob.selector, 'invite', 'alice'])
    for (let n = 0; n < 3; n++) await replayed.type(reply)
    assert.equal((await replayed.ended).status, 2)
    assert.match(
      (await replayed.ended).text,
      /this answers another invitation[^]*Nothing was changed on this machine\. Start again with x0x invite/,
    )
  })
})
