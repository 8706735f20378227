import assert from 'node:assert/strict'
import { test } from 'node:test'

import { machineNamed, machinesOf } from '../../src/clients/machines.ts'

const id = (digits: string): string => digits.padEnd(64, '0')
const [BOB, EVE] = [id('b0b'), id('e7e')]
const [PINNED, SEEN, OTHER] = [id('aaaaaa1'), id('aaaaaa2'), id('cccccc')]
const CONTACTS = [{ name: 'bob', agent_id: BOB, machines: [PINNED] }]
const PEERS = [
  { agent_id: BOB, machine_id: SEEN, name: 'laptop' },
  { agent_id: EVE, machine_id: OTHER, name: 'laptop' },
  { agent_id: null, machine_id: id('dddddd'), name: null },
]

test('a machine is found by its ID, by the start of its ID, or by its name, among those of the agent', () => {
  const ofBob = machinesOf('bob', CONTACTS, PEERS)
  assert.deepEqual(
    ofBob.map(({ machine_id }) => machine_id),
    [PINNED, SEEN],
  )
  for (const agent of [BOB, BOB.slice(0, 6)]) assert.deepEqual(machinesOf(agent, CONTACTS, PEERS), ofBob)
  assert.deepEqual(machinesOf('nobody', CONTACTS, PEERS), [], 'machines of others are none of theirs')
  assert.deepEqual(
    machinesOf(EVE, CONTACTS, PEERS).map(({ machine_id }) => machine_id),
    [OTHER],
  )
  const said = [id('f00'), 'aaaaaa1', 'aaaaaa2', 'laptop'].map((text) => machineNamed(text, ofBob))
  assert.deepEqual(said, [id('f00'), PINNED, SEEN, SEEN], 'a stranger who calls itself so is not meant')
})

test("an unknown, short or ambiguous machine is refused with a list of the agent's machines", () => {
  const ofBob = machinesOf('bob', CONTACTS, PEERS)
  for (const text of ['cccccc', 'aaaaa', '', 'desk'])
    assert.throws(() => machineNamed(text, ofBob), {
      code: 'bad_request',
      message: new RegExp(`no machine of this agent.*known: ${PINNED}, ${SEEN}$`),
    })
  assert.throws(() => machineNamed('aaaaaa', ofBob), { code: 'bad_request', message: /could be several; known: a+1/ })
  assert.throws(() => machineNamed('aaaaaa', []), { message: /no machine of this agent is known: use all 64 characters$/ })
})
