import assert from 'node:assert/strict'
import { test } from 'node:test'

import { MeshOfDaemons } from '../../support/mesh-of-daemons.ts'

const MACHINE = 'a'.repeat(64)

/** Commands that take an agent, with an unknown agent. */
const COMMANDS: readonly (readonly string[])[] = [
  ['exec', 'carol', '--', 'true'],
  ['exec', 'carol,dave', '--', 'true'],
  ['exec', '--detach', 'carol', '--', 'true'],
  ['exec', '@web', '--', 'true'],
  ['exec', 'role=web', '--', 'true'],
  ['ping', 'carol'],
  ['doctor', 'carol'],
  ['direct', 'send', 'carol', 'hello'],
  ['acl', 'mine', 'carol'],
  ['acl', 'explain', '--last', '--agent', 'carol'],
  ['acl', 'suggest', '--agent', 'carol'],
  ['trust', 'evaluate', 'carol', MACHINE],
  ['contacts', 'trust', 'carol', 'trusted'],
  ['contacts', 'pin', 'carol', MACHINE],
  ['contacts', 'unpin', 'carol', MACHINE],
  ['contacts', 'label', 'carol', 'role=web'],
  ['contacts', 'remove', 'carol'],
  ['contacts', 'select', 'carol'],
  ['contacts', 'select', '@web'],
  ['contacts', 'select', 'role=web'],
]

test('an unknown agent, group or label ends every command with status 255', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const alice = mesh.add('alice')
  await alice.start()
  const ended: [string, number | null][] = []
  for (const argv of COMMANDS) {
    const { status, stderr } = await alice.cli(argv)
    if (status !== 255) ended.push([`${argv.join(' ')}: ${stderr}`, status])
  }
  assert.deepEqual(ended, [])
})
