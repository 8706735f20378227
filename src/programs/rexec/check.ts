import type { Environment } from '../../base/runtime.ts'
import { consoleSockets, foreignSocket, onlyOwn } from '../../base/unix-sockets.ts'
import { write } from '../../cli/output.ts'
import { openConsole } from '../../clients/console.ts'
import { EXIT_NO_HOST, tell } from './messages.ts'

/** Prints whether a host listens. A host that accepts a connection counts, even if it knows no ping. */
export const checkHost = async (env: Environment): Promise<number> => {
  const link = await openConsole(env)
  link?.close()
  const { shared } = consoleSockets(env, process.geteuid?.() ?? 0)
  const taken = shared === null ? null : foreignSocket(shared, process.geteuid?.() ?? 0)
  if (link !== null && typeof taken === 'string') tell(`rexec: ${onlyOwn(taken)}`)
  await write(process.stdout, link === null ? 'HOST NOT FOUND\n' : 'HOST RUNNING\n')
  return link === null ? EXIT_NO_HOST : 0
}
