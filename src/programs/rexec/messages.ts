import { shellWord } from '../../base/format.ts'
import type { Environment } from '../../base/runtime.ts'
import { SOCKET_VARIABLE, consoleSockets } from '../../base/unix-sockets.ts'

/** Exit status if no host listens or a command could not run. */
export const EXIT_NO_HOST = 127

export const tell = (text: string): void => void process.stderr.write(`${text}\n`)

/** Other implementations of clients rely on the first line. */
export const noHost = (env: Environment): number => {
  const { own, shared } = consoleSockets(env, process.geteuid?.() ?? 0)
  const named = env[SOCKET_VARIABLE] ? `${SOCKET_VARIABLE}=${shellWord(env[SOCKET_VARIABLE])} ` : ''
  const places = [own, shared].filter((path) => path !== null).join(' and ')
  tell(`HOST NOT FOUND\n  no console of this user listens at ${places}\n  Try, in another terminal: ${named}x0x console`)
  return EXIT_NO_HOST
}
