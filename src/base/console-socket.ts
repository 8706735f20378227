import { lstatSync } from 'node:fs'
import { join } from 'node:path'
import type { Environment } from './environment.ts'
import { AppError, errorText, isMissing } from './errors.ts'
import { octal } from './octal.ts'

/** Where one user's console listens, and its clients look for it. */
export interface ConsoleSockets {
  /** In a directory of the user's own; null: there is none. */
  readonly own: string | null
  /** Where clients of other makes look: in a directory that all users share. Null: only `own` counts. */
  readonly shared: string | null
}

/** Names the socket; for those who have several consoles, and for tests. */
export const SOCKET_VARIABLE = 'REXEC_SOCKET'

export const consoleSockets = (env: Environment, uid: number): ConsoleSockets => {
  const named = env[SOCKET_VARIABLE]
  if (named !== undefined && named !== '') return { own: named, shared: null }
  const runtime = env['XDG_RUNTIME_DIR']
  const own = runtime === undefined || !runtime.startsWith('/') ? null : join(runtime, 'x0x-console', 'console.sock')
  return { own, shared: `/tmp/.rexec-${uid}` }
}

/**
 * Why what stands at this path is not the console of this user, whoever put it there: it is theirs to connect to, and a command line
 * would be told to it. Undefined: nothing stands there; null: it is a socket of this user that no other may connect to.
 */
export const foreignSocket = (path: string, uid: number): string | null | undefined => {
  try {
    const info = lstatSync(path)
    if (!info.isSocket()) return `${path} is no socket; it belongs to uid ${info.uid}`
    if (info.uid !== uid) return `${path} belongs to uid ${info.uid}, not to us (uid ${uid})`
    return (info.mode & 0o077) === 0 ? null : `${path} lets others connect (mode ${octal(info.mode)})`
  } catch (error) {
    return isMissing(error) ? undefined : errorText(error)
  }
}

/** What is said where the host serves its own socket alone; `problem` is why. */
export const onlyOwn = (problem: string): string =>
  `${problem}: clients of other makes, which know that path alone, cannot connect; ours find the other one. Have it removed, then start the host again`

/** What is done about a path that another user has taken. */
export const squatted = (problem: string): AppError =>
  new AppError(
    'conflict',
    `${problem}; have it removed, or name a socket in a directory of your own, for host and clients: ${SOCKET_VARIABLE}=FILE`,
  )
