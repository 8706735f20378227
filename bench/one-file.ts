import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { CLI } from '../test/support/mesh-of-daemons.ts'
import { startTrio, TRUE } from './pair.ts'
import type { Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved } from './stats.ts'

const FILE = join(import.meta.dirname, '..', 'dist', 'packages', `x0x-linux-${process.arch}`)

/** The command line as one file beside the one that Node runs. */
export const oneFile = async ({ mesh, plan }: Stage): Promise<Omit<Section, 'title'>> => {
  if (!existsSync(FILE)) throw new Error(`${FILE} is missing: npm run packages`)
  const { alice, client } = await startTrio(mesh, [TRUE])
  const words = ['--data-dir', alice.dir, 'exec', 'bob', '--', ...TRUE]
  const run = promisify(execFile)
  const { ours, theirs, limit } = await interleaved(plan.rounds, {
    ours: async () => run(FILE, words),
    theirs: async () => run(process.execPath, [CLI, ...words]),
    limit: async () => run(FILE, ['--version']),
  })
  client.close()
  const line = { what: 'warm exec, CLI as one file, whole process', unit: 'ms', target: '≤ 0.5', limitOf: 'its `--version`' } as const
  return { intro: '`/bin/true` on a linked peer.', rows: [{ ...line, ours, theirs, limit, peer: 'the same under Node' }] }
}
