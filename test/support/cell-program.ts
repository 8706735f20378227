/** Runs a program in the strongest available containment. Prints the program's cgroup, the containment and the exit code. */
import { ProcessTrees } from '../../src/process/process-trees.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { spawnPermitted } from '../../src/process/spawn.ts'
import { permitFor } from './permit.ts'
import { silent } from './processes.ts'

const trees = await ProcessTrees.open({ cleanup: null, log: silent }, { choice: 'auto', dataDir: null })
const cleanup = new CleanupProcess({ log: silent })
cleanup.start()
const result = await spawnPermitted(permitFor(['cat', '/proc/self/cgroup']), { trees, cleanup }, { stdin: false })
if (result.kind !== 'spawned') throw new Error(result.detail)
for await (const chunk of result.child.stdout) process.stdout.write(chunk as Buffer)
const { code } = await result.child.exited
process.stdout.write(`${result.child.tree.containment} ${code}\n`)
await cleanup.stop()
await trees.stop()
