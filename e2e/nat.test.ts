import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { behindNats } from '../test/support/behind-nats.ts'
import { natProblem } from '../test/support/nat-networks.ts'

// Two private networks, each behind a masquerading NAT, and a public relay. The relay is the only path between them.

/** More than the 128 KiB that a relay of libp2p carries by default. */
const OUTPUT_BYTES = 10 * 1024 * 1024

test(
  'a command between two machines behind NATs returns ten megabytes unchanged through a relay, and peers shows the relay',
  { skip: natProblem() },
  async (t) => {
    const { mesh, ray, alice, bob } = await behindNats(t, ({ root }) => [['cat', join(root, 'output')]])
    const [file, output] = [join(mesh.root, 'output'), randomBytes(OUTPUT_BYTES)]
    await writeFile(file, output)
    const result = await alice.exec(bob, ['cat', file])
    assert.equal(result.status, 0, result.stderr)
    assert.ok(result.stdout.equals(output), `${result.stdout.length} bytes`)
    assert.match(await alice.ok('peers'), /bob +linked .*relayed by ray/)
    assert.match(await alice.ok('ping', 'bob', '--count', '1'), /relayed by machine/)
    const { reach } = await ray.get<{ reach: { carrying: { carried_bytes_total: number; carried: { from: string; to: string }[] } } }>(
      '/diagnostics/mesh',
    )
    assert.ok(reach.carrying.carried_bytes_total > OUTPUT_BYTES)
    assert.ok(reach.carrying.carried.some(({ from, to }) => from === alice.machineId && to === bob.machineId))
  },
)
