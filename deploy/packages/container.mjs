// Runs the program of an image as a container engine would, with a read-only root, a separate network and no rights of root. bwrap makes
// the file system and ip(8) the network.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { ran } from './place.mjs'

/** Hosts on one bridge, by name. None of them is this machine. */
export class Network {
  #prefix = `x0x-${process.pid}`
  #names = []

  constructor(place) {
    this.place = place
  }

  namespaceOf(name) {
    return `${this.#prefix}-${name}`
  }

  async start(names) {
    const bridge = this.namespaceOf('bridge')
    const ip = (...words) => ran('ip', words)
    await this.#make('bridge')
    await ip('-n', bridge, 'link', 'add', 'net0', 'type', 'bridge')
    await ip('-n', bridge, 'link', 'set', 'net0', 'up')
    for (const [i, name] of names.entries()) {
      const own = await this.#make(name)
      await ip('-n', bridge, 'link', 'add', `port${i}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', own)
      await ip('-n', bridge, 'link', 'set', `port${i}`, 'master', 'net0', 'up')
      await ip('-n', own, 'address', 'add', this.addressOf(i, '/24'), 'dev', 'eth0')
      await ip('-n', own, 'link', 'set', 'eth0', 'up')
    }
    this.hosts = join(this.place, 'hosts')
    writeFileSync(this.hosts, ['127.0.0.1 localhost', ...names.map((name, i) => `${this.addressOf(i)} ${name}`), ''].join('\n'))
  }

  addressOf(i, mask = '') {
    return `10.89.0.${i + 2}${mask}`
  }

  async #make(name) {
    const own = this.namespaceOf(name)
    await ran('ip', ['netns', 'add', own])
    this.#names.push(own)
    await ran('ip', ['-n', own, 'link', 'set', 'lo', 'up'])
    return own
  }

  async stop() {
    for (const own of this.#names) await ran('ip', ['netns', 'delete', own])
  }
}

/** Arguments before a program to run it as this user, with only these capabilities and no way to get more. */
const asUser = ([uid, gid], kept = []) => {
  const caps = ['-all', ...kept.map((name) => `+${name.toLowerCase()}`)].join(',')
  const sets = [`--inh-caps=${caps}`, `--bounding-set=${caps}`, ...(kept.length === 0 ? [] : [`--ambient-caps=${caps}`])]
  return ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--no-new-privs', ...sets, '--']
}

/** Capabilities for becoming that user and for keeping only the given ones. */
const RIGHTS = ['SETUID', 'SETGID', 'SETPCAP']

/**
 * One container of an image. `mounts` are source, destination, and whether they are read-only. With `init`, process 1 is bwrap and not the
 * program. `args` replace the arguments of the image.
 */
export class Container {
  #init
  #process
  #pid

  constructor(image, init) {
    this.image = image
    this.#init = { tmpfs: [], mounts: [], env: {}, capabilities: [], init: false, args: image.config.Cmd ?? [], ...init }
    const ours = Object.fromEntries(image.config.Env.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]))
    this.env = { ...ours, ...this.#init.env }
  }

  /** The user of the image, unless the caller gives another. */
  get #user() {
    return (this.#init.user ?? this.image.config.User).split(':')
  }

  #words(command) {
    const { tmpfs, mounts, init, capabilities, network, name } = this.#init
    const places = [
      ...tmpfs.flatMap((path) => ['--perms', '1777', '--tmpfs', path]),
      ...[...mounts, { from: network.hosts, to: '/etc/hosts', isFixed: true }].flatMap(({ from, to, isFixed }) => [
        isFixed ? '--ro-bind' : '--bind',
        from,
        to,
      ]),
    ]
    const rights = [...RIGHTS, ...capabilities].flatMap((right) => ['--cap-add', `CAP_${right}`])
    const files = ['--bind', this.image.root, '/', '--proc', '/proc', '--dev', '/dev', ...places, '--remount-ro', '/', '--chdir', '/']
    const spaces = ['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--hostname', name, ...(init ? [] : ['--as-pid-1'])]
    const bwrap = ['bwrap', ...files, ...spaces, '--die-with-parent', '--json-status-fd', '3', ...rights, '--']
    return ['netns', 'exec', network.namespaceOf(name), ...bwrap, ...asUser(this.#user, capabilities), ...command]
  }

  #spawn(command) {
    const child = spawn('ip', this.#words(command), { env: this.env, stdio: ['ignore', 'pipe', 'pipe', 'pipe'] })
    let said = ''
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text))
    return { child, exited: once(child, 'close'), said: () => said }
  }

  /** Runs a command to its end instead of the program of the image. */
  async run(command) {
    const { exited, said } = this.#spawn(command)
    const [status] = await exited
    if (status !== 0) throw new Error(`${command.join(' ')} ended with ${status}:\n${said()}`)
  }

  /** Starts the program of the image. Resolves when its output reports that it is ready. */
  async start(daemons, ready) {
    this.#process = this.#spawn([...this.image.config.Entrypoint, ...this.#init.args])
    const { child, exited, said } = this.#process
    // The program runs as another user, so it does not end with its parent. If process 1 is killed, all processes end.
    daemons.push({ kill: () => this.#kill(), exited })
    let status = ''
    child.stdio[3].setEncoding('utf8').on('data', (text) => (status += text))
    for await (const _ of child.stdout.iterator({ destroyOnReturn: false })) if (ready.test(said())) break
    if (!ready.test(said())) throw new Error(`${this.#init.name} did not start: ${said()}`)
    this.#pid = /"child-pid": (\d+)/.exec(status)[1]
  }

  #kill() {
    const { child } = this.#process
    if (child.exitCode !== null || child.signalCode !== null) return
    try {
      if (this.#pid !== undefined) process.kill(Number(this.#pid), 'SIGKILL')
    } catch {
      // The process has already ended.
    }
    child.kill('SIGKILL')
  }

  /** Runs a command next to the program, as the same user. Returns its output. */
  exec(...command) {
    const into = ['--target', this.#pid, '--mount', '--pid', '--net', '--ipc', '--uts']
    return ran('nsenter', [...into, ...asUser(this.#user), ...command], { env: this.env })
  }

  /** Runs the health check of the image. Throws if its status is not 0. */
  health() {
    const [kind, ...command] = this.image.health.Test
    if (kind !== 'CMD') throw new Error(`the health check is a ${kind}`)
    return this.exec(...command)
  }

  /** Sends SIGTERM to the program, as an engine does. Returns its exit status. */
  async stop() {
    const inside = readFileSync(`/proc/${this.#pid}/task/${this.#pid}/children`, 'utf8').trim().split(' ')
    process.kill(Number(this.#init.init ? inside[0] : this.#pid), 'SIGTERM')
    const [status] = await this.#process.exited
    return status
  }
}
