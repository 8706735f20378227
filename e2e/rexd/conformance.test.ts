import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'

import { TRANSPORTS, type Peer, type Transport } from './peer.ts'
import type { Requirement } from './requirement.ts'
import { NAMES, REQUIREMENTS } from './requirements.ts'
import { COMMON } from './server.ts'

// Every row of the table over every transport that there is.

test('every method, field, answer, event and error has a row that is about it, and every row is about what there is', () => {
  const named = REQUIREMENTS.flatMap(({ names }) => names)
  assert.ok(NAMES.length > 100)
  assert.deepEqual(
    {
      withoutRow: NAMES.filter((name) => !named.includes(name)),
      unknown: [...new Set(named)].filter((name) => !NAMES.includes(name)),
    },
    { withoutRow: [], unknown: [] },
  )
})

test('no two rows have the same id', () => {
  const ids = REQUIREMENTS.map(({ id }) => id)
  assert.deepEqual(
    ids.filter((id, at) => ids.indexOf(id) !== at),
    [],
  )
})

const holdsOver = ({ name }: Transport, { transports }: Requirement): boolean => transports === null || transports.includes(name)

for (const transport of TRANSPORTS) {
  describe(`over ${transport.name}`, () => {
    let shared: Promise<Peer> | null = null
    const cleaners: (() => unknown)[] = []
    after(async () => {
      try {
        await (await shared)?.close()
      } finally {
        for (const clean of cleaners) await clean()
      }
    })

    for (const row of REQUIREMENTS.filter((one) => holdsOver(transport, one))) {
      test(`${row.id}: ${row.title}`, async (t) => {
        if (row.config === null) {
          shared ??= transport.open({ after: (clean) => cleaners.push(clean as () => unknown) }, COMMON)
          return row.test(await shared)
        }
        const peer = await transport.open(t, row.config)
        await row.test(peer)
        await peer.close()
      })
    }
  })
}
