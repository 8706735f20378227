import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

import { DIST, type DaemonOptions, type MeshOfDaemons, type TestDaemon } from './mesh-of-daemons.ts'
import { MESH_PORT } from './nat-networks.ts'

const exec = promisify(execFile)

/** Private addresses, which a daemon announces without a proof of ownership. Their namespaces have no route elsewhere. */
const NETWORK = '10.9'

/** A network of many hosts, each in a namespace with its own address. Host 0 has the bridge. Needs what `natProblem` checks. */
export class HostNetworks {
  readonly #name: string
  #count = 0

  constructor(name = `x0xh${process.pid}`) {
    this.#name = name
  }

  async make(count: number): Promise<this> {
    for (; this.#count < count; this.#count++) {
      const space = this.#space(this.#count)
      await this.#ip('netns', 'add', space)
      await this.#in(this.#count, 'ip', 'link', 'set', 'lo', 'up')
      if (this.#count === 0) await this.#in(0, 'ip', 'link', 'add', 'world', 'type', 'bridge')
      else {
        const here = `h${this.#count}`
        await this.#in(0, 'ip', 'link', 'add', here, 'type', 'veth', 'peer', 'name', 'world', 'netns', space)
        await this.#in(0, 'ip', 'link', 'set', here, 'master', 'world', 'up')
      }
      await this.#in(this.#count, 'ip', 'addr', 'add', `${this.#address(this.#count)}/16`, 'dev', 'world')
      await this.#in(this.#count, 'ip', 'link', 'set', 'world', 'up')
    }
    return this
  }

  async end(): Promise<void> {
    for (let host = this.#count; host >= 0; host--) await this.#ip('netns', 'del', this.#space(host)).catch(() => undefined)
  }

  daemon(mesh: MeshOfDaemons, name: string, host: number, { flags = [], env = {} }: DaemonOptions = {}): TestDaemon {
    return mesh.add(name, {
      program: ['/usr/sbin/ip', 'netns', 'exec', this.#space(host), process.execPath, `${DIST}/x0xd.mjs`],
      flags: ['--listen', `/ip4/${this.#address(host)}/tcp/${MESH_PORT}`, ...flags],
      env: { X0X_MDNS: 'false', ...env },
    })
  }

  #address(host: number): string {
    return `${NETWORK}.${host >> 8}.${(host & 255) + 1}`
  }

  #space(host: number): string {
    return `${this.#name}-${host}`
  }

  async #in(host: number, ...argv: readonly string[]): Promise<void> {
    await this.#ip('netns', 'exec', this.#space(host), ...argv)
  }

  async #ip(...argv: readonly string[]): Promise<void> {
    await exec('/usr/sbin/ip', [...argv])
  }
}
