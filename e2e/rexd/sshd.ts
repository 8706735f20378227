import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants } from 'node:fs'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { connect, createServer, type AddressInfo } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { promisify } from 'node:util'

import { until } from '../../test/support/mesh-of-daemons.ts'
import { sshdConfig, sshOptions } from '../../test/support/sshd-config.ts'

const run = promisify(execFile)
const PROGRAMS = { sshd: '/usr/sbin/sshd', ssh: '/usr/bin/ssh', keygen: '/usr/bin/ssh-keygen' }

const isExecutable = (path: string): boolean => {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
const missing = Object.values(PROGRAMS).find((path) => !isExecutable(path))
/** Reason why no SSH server is available, or null. */
export const NO_SSHD = missing === undefined ? null : `no ${missing}`

const freePort = async (): Promise<number> => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

const answers = async (port: number): Promise<boolean> => {
  const socket = connect(port, '127.0.0.1')
  const heard = await new Promise<boolean>((resolve) => {
    socket.once('data', () => resolve(true))
    socket.once('error', () => resolve(false))
  })
  socket.destroy()
  return heard
}

const begin = async (dir: string): Promise<{ server: ChildProcess; port: number }> => {
  for (let tries = 0; ; tries++) {
    const port = await freePort()
    await writeFile(join(dir, 'sshd_config'), `${sshdConfig(dir, port).join('\n')}\n`)
    const server = spawn(PROGRAMS.sshd, ['-D', '-e', '-f', join(dir, 'sshd_config')], { stdio: ['ignore', 'ignore', 'pipe'] })
    let said = ''
    server.stderr.on('data', (part: Buffer) => (said += part.toString()))
    await until('sshd answers', async () => server.exitCode !== null || (await answers(port)))
    if (server.exitCode === null) return { server, port }
    // Another process may have taken the port in the meantime.
    if (tries === 3) throw new Error(`sshd did not start: ${said}`)
  }
}

/**
 * Starts an sshd on a free port of this machine, with its own keys and configuration. Stops it after the test. Returns the words that run a
 * command through it.
 */
export const startSshd = async (t: Pick<TestContext, 'after'>): Promise<readonly string[]> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-sshd-'))
  await chmod(dir, 0o700)
  for (const name of ['host', 'user']) await run(PROGRAMS.keygen, ['-q', '-t', 'ed25519', '-N', '', '-f', join(dir, name)])
  await writeFile(join(dir, 'authorized_keys'), await readFile(join(dir, 'user.pub')), { mode: 0o600 })
  // sshd needs this directory for privilege separation.
  if (process.getuid?.() === 0) await mkdir('/run/sshd', { recursive: true, mode: 0o755 })
  const { server, port } = await begin(dir)
  t.after(async () => {
    server.kill('SIGTERM')
    if (server.exitCode === null && server.signalCode === null) await once(server, 'exit')
    await rm(dir, { recursive: true, force: true })
  })
  return [PROGRAMS.ssh, '-T', '-F', 'none', ...sshOptions(dir, port), `${userInfo().username}@127.0.0.1`]
}
