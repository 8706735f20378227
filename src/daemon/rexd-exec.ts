import { readFile } from 'node:fs/promises'
import { constants } from 'node:os'

import { errorText } from '../base/errors.ts'
import {
  connect,
  stdio,
  webSocket,
  type RemoteProcess,
  type RemoteTerminal,
  type RexdSession,
  type TransportFactory,
} from '../client/entry.ts'
import { ownProgram, programArguments } from './own-process.ts'
import { parseRexdExecFlags, type RexdExecFlags } from './rexd-exec-flags.ts'

/** It could not be run, or nobody knows how it ended. */
const EXIT_NOT_RUN = 255

const CLIENT_NAME = 'rexd exec'

const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

const transportOf = ({ ssh, url, tokenFile, config }: RexdExecFlags): TransportFactory => {
  if (url !== null && tokenFile !== null) return webSocket({ url, token: async () => (await readFile(tokenFile, 'utf8')).trim() })
  if (ssh !== null) return stdio({ command: ['ssh', '-T', '--', ssh, 'rexd', '--stdio'] })
  const program = ownProgram('rexd.mjs', 'rexd-main.ts')
  return stdio({ command: [process.execPath, ...programArguments(program), '--stdio', '--config', config] })
}

/** Each in its turn, at the speed of who reads it. */
const write = async (to: NodeJS.WriteStream, bytes: Uint8Array): Promise<void> =>
  new Promise((resolve, reject) => {
    to.write(bytes, (error) => (error ? reject(error) : resolve()))
  })

const copyOutput = async (program: RemoteProcess): Promise<void> => {
  for await (const { stream, data } of program) await write(stream === 'stdout' ? process.stdout : process.stderr, data)
}

/** The first asks it to end, the second does not wait for that. */
const endOnSignals = (program: RemoteProcess | RemoteTerminal): (() => void) => {
  let asked = false
  const listeners = ENDING.map((name) => {
    const listener = (): void => {
      if (asked) process.exit(128 + constants.signals[name])
      asked = true
      void program.kill(name).catch(() => false)
    }
    process.on(name, listener)
    return () => void process.off(name, listener)
  })
  return () => listeners.forEach((stop) => stop())
}

const onPipes = async (session: RexdSession, { argv, cwd, timeoutMs, stdin }: RexdExecFlags): Promise<RemoteProcess> => {
  const options = {
    ...(cwd === null ? {} : { cwd }),
    ...(timeoutMs === null ? {} : { timeoutMs }),
    ...(stdin ? { stdin: process.stdin } : {}),
  }
  return session.exec(argv, options)
}

const sizeOf = ({ columns = 80, rows = 24 }: { columns?: number; rows?: number }): { cols: number; rows: number } => ({
  cols: columns,
  rows,
})

/** What is typed goes there as it is, and it has the size of our window. */
const onTerminal = async (session: RexdSession, { argv, cwd, timeoutMs }: RexdExecFlags): Promise<RemoteTerminal> => {
  const options = { ...sizeOf(process.stdout), ...(cwd === null ? {} : { cwd }), ...(timeoutMs === null ? {} : { timeoutMs }) }
  const terminal = await session.openTerminal(argv, options)
  process.stdout.on('resize', () => void terminal.resize(sizeOf(process.stdout)).catch(() => undefined))
  if (process.stdin.isTTY) process.stdin.setRawMode(true)
  process.stdin.on('data', (bytes: Buffer) => void terminal.write(bytes).catch(() => undefined))
  return terminal
}

const follow = async (program: RemoteProcess | RemoteTerminal): Promise<number> => {
  const stop = endOnSignals(program)
  try {
    if ('stdout' in program) await copyOutput(program)
    else for await (const bytes of program) await write(process.stdout, bytes)
    const { exitCode, signal, timedOut } = await program.exited
    if (timedOut) process.stderr.write('rexd: its time was up\n')
    return exitCode ?? 128 + (constants.signals[signal as NodeJS.Signals] ?? 0)
  } finally {
    stop()
    if (process.stdin.isTTY) process.stdin.setRawMode(false)
    // What is not read any more must not keep us.
    process.stdin.destroy()
  }
}

/** Runs `rexd exec` with what is behind it and answers the exit status: the command's own, 128+n, or 255. */
export const rexdExec = async (argv: readonly string[]): Promise<number> => {
  const flags = parseRexdExecFlags(argv)
  if (typeof flags === 'string') {
    process.stdout.write(flags)
    return 0
  }
  try {
    const client = await connect({ transport: transportOf(flags) })
    try {
      const { target } = flags
      const session = await client.open({ clientName: CLIENT_NAME, ...(target === null ? {} : { target }), resumable: flags.url !== null })
      return await follow(flags.tty ? await onTerminal(session, flags) : await onPipes(session, flags))
    } finally {
      await client.close()
    }
  } catch (error) {
    process.stderr.write(`rexd: ${errorText(error)}\n`)
    return EXIT_NOT_RUN
  }
}
