import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { test } from 'node:test'

import fc from 'fast-check'

import { OutputStore, type SpillableOutput } from '../../../../src/programs/x0x/fleet/output-store.ts'
import { SpillFile, type Extent } from '../../../../src/programs/x0x/fleet/output-store.ts'
import { NO_DISK, smallDisk } from '../../../support/small-disk.ts'
import { tempDir } from '../../../support/temp-dir.ts'

const readAll = async (output: SpillableOutput): Promise<Buffer> => {
  const parts: Uint8Array[] = []
  for await (const part of output.read()) parts.push(part)
  return Buffer.concat(parts)
}

test('output that exceeds memory is read back unchanged from an unlinked file', async (t) => {
  const directory = await tempDir(t)
  const sizes = fc.array(fc.record({ host: fc.nat(4), length: fc.nat(300) }), { maxLength: 40 })
  await fc.assert(
    fc.asyncProperty(sizes, fc.nat(2_000), async (writes, max) => {
      const held = new OutputStore({ file: new SpillFile({ directory }) }, { max })
      const outputs = Array.from({ length: 5 }, () => ({ output: held.hold(), bytes: [] as Buffer[] }))
      for (const { host, length } of writes) {
        const { output, bytes } = outputs[host]!
        bytes.push(randomBytes(length))
        await output.add(bytes.at(-1)!)
      }
      assert.deepEqual(await readdir(directory), [])
      for (const { output, bytes } of outputs) {
        const whole = Buffer.concat(bytes)
        assert.deepEqual([output.length, output.lost], [whole.length, 0])
        assert.equal(output.digest(), createHash('sha256').update(whole).digest('hex'))
        assert.deepEqual(await readAll(output), whole)
      }
      await held.close()
    }),
    { numRuns: 60 },
  )
})

test('the spill file reuses the space of dropped outputs', async (t) => {
  const directory = await tempDir(t)
  const file = new SpillFile({ directory })
  const held = new OutputStore({ file }, { max: 0 })
  for (let round = 0; round < 10; round += 1) {
    const output = held.hold()
    await output.add(randomBytes(50_000))
    output.drop()
  }
  assert.deepEqual(await file.write(randomBytes(1_000)), { at: 0, length: 1_000 })
  assert.deepEqual(await file.write(randomBytes(60_000)), { at: 50_000, length: 60_000 })
  await held.close()
})

test('a limited output keeps its beginning and counts all bytes', async () => {
  const held = new OutputStore({ file: new SpillFile() })
  const output = held.hold(5)
  await output.add(Buffer.from('abc'))
  await output.add(Buffer.from('defg'))
  await output.add(Buffer.from('h'))
  assert.deepEqual([output.length, output.lost, String(await readAll(output))], [8, 3, 'abcde'])
  await held.close()
})

test('a full disk is reported, and bytes stored before are not lost', async (t) => {
  const directory = await smallDisk(t, 64)
  if (directory === null) return t.skip(NO_DISK)
  const held = new OutputStore({ file: new SpillFile({ directory }) }, { max: 10 })
  const [memory, file] = [held.hold(), held.hold()]
  await memory.add(Buffer.from('0123456789'))
  for (let at = 0; at < 8; at += 1) await file.add(Buffer.alloc(16 * 1024, at))
  assert.match(String(held.problem), /ENOSPC/)
  assert.ok(file.lost > 0 && file.lost < file.length)
  assert.equal((await readAll(file)).length, file.length - file.lost)
  assert.equal(String(await readAll(memory)), '0123456789')
  await held.close()
})

/** A disk that fails after the first byte of each extent. */
class FailingFile extends SpillFile {
  override async *read(extent: Extent): AsyncGenerator<Uint8Array, void, undefined> {
    yield* super.read({ ...extent, length: 1 })
    throw new Error('EIO: i/o error, read')
  }
}

test('bytes that cannot be read back count as lost, and the error is reported', async (t) => {
  const held = new OutputStore({ file: new FailingFile({ directory: await tempDir(t) }) }, { max: 3 })
  const output = held.hold()
  await output.add(Buffer.from('abc'))
  await output.add(Buffer.from('defg'))
  assert.equal(String(await readAll(output)), 'abcd')
  assert.deepEqual([output.length, output.lost, held.problem], [7, 3, 'EIO: i/o error, read'])
  await held.close()
})
