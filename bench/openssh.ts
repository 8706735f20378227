import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const SSHD = '/usr/sbin/sshd'

export const hasOpenSsh = (): boolean => existsSync(SSHD) && existsSync('/usr/bin/ssh')

const freePort = async (): Promise<number> => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

/** An sshd of our own on loopback: own keys, own configuration, a temporary directory, nothing of the system's. */
export class OpenSsh {
  readonly #dir: string
  readonly #server: ChildProcess
  readonly #common: string[]

  private constructor(dir: string, server: ChildProcess, common: string[]) {
    this.#dir = dir
    this.#server = server
    this.#common = common
  }

  static async start(): Promise<OpenSsh> {
    const dir = await mkdtemp(join(tmpdir(), 'x0x-bench-ssh-'))
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(dir, 'host')])
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(dir, 'user')])
    await writeFile(join(dir, 'authorized_keys'), await readFile(join(dir, 'user.pub')), { mode: 0o600 })
    await chmod(dir, 0o700)
    await mkdir('/run/sshd', { recursive: true, mode: 0o755 })
    const port = await freePort()
    const config = [
      `Port ${port}`,
      'ListenAddress 127.0.0.1',
      `HostKey ${join(dir, 'host')}`,
      `AuthorizedKeysFile ${join(dir, 'authorized_keys')}`,
      'StrictModes no',
      'UsePAM no',
      'PasswordAuthentication no',
      'PermitRootLogin yes',
      'PidFile none',
      'MaxStartups 100',
      'MaxSessions 100',
      'LogLevel ERROR',
      // The account's shell would otherwise read its start-up files, which may cost 100 ms and are no fault of ssh.
      `SetEnv HOME=${dir}`,
    ]
    await writeFile(join(dir, 'sshd_config'), `${config.join('\n')}\n`)
    const server = spawn(SSHD, ['-D', '-e', '-f', join(dir, 'sshd_config')], { stdio: 'ignore' })
    const options = ['IdentitiesOnly=yes', 'StrictHostKeyChecking=no', `UserKnownHostsFile=${join(dir, 'known_hosts')}`, 'LogLevel=ERROR']
    const common = ['-F', 'none', '-p', String(port), '-i', join(dir, 'user'), ...options.flatMap((option) => ['-o', option])]
    const ssh = new OpenSsh(dir, server, common)
    await ssh.#ready()
    return ssh
  }

  get #host(): string {
    return `${userInfo().username}@127.0.0.1`
  }

  async #ready(): Promise<void> {
    for (let tries = 0; tries < 50; tries++) {
      const ok = await this.cold(['true']).then(
        () => true,
        () => false,
      )
      if (ok) return this.#openMaster()
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
    throw new Error('sshd did not answer')
  }

  async #openMaster(): Promise<void> {
    await run('ssh', [...this.#common, '-M', '-S', join(this.#dir, 'master'), '-o', 'ControlPersist=600', '-f', '-N', this.#host])
  }

  /** Arguments of a call over the open master connection. */
  masterArgs(argv: readonly string[]): string[] {
    return [...this.#common, '-S', join(this.#dir, 'master'), this.#host, ...argv]
  }

  /** A connection of its own: TCP, key exchange, authentication, command. */
  cold(argv: readonly string[]): Promise<unknown> {
    return run('ssh', [...this.#common, this.#host, ...argv])
  }

  master(argv: readonly string[]): Promise<unknown> {
    return run('ssh', this.masterArgs(argv))
  }

  /** Bytes received from a command's stdout over the master, thrown away as they come. */
  async drain(argv: readonly string[]): Promise<number> {
    const child = spawn('ssh', this.masterArgs(argv), { stdio: ['ignore', 'pipe', 'ignore'] })
    let received = 0
    child.stdout.on('data', (chunk: Buffer) => (received += chunk.length))
    await once(child, 'close')
    return received
  }

  async stop(): Promise<void> {
    await run('ssh', [...this.#common, '-S', join(this.#dir, 'master'), '-O', 'exit', this.#host]).catch(() => undefined)
    this.#server.kill('SIGTERM')
    await once(this.#server, 'exit')
    await rm(this.#dir, { recursive: true, force: true })
  }
}
