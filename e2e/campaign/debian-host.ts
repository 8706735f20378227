import { execFile, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'

import { until } from '../../test/support/mesh-of-daemons.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const PACKAGE = '/usr/lib/node_modules/x0x'
/** A release whose systemd knows all settings of our units. */
const RELEASE = 'trixie'

const exec = promisify(execFile)

/** The TMPDIR of a test may not exist on the Debian host, so this one names a directory that does. */
const INSIDE = { ...process.env, TMPDIR: '/tmp' }

const ran = (file: string, argv: readonly string[], cwd = '/'): string => {
  const { status, stdout, stderr, error } = spawnSync(file, argv, { encoding: 'utf8', cwd, maxBuffer: 64 * 1024 * 1024 })
  if (status !== 0) throw new Error(`${file} ${argv.join(' ')}: ${error?.message ?? stderr.slice(-2000)}`)
  return stdout
}

/** Package archive that this machine uses, or null. */
const debianArchive = (): string | null => {
  const { status, stdout } = spawnSync('apt-get', ['indextargets', '--format', '$(SITE) $(CREATED_BY)'], { encoding: 'utf8' })
  return status === 0 ? (/^(\S*\/debian) Packages$/m.exec(stdout)?.[1] ?? null) : null
}

/** Reason why this machine cannot boot a Debian, or false. */
export const cannotBoot = (): string | false => {
  if (process.getuid?.() !== 0) return 'needs root'
  for (const tool of ['debootstrap', 'unshare', 'nsenter'])
    if (spawnSync(tool, ['--version']).error !== undefined) return `needs ${tool} (Debian: debootstrap, util-linux)`
  if (spawnSync('unshare', ['--pid', '--fork', '--mount', '--uts', '--ipc', '--net', '--cgroup', '--user', 'true']).status !== 0)
    return 'needs namespaces'
  return debianArchive() === null ? 'needs a Debian whose apt-get has an archive' : false
}

/** A Debian in a directory, with its own systemd as PID 1 and its own namespaces. */
export class DebianHost {
  readonly #dir: string
  #outer: ChildProcess | null = null
  #init: number | null = null

  private constructor(dir: string) {
    this.#dir = dir
  }

  /** Creates a Debian without x0x, with these packages of Debian. Takes 30 seconds and about 300 MB of `dir`. */
  static async make(dir: string, packages: readonly string[] = []): Promise<DebianHost> {
    // Other users must be able to read the root directory, unlike its parent.
    mkdirSync(dir, { mode: 0o755 })
    const options = { maxBuffer: 64 * 1024 * 1024, env: INSIDE }
    await exec('debootstrap', ['--variant=minbase', '--include=systemd,systemd-sysv,dbus', RELEASE, dir, debianArchive()!], options)
    if (packages.length > 0) {
      cpSync('/etc/resolv.conf', join(dir, 'etc/resolv.conf'), { dereference: true })
      // debootstrap cannot configure all of these packages.
      const install = `apt-get update -qq && apt-get install -qq --yes --no-install-recommends ${packages.join(' ')}`
      await exec('chroot', [dir, 'env', 'DEBIAN_FRONTEND=noninteractive', 'sh', '-c', install], options)
    }
    // The host shares the kernel, so it must load no modules.
    ran('ln', ['-s', '/dev/null', join(dir, 'etc/systemd/system/systemd-modules-load.service')])
    return new DebianHost(dir)
  }

  /** Copies this host, which must not have been booted yet. */
  copy(dir: string): DebianHost {
    ran('cp', ['-a', this.#dir, dir])
    return new DebianHost(dir)
  }

  /** Installs x0x as `npm install --global` does. */
  installByNpm(): void {
    const dir = this.#dir
    mkdirSync(join(dir, PACKAGE), { recursive: true })
    const packed = JSON.parse(ran('npm', ['pack', '--json', '--silent', '--pack-destination', dir], ROOT)) as { filename: string }[]
    const tarball = join(dir, packed[0]!.filename)
    ran('tar', ['-xzf', tarball, '-C', join(dir, PACKAGE), '--strip-components=1', '--no-same-owner'])
    cpSync(process.execPath, join(dir, 'usr/bin/node'))
    for (const [name, program] of Object.entries({ x0x: 'x0x.cjs', x0xd: 'x0xd.mjs' })) {
      chmodSync(join(dir, PACKAGE, 'deploy/bin', program), 0o755)
      ran('ln', ['-s', `${PACKAGE}/deploy/bin/${program}`, join(dir, 'usr/bin', name)])
    }
  }

  /** Starts systemd and waits until it has started everything. Returns the state that it reports, such as `running` or `degraded`. */
  async boot(): Promise<string> {
    const outer = spawn('sh', [join(import.meta.dirname, 'boot-systemd.sh'), this.#dir], { stdio: 'ignore', detached: true })
    this.#outer = outer
    this.#init = await until('systemd is PID 1', () => {
      const child = readFileSync(`/proc/${outer.pid}/task/${outer.pid}/children`, 'utf8').trim()
      return child !== '' && readFileSync(`/proc/${child}/comm`, 'utf8') === 'systemd\n' && Number(child)
    })
    return until(
      'the host has started',
      () => {
        const state = this.run('systemctl', ['is-system-running']).stdout.trim()
        return (state === 'running' || state === 'degraded') && state
      },
      90_000,
    )
  }

  /** Ends the host like a power cut. */
  async cutPower(): Promise<void> {
    if (this.#outer === null || this.#init === null) return
    const gone = once(this.#outer, 'exit')
    process.kill(this.#init, 'SIGKILL')
    await gone
    this.#outer = this.#init = null
  }

  run(file: string, argv: readonly string[]): { readonly status: number | null; readonly stdout: string; readonly stderr: string } {
    return spawnSync('nsenter', [...this.#inside(), file, ...argv], { encoding: 'utf8', timeout: 60_000, env: INSIDE })
  }

  /** Starts a program that continues to run. Returns its exit status. */
  async start(file: string, argv: readonly string[]): Promise<number | null> {
    const [status] = (await once(spawn('nsenter', [...this.#inside(), file, ...argv], { stdio: 'ignore' }), 'exit')) as [number | null]
    return status
  }

  #inside(): string[] {
    return ['-t', String(this.#init), '-m', '-p', '-u', '-i', '-n', '-C', '--root', '--wd=/', '--']
  }

  /** Words that prefix a command of this machine to run it on the network of the host. */
  get onNetwork(): readonly [string, ...string[]] {
    return ['nsenter', '-t', String(this.#init), '-n', '--']
  }

  #lately(): string {
    return this.run('journalctl', ['--boot', '--no-pager', '-n', '20']).stdout
  }

  /** Runs a command that must succeed. */
  must(file: string, ...argv: readonly string[]): string {
    const { status, stdout, stderr } = this.run(file, argv)
    if (status !== 0) throw new Error(`${file} ${argv.join(' ')}: ${stderr || stdout}${this.#lately()}`)
    return stdout
  }

  /** Runs the commands from the comment at the top of this unit, as an administrator does. */
  install(unit: string): void {
    const lines = readFileSync(join(ROOT, 'deploy', unit), 'utf8').split('\n')
    const steps = lines.filter((line) => line.startsWith('#   ')).map((line) => line.slice(4))
    this.must('bash', '-ec', [`cd ${PACKAGE}/deploy`, ...steps].join('\n'))
  }

  dropIn(unit: string, text: string): void {
    const dir = `/etc/systemd/system/${unit}.d`
    this.must('mkdir', '-p', dir)
    this.write(`${dir}/test.conf`, text)
    this.must('systemctl', 'daemon-reload')
  }

  /** Copies a file of this machine to `/root/NAME` on the host. Returns that path. */
  receive(file: string): string {
    cpSync(file, join(this.#dir, 'root', basename(file)))
    return join('/root', basename(file))
  }

  write(path: string, text: string): void {
    writeFileSync(join(this.#dir, path), text)
  }

  read(path: string): string {
    return readFileSync(join(this.#dir, path), 'utf8')
  }

  /** Value of one property of a unit. */
  show(unit: string, property: string): string {
    return this.must('systemctl', 'show', '--value', `--property=${property}`, unit).trim()
  }

  /** State of a unit, such as `active`, `failed` or `inactive`. */
  state(unit: string): string {
    return this.run('systemctl', ['is-active', unit]).stdout.trim()
  }

  journal(...argv: readonly string[]): string {
    return this.must('journalctl', '--boot', '--no-pager', ...argv)
  }
}
