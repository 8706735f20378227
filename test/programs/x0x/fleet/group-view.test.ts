import assert from 'node:assert/strict'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { test } from 'node:test'

import { DiffView } from '../../../../src/programs/x0x/fleet/group-view.ts'
import { writeGroup } from '../../../../src/programs/x0x/fleet/group-view.ts'
import { OutputStore } from '../../../../src/programs/x0x/fleet/output-store.ts'
import { MAX_LINE_PIECE } from '../../../../src/programs/x0x/fleet/lines.ts'
import { ShownLines } from '../../../../src/programs/x0x/fleet/lines.ts'
import { SpillFile } from '../../../../src/programs/x0x/fleet/output-store.ts'
import { hostEnd } from '../../../support/fleet-daemon.ts'

const recorder = () => {
  const writes: string[] = []
  const stdout = new Writable({
    write: (bytes: Buffer, _encoding, done) => {
      writes.push(bytes.toString())
      done()
    },
  })
  const context = { stdout, stderr: stdout, env: {} }
  return { writes, lines: new ShownLines({ context, beside: { clear: () => undefined } }, { raw: false }) }
}

/** The text that is written for an output in these chunks, and the number of writes. */
const written = async (pieces: readonly string[], held = new OutputStore({ file: new SpillFile() })) => {
  const { writes, lines } = recorder()
  const output = held.hold()
  for (const piece of pieces) await output.add(Buffer.from(piece))
  assert.ok(await writeGroup(lines, 'stdout', { text: 'web[1-4] (4)', style: 'bold' }, output))
  await held.close()
  return { text: writes.join(''), writes: writes.length }
}

test('a single line follows its title, and several lines go below it, for any chunk boundaries', async () => {
  const long = 'x'.repeat(MAX_LINE_PIECE)
  for (const [pieces, text] of [
    [[], 'web[1-4] (4):\n'],
    [['a'], 'web[1-4] (4): a\n'],
    [['a', 'b\n'], 'web[1-4] (4): ab\n'],
    [['\n'], 'web[1-4] (4): \n'],
    [['a\n', 'b'], 'web[1-4] (4):\n  a\n  b\n'],
    [[`${long}\n`, `${long}\n`, long, long], `web[1-4] (4):\n${`  ${long}\n`.repeat(4)}`],
  ] as const)
    assert.equal((await written(pieces)).text, text)
})

test('many short lines are written in few writes, both from memory and from the spill file', async () => {
  const all = 'y\n'.repeat(200_000)
  for (const max of [undefined, 100_000]) {
    const held = new OutputStore({ file: new SpillFile() }, max === undefined ? {} : { max })
    const { text, writes } = await written([all.slice(0, 99_999), all.slice(99_999)], held)
    assert.equal(text, `web[1-4] (4):\n${'  y\n'.repeat(200_000)}`)
    assert.ok(writes < 200, `${writes} writes`)
  }
})

/** An output store that can keep no bytes. */
const nowhere = (): OutputStore => {
  const file = new SpillFile({ directory: join(import.meta.dirname, 'not', 'there') })
  return new OutputStore({ file }, { max: 0 })
}

test('an output that could not be stored says so in its place', async () => {
  assert.equal((await written(['a\nb\n'], nowhere())).text, 'web[1-4] (4):\n  … 4 bytes more could not be kept\n')
  const { writes, lines } = recorder()
  const view = new DiffView({ lines, held: nowhere() })
  view.start(['web1', 'web2'])
  for (const [host, text] of [
    ['web1', 'a\nb\n'],
    ['web2', 'c'],
  ] as const) {
    await view.output(host, { type: 'stdout', data: Buffer.from(text) })
    await view.ended(hostEnd(host))
  }
  await view.finish()
  assert.equal(writes.slice(0, 2).join(''), 'web1:\n  … 4 bytes more are not shown\n')
})
