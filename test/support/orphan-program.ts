/** A minimal daemon that starts the given argv. It prints the PIDs of the run and of the cleanup process, and waits to be killed. */
import { systemClock } from '../../src/base/clock.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { startProcess } from '../../src/process/running-process.ts'
import { permitFor } from './permit.ts'
import { groupCells, silent } from './processes.ts'

const cleanup = new CleanupProcess({ log: silent })
cleanup.start()
const handlers = { onOutput: (_stream: string, data: Uint8Array) => process.stdout.write(data), onWarning: () => {} }
const started = await startProcess(
  permitFor(process.argv.slice(2)),
  { trees: await groupCells(cleanup), clock: systemClock, cleanup, handlers },
  { stdin: false },
)
if (started.kind !== 'started') throw new Error(started.detail)
started.process.resume()
process.stdout.write(`pid ${started.process.pid}\n`)
