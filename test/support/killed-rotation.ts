import fs from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'

// Runs `x0x keys rotate` in the given directory, and kills it after it writes the statement, before it replaces agent.key.

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
