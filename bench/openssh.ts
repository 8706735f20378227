import { execFile, spawn, type ChildProcess, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { promisify } from 'node:util'

import { sshdConfig, sshOptions } from '../test/support/sshd-config.ts'
import { launch } from './launcher.ts'
import { drain } from './processes.ts'
import { timed } from './stats.ts'

const run = promisify(execFile)
const SSHD = '/usr/sbin/sshd'
const CLUSH = '/usr/bin/clush'

const freePort = async (): Promise<number> => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

/** A way to the server, directly or through a proxy, with a persistent master connection. */
export class SshPath {
  readonly #common: readonly string[]
  readonly #control: string

  constructor(init: { common: readonly string[]; control: string }) {
    this.#common = init.common
    this.#control = init.control
  }

  get #host(): string {
    return `${userInfo().username}@127.0.0.1`
  }

  async openMaster(): Promise<void> {
    await run('ssh', [...this.#common, '-M', '-S', this.#control, '-o', 'ControlPersist=600', '-f', '-N', this.#host])
  }

  /** The PID of the process that holds the connection. */
  async masterPid(): Promise<number> {
    const { stderr } = await run('ssh', [...this.#common, '-S', this.#control, '-O', 'check', this.#host])
    return Number(/pid=(\d+)/.exec(stderr)?.[1])
  }

  async closeMaster(): Promise<void> {
    await run('ssh', [...this.#common, '-S', this.#control, '-O', 'exit', this.#host]).catch(() => undefined)
  }

  /** Runs a command over a new connection, with TCP, key exchange and authentication. */
  async cold(argv: readonly string[]): Promise<void> {
    await launch('ssh', [...this.#common, this.#host, ...argv])
  }

  /** Runs a command over the open master connection. */
  async master(argv: readonly string[]): Promise<void> {
    await launch('ssh', [...this.#common, '-S', this.#control, this.#host, ...argv])
  }

  /** Returns the number of stdout bytes of a command over the master, and discards the bytes. */
  async drain(argv: readonly string[]): Promise<number> {
    return drain('ssh', [...this.#common, '-S', this.#control, this.#host, ...argv])
  }

  /** Starts an interactive program over the master. */
  open(argv: readonly string[]): ChildProcessByStdio<Writable, Readable, null> {
    return spawn('ssh', ['-T', ...this.#common, '-S', this.#control, this.#host, ...argv], { stdio: ['pipe', 'pipe', 'inherit'] })
  }

  /** Arguments of ssh for a program on a terminal over a new connection. They turn off hiding keystroke times, which delays keys. */
  terminalWords(argv: readonly string[]): readonly string[] {
    const plain = ['-o', 'IgnoreUnknown=ObscureKeystrokeTiming', '-o', 'ObscureKeystrokeTiming=no']
    return ['-t', ...this.#common, ...plain, this.#host, ...argv]
  }

  /** Copies files to a path of the server over a new connection. */
  async scp(files: readonly string[], path: string): Promise<void> {
    await launch('scp', ['-q', ...this.#common, ...files, `${this.#host}:${path}`])
  }

  /** Copies a file from the server. */
  async scpFrom(path: string, file: string): Promise<void> {
    await launch('scp', ['-q', ...this.#common, `${this.#host}:${path}`, file])
  }

  /** Runs only the client. It asks the local master process whether it runs, and contacts no server. */
  async clientAlone(): Promise<void> {
    await launch('ssh', [...this.#common, '-S', this.#control, '-O', 'check', this.#host])
  }

  /** Runs the commands of a file in order over the master. */
  async sftp(batchFile: string): Promise<void> {
    await run('sftp', ['-q', ...this.#common, '-o', `ControlPath=${this.#control}`, '-b', batchFile, this.#host])
  }
}

/** A separate sshd on loopback. It has its own keys and configuration in a temporary directory, and uses no file of the system. */
export class OpenSsh {
  readonly #dir: string
  readonly #server: ChildProcess
  readonly #paths: SshPath[] = []
  readonly port: number
  /** A direct path to the server. */
  readonly direct: SshPath

  private constructor(dir: string, server: ChildProcess, port: number) {
    this.#dir = dir
    this.#server = server
    this.port = port
    this.direct = this.#path(port)
  }

  get pid(): number {
    return this.#server.pid!
  }

  static async start(): Promise<OpenSsh> {
    if (!existsSync(SSHD) || !existsSync('/usr/bin/ssh'))
      throw new Error('OpenSSH is needed as the peer: apt-get install openssh-server openssh-client')
    const dir = await mkdtemp(join(tmpdir(), 'x0x-bench-ssh-'))
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(dir, 'host')])
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(dir, 'user')])
    await writeFile(join(dir, 'authorized_keys'), await readFile(join(dir, 'user.pub')), { mode: 0o600 })
    await chmod(dir, 0o700)
    await mkdir('/run/sshd', { recursive: true, mode: 0o755 })
    const port = await freePort()
    await writeFile(join(dir, 'sshd_config'), `${configOf(dir, port).join('\n')}\n`)
    const ssh = new OpenSsh(dir, spawn(SSHD, ['-D', '-e', '-f', join(dir, 'sshd_config')], { stdio: 'ignore' }), port)
    await ssh.#ready()
    return ssh
  }

  /** A path through a proxy on this port, with a master connection. */
  async via(port: number): Promise<SshPath> {
    const path = this.#path(port)
    await path.openMaster()
    return path
  }

  /** Milliseconds that ClusterShell takes for `count` calls, `width` at a time. Null if it is not installed. */
  async clush(count: number, width: number, argv: readonly string[]): Promise<number | null> {
    if (!existsSync(CLUSH)) return null
    const options = ['-F', 'none', '-o', 'HostName=127.0.0.1', ...sshOptions(this.#dir, this.port)].join(' ')
    return timed(async () => run(CLUSH, ['-w', `n[1-${count}]`, '-f', String(width), '-S', '-o', options, ...argv]))
  }

  async stop(): Promise<void> {
    for (const path of this.#paths) await path.closeMaster()
    this.#server.kill('SIGTERM')
    await once(this.#server, 'exit')
    await rm(this.#dir, { recursive: true, force: true })
  }

  #path(port: number): SshPath {
    const common = ['-F', 'none', ...sshOptions(this.#dir, port)]
    const path = new SshPath({ common, control: join(this.#dir, `master-${this.#paths.length}`) })
    this.#paths.push(path)
    return path
  }

  async #ready(): Promise<void> {
    for (let tries = 0; tries < 50; tries++) {
      const ok = await this.direct.cold(['true']).then(
        () => true,
        () => false,
      )
      if (ok) return this.direct.openMaster()
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
    throw new Error('sshd did not answer')
  }
}

const configOf = (dir: string, port: number): string[] => [
  ...sshdConfig(dir, port),
  'Subsystem sftp internal-sftp',
  'MaxStartups 100',
  'MaxSessions 100',
]
