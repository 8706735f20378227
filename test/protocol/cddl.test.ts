import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { test } from 'node:test'
import * as port from '../../src/executor-api/messages.ts'
import * as acl from '../../src/policy/mesh/acl-bundle.ts'
import * as approval from '../../src/protocol/wire/approval-statement.ts'
import * as card from '../../src/protocol/wire/card.ts'
import * as detached from '../../src/protocol/wire/detached.ts'
import * as dm from '../../src/protocol/wire/dm.ts'
import * as enrolment from '../../src/protocol/wire/enrolment.ts'
import * as exec from '../../src/protocol/wire/exec.ts'
import * as invitation from '../../src/protocol/wire/invitation.ts'
import * as link from '../../src/protocol/wire/link.ts'
import * as terminal from '../../src/protocol/wire/terminal.ts'

const folder = new URL('../../proto/', import.meta.url)

/** Maps rule names to rules, without comments and white space. */
const rulesOf = (cddl: string): Map<string, string> => {
  const plain = cddl.replaceAll(/;[^\n]*/g, '')
  const rules = [...plain.matchAll(/^([a-z][a-z0-9-]*) =/gm)]
  return new Map(
    rules.map((rule, index) => {
      const end = rules[index + 1]?.index ?? plain.length
      return [rule[1]!, plain.slice(rule.index + rule[0].length, end).replaceAll(/\s+/g, '')]
    }),
  )
}

const declared = (module: object): Map<string, string> =>
  new Map(
    Object.values(module)
      .filter(
        (value): value is { name: string; cddl: string } =>
          typeof value === 'object' && value !== null && 'cddl' in value && 'name' in value,
      )
      .map((message) => [message.name, message.cddl.replaceAll(/\s+/g, '')]),
  )

for (const [file, module] of Object.entries({ acl, approval, card, detached, dm, enrolment, exec, invitation, link, port, terminal })) {
  test(`proto/${file}.cddl describes exactly the messages that the code declares`, async () => {
    const messages = declared(module)
    assert.ok(messages.size > 0)
    assert.deepEqual(rulesOf(await readFile(new URL(`${file}.cddl`, folder), 'utf8')), messages)
  })
}

test('every CDDL file is compared with the code', async () => {
  const files = (await readdir(folder)).filter((name) => name.endsWith('.cddl'))
  assert.deepEqual(files.toSorted(), [
    'acl.cddl',
    'approval.cddl',
    'card.cddl',
    'detached.cddl',
    'dm.cddl',
    'enrolment.cddl',
    'exec.cddl',
    'invitation.cddl',
    'link.cddl',
    'port.cddl',
    'terminal.cddl',
  ])
})
