// Runs one command and says how it went: `node docs/examples/run-command.ts [ssh -T server-a rexd --stdio]`.
import { connect, RexdError, stdio } from 'x0x/client'
import { anyRexd } from './local-rexd.ts'

const { command, remove } = await anyRexd()
const client = await connect({ transport: stdio({ command }) })
try {
  const session = await client.open({ clientName: 'run-command' })
  console.log(`rexd ${session.serverVersion}, roots ${session.workspaceRoots.length}, may ${session.capabilities.join(' ')}`)

  const result = await session.run(['uname', '-s'], { timeoutMs: 10_000 })
  console.log(`uname ended with ${result.exitCode}: ${result.stdoutText.trim()}`)

  // An exit code is a result; what the server refuses is an error.
  const failed = await session.run(['ls', 'no-such-file'])
  console.log(`ls ended with ${failed.exitCode}`)
  await session.run(['no-such-program']).catch((error: unknown) => {
    if (!(error instanceof RexdError)) throw error
    console.log(`refused: ${error.name} (${error.code})`)
  })
} finally {
  await client.close()
  await remove()
}
