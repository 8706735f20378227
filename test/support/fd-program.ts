/** Runs the argv after the first argument in that containment, with the descriptors of a hostile parent. Prints its output. */
import { systemClock } from '../../src/base/clock.ts'
import { ProcessTrees } from '../../src/process/process-trees.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { startProcess } from '../../src/process/running-process.ts'
import type { ContainmentChoice } from '../../src/protocol/reasons.ts'
import { permitFor } from './permit.ts'
import { silent } from './processes.ts'

const [choice = 'group', ...argv] = process.argv.slice(2)
const trees = await ProcessTrees.open({ cleanup: null, log: silent }, { choice: choice as ContainmentChoice, dataDir: null })
const cleanup = new CleanupProcess({ log: silent })
cleanup.start()
const handlers = { onOutput: (_stream: string, data: Uint8Array) => process.stdout.write(data), onWarning: () => {} }
const started = await startProcess(
  permitFor(argv.length > 0 ? argv : ['ls', '/proc/self/fd']),
  { trees, clock: systemClock, cleanup, handlers },
  { stdin: false },
)
if (started.kind !== 'started') throw new Error(started.detail)
started.process.resume()
await started.process.ended
await cleanup.stop()
await trees.stop()
