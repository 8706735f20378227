import type { Environment } from '../../base/environment.ts'
import { openConsole } from '../../local-api/console-link.ts'
import { EXIT_NO_HOST, write } from './tell.ts'

/** Prints whether a host listens; one that takes a connection runs, whether it knows a ping or not. */
export const checkHost = async (env: Environment): Promise<number> => {
  const link = await openConsole(env)
  link?.close()
  await write(link === null ? 'HOST NOT FOUND\n' : 'HOST RUNNING\n')
  return link === null ? EXIT_NO_HOST : 0
}
