import fs from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'

// `x0x keys rotate` in the directory that is the argument, killed by SIGKILL between the statement and the key: before agent.key is replaced.

const { rename } = fs
fs.rename = async (from, to) => {
  if (String(to).endsWith('/agent.key')) process.kill(process.pid, 'SIGKILL')
  return rename(from, to)
}
syncBuiltinESMExports()

const { loadPrimitives } = await import('../../src/identity/primitives.ts')
const { pathsIn } = await import('../../src/clients/paths.ts')
const { rotateAgentKey } = await import('../../src/supervision/rotate-agent-key.ts')
const { silent } = await import('./processes.ts')

await loadPrimitives()
await rotateAgentKey({ log: silent }, pathsIn(process.argv[2]!))
