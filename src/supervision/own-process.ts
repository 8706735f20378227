import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { errorText } from '../base/errors.ts'

/** Another program of this package, running beside us. */
export interface OwnProcess {
  readonly pid: number
  readonly stdio: ChildProcess['stdio']
  /** Resolves when it is over and says how. */
  readonly ended: Promise<string>
  kill(signal: 'SIGTERM' | 'SIGKILL' | 'SIGHUP'): void
}

export interface OwnProcessInit {
  /** What the runtime is told: its flags, the program, the words for that. */
  readonly argv: readonly string[]
  /** What the list of processes shows first, in place of the runtime's path. */
  readonly argv0?: string
  readonly env: Readonly<Record<string, string>>
  readonly stdio: StdioOptions
  readonly user: { readonly uid: number; readonly gid: number } | null
}

/** True where no bundles are: tests of the sources. */
export const fromSources = import.meta.url.endsWith('.ts')

/** The bundle of a program of this package, which stands beside ours, or its source. */
export const ownProgram = (name: 'x0xd-network' | 'rexd'): string =>
  fileURLToPath(new URL(fromSources ? `../programs/${name}/main.ts` : `./${name}.mjs`, import.meta.url))

/** The words behind the runtime that run a program: a bundle calls its own `main`, that of a source has to be called. */
export const programArguments = (program: string): string[] => {
  if (!fromSources) return [program]
  const text = `import { main } from ${JSON.stringify(program)}; process.exit(await main(process.argv.slice(1), process.env))`
  return ['--input-type=module', '--eval', text, '--']
}

/** Linux: the runtime that we are, whatever stands at its path by now, and although its user may not enter the directories above it. */
const OWN_IMAGE = '/proc/self/exe'

/** Starts our runtime in a session of its own: a Ctrl-C is for us, who decide in which order all ends. Throws what `spawn` throws. */
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
