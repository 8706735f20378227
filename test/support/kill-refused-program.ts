/** A daemon in small, which is not root: starts what its arguments say, kills it, and prints how the run ended. */
import { systemClock } from '../../src/base/clock.ts'
import { Guardian } from '../../src/process/guardian.ts'
import { startProcess } from '../../src/process/running-process.ts'
import { permitFor } from './permit.ts'
import { groupCells, silent } from './processes.ts'

const guardian = new Guardian({ log: silent })
guardian.start()
const warnings: string[] = []
const handlers = { onOutput: () => undefined, onWarning: (kind: string) => warnings.push(kind) }
const components = { cells: await groupCells(), clock: systemClock, guardian, handlers }
const started = await startProcess(permitFor(process.argv.slice(2)), components, { stdin: false })
if (started.kind !== 'started') throw new Error(started.detail)
started.process.resume()
process.stdout.write(`${started.process.pid}\n`)
process.stdin.once('data', () => started.process.kill())
const { code, signal, truncated } = await started.process.ended
process.stdout.write(`${JSON.stringify({ code, signal, truncated, warnings })}\n`)
process.exit(0)
