import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { errorText } from '../base/errors.ts'

/** A running process of another program of this package. */
export interface OwnProcess {
  readonly pid: number
  readonly stdio: ChildProcess['stdio']
  /** Resolves at the end with its reason. */
  readonly ended: Promise<string>
  kill(signal: 'SIGTERM' | 'SIGKILL' | 'SIGHUP'): void
}

export interface OwnProcessInit {
  /** Arguments of the runtime, which are its flags, the program, and the program's arguments. */
  readonly argv: readonly string[]
  /** First word in the list of processes instead of the runtime's path. */
  readonly argv0?: string
  readonly env: Readonly<Record<string, string>>
  readonly stdio: StdioOptions
  readonly user: { readonly uid: number; readonly gid: number } | null
}

/** True without bundles, in tests of the sources. */
export const fromSources = import.meta.url.endsWith('.ts')

/** Path of a program of this package, which is its bundle or its source. */
export const ownProgram = (name: 'x0xd-network' | 'rexd'): string =>
  fileURLToPath(new URL(fromSources ? `../programs/${name}/main.ts` : `./${name}.mjs`, import.meta.url))

/** Arguments that run a program. A bundle calls its own `main`. That of a source is called by name. */
export const programArguments = (program: string): string[] => {
  if (!fromSources) return [program]
  const text = `import { main } from ${JSON.stringify(program)}; process.exit(await main(process.argv.slice(1), process.env))`
  return ['--input-type=module', '--eval', text, '--']
}

/** On Linux, this runtime, even if the file was replaced or its user may not enter the parent directories. */
const OWN_IMAGE = '/proc/self/exe'

/** Starts the runtime in a separate session, because on Ctrl-C this process decides the order of ending. Throws the errors of `spawn`. */
export const startOwnProcess = ({ argv, argv0 = process.execPath, env, stdio, user }: OwnProcessInit): OwnProcess => {
  const child = spawn(existsSync(OWN_IMAGE) ? OWN_IMAGE : process.execPath, argv, {
    argv0,
    cwd: '/',
    env,
    stdio,
    detached: true,
    ...(user === null ? {} : { uid: user.uid, gid: user.gid }),
  })
  const { promise: ended, resolve } = Promise.withResolvers<string>()
  child.once('exit', (code, signal) => resolve(signal ?? `exit ${code}`))
  child.once('error', (error) => resolve(`it cannot be started: ${errorText(error)}`))
  return { pid: child.pid ?? 0, stdio: child.stdio, ended, kill: (signal) => void child.kill(signal) }
}
