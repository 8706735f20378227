// Where the examples find a server: what the command line of the example says, such as `ssh -T server-a rexd --stdio`, or
// a rexd of this host with a directory of its own that goes when the example ends.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface Rexd {
  readonly command: readonly string[]
  remove(): Promise<void>
}

const BUNDLE = fileURLToPath(new URL('../../dist/rexd.mjs', import.meta.url))

/** A directory with a configuration in it, which allows nothing but another new directory. */
const configured = async (server: (directory: string) => string): Promise<{ directory: string; config: string }> => {
  const directory = await mkdtemp(join(tmpdir(), 'rexd-example-'))
  const config = join(directory, 'config.toml')
  const root = join(directory, 'work')
  const roots = `[[security.allowed_roots]]\npath = ${JSON.stringify(root)}\n`
  const audit = `[audit]\npath = ${JSON.stringify(join(directory, 'audit.log'))}\n`
  await writeFile(config, `${server(directory)}[security]\nallow_shell = true\nallow_pty = true\n${roots}${audit}`, { mode: 0o600 })
  await mkdir(root)
  return { directory, config }
}

/** A rexd of this host for standard input and output. */
export const localRexd = async (): Promise<Rexd> => {
  const { directory, config } = await configured(() => '')
  const remove = async (): Promise<void> => rm(directory, { recursive: true, force: true })
  return { command: [process.execPath, BUNDLE, '--stdio', '--config', config], remove }
}

/** The one that was asked for on the command line, or one of this host. */
export const anyRexd = async (): Promise<Rexd> => {
  const command = process.argv.slice(2)
  return command.length > 0 ? { command, remove: async () => undefined } : localRexd()
}

export interface ListeningRexd {
  readonly url: string
  readonly token: string
  stop(): Promise<void>
}

/** A rexd of this host that listens on a port of its own. */
export const listeningRexd = async (): Promise<ListeningRexd> => {
  const tokenFile = (directory: string): string => join(directory, 'secret', 'token')
  const { directory, config } = await configured(
    (at) => `[server]\nhttp_listen = "127.0.0.1:0"\ntoken_file = ${JSON.stringify(tokenFile(at))}\n`,
  )
  const child = spawn(process.execPath, [BUNDLE, '--http', '--config', config], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  const stop = async (): Promise<void> => {
    child.kill()
    await once(child, 'exit')
    await rm(directory, { recursive: true, force: true })
  }
  const url = /https?:\/\/[^,]+/.exec(line.toString())?.[0] ?? ''
  return { url, token: (await readFile(tokenFile(directory), 'utf8')).trim(), stop }
}
