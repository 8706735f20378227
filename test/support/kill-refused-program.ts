/** A minimal daemon without root. Arguments: the containment, then an argv. Kills the run on input and prints how it ended. */
import { systemClock } from '../../src/base/clock.ts'
import { ProcessTrees } from '../../src/process/process-trees.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { startProcess } from '../../src/process/running-process.ts'
import { permitFor } from './permit.ts'
import { silent } from './processes.ts'

const cleanup = new CleanupProcess({ log: silent })
cleanup.start()
const warnings: string[] = []
const handlers = { onOutput: () => undefined, onWarning: (kind: string) => warnings.push(kind) }
const [choice, ...argv] = process.argv.slice(2)
const trees = await ProcessTrees.open({ cleanup, log: silent }, { choice: choice === 'cgroup' ? choice : 'group', dataDir: null })
const components = { trees, clock: systemClock, cleanup, handlers }
const started = await startProcess(permitFor(argv), components, { stdin: false })
if (started.kind !== 'started') throw new Error(started.detail)
started.process.resume()
process.stdout.write(`${started.process.pid}\n`)
process.stdin.once('data', () => started.process.kill())
const { code, signal, truncated } = await started.process.ended
process.stdout.write(`${JSON.stringify({ code, signal, truncated, warnings })}\n`)
await trees.stop()
process.exit(0)
