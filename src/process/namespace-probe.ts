import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Duplex } from 'node:stream'
import { errorText } from '../base/errors.ts'
import type { Account } from '../policy/account.ts'
import { findExecutable } from '../policy/executable.ts'
import type { Confinement } from '../policy/mesh/confinement.ts'
import { findTool, namespaceArguments } from './launch-plan.ts'
import { MAX_WRAPPER_TEXT } from './pid-namespace.ts'

/** A probe of what this host can do. */
export const PROBE_MS = 5_000

/** What bwrap says where it does not become `true` with these words; null: it does. `feed`: what it reads on descriptor 3, or it writes there. */
export const bwrapComplaint = async (
  bwrap: string,
  words: readonly string[],
  { feed = null, account = null }: { readonly feed?: Buffer | null; readonly account?: Account | null },
): Promise<string | null> => {
  const program = findExecutable('true')
  if (program.kind !== 'found') return program.detail
  const user = account === null ? {} : { uid: account.uid, gid: account.gid }
  try {
    const child = spawn(bwrap, [...words, program.executable.path], {
      env: {},
      cwd: '/',
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      detached: true,
      ...user,
    })
    let text = ''
    child.stderr?.on('data', (chunk: Buffer) => {
      text = (text + chunk.toString()).slice(0, MAX_WRAPPER_TEXT)
    })
    const other = child.stdio[3]
    if (other instanceof Duplex) other.on('error', () => {}).resume()
    if (other instanceof Duplex && feed !== null) other.end(feed)
    const [code, signal] = (await once(child, 'close', { signal: AbortSignal.timeout(PROBE_MS) }).catch((error: unknown) => {
      child.kill('SIGKILL')
      throw error
    })) as [number | null, string | null]
    return code === 0 ? null : text.trim() || `bwrap ended with ${signal ?? code}`
  } catch (error) {
    return errorText(error)
  }
}

/** Runs `true` in such a namespace, as this user. Says why that does not work. */
export const namespaceProblem = async (
  confinement: Pick<Confinement, 'no_network' | 'read_only'>,
  account: Account | null,
): Promise<string | null> => {
  const tool = findTool('bwrap')
  return 'problem' in tool ? tool.problem : bwrapComplaint(tool.path, namespaceArguments(confinement, '/'), { account })
}
