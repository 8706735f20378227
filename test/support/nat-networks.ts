import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'

import type { MeshOfDaemons, TestDaemon } from './mesh-of-daemons.ts'
import { DIST } from './mesh-of-daemons.ts'

const exec = promisify(execFile)

/** Why this machine cannot create networks, or false. */
export const natProblem = (): string | false => {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'network namespaces need root on Linux'
  const missing = ['/usr/sbin/ip', '/usr/sbin/nft'].filter((file) => !existsSync(file))
  return missing.length > 0 && `${missing.join(' and ')} missing (Debian: iproute2, nftables)`
}

/** Public addresses that simulate the internet, in namespaces without other routes. */
const WORLD = '9.9.0'
export const MESH_PORT = 5_483

/**
 * A relay's host in the simulated internet, and two masquerading NATs with a private network each: `left` and `right`. Each has one host.
 * These networks are isolated from all others.
 */
export class NatNetworks {
  readonly #name: string

  constructor(name = `x0x${process.pid}`) {
    this.#name = name
  }

  readonly relayAddress = `/ip4/${WORLD}.1/tcp/${MESH_PORT}`

  async make(): Promise<this> {
    for (const host of ['relay', 'left-nat', 'right-nat', 'left', 'right']) {
      await this.#ip('netns', 'add', this.#space(host))
      await this.#in(host, 'ip', 'link', 'set', 'lo', 'up')
    }
    await this.#in('relay', 'ip', 'link', 'add', 'world', 'type', 'bridge')
    await this.#in('relay', 'ip', 'addr', 'add', `${WORLD}.1/24`, 'dev', 'world')
    await this.#in('relay', 'ip', 'link', 'set', 'world', 'up')
    await this.#side('left', 2)
    await this.#side('right', 3)
    return this
  }

  async end(): Promise<void> {
    for (const host of ['left', 'right', 'left-nat', 'right-nat', 'relay'])
      await this.#ip('netns', 'del', this.#space(host)).catch(() => undefined)
  }

  /** A daemon on one of the hosts. */
  daemon(mesh: MeshOfDaemons, name: string, host: 'relay' | 'left' | 'right', env: Readonly<Record<string, string>>): TestDaemon {
    return mesh.add(name, {
      program: ['/usr/sbin/ip', 'netns', 'exec', this.#space(host), process.execPath, `${DIST}/x0xd.mjs`],
      flags: ['--listen', `/ip4/0.0.0.0/tcp/${MESH_PORT}`],
      env: { X0X_MDNS: 'false', ...env },
    })
  }

  /** The public address of a side's NAT. */
  worldAddress(side: 'left' | 'right'): string {
    return `/ip4/${WORLD}.${side === 'left' ? 2 : 3}/tcp/${MESH_PORT}`
  }

  /** Forwards the mesh port of a side's NAT to its host. */
  async forward(side: 'left' | 'right'): Promise<void> {
    const to = `${lan(side)}.2:${MESH_PORT}`
    await this.#nft(side, `add chain ip nat in { type nat hook prerouting priority -100; }`)
    await this.#nft(side, `add rule ip nat in iifname "world" tcp dport ${MESH_PORT} dnat to ${to}`)
  }

  async #side(side: 'left' | 'right', number: number): Promise<void> {
    const nat = `${side}-nat`
    await this.#join('relay', `to-${side}`, nat, 'world')
    await this.#in('relay', 'ip', 'link', 'set', `to-${side}`, 'master', 'world')
    await this.#in(nat, 'ip', 'addr', 'add', `${WORLD}.${number}/24`, 'dev', 'world')
    await this.#join(nat, 'lan', side, 'lan')
    await this.#in(nat, 'ip', 'addr', 'add', `${lan(side)}.1/24`, 'dev', 'lan')
    await this.#in(side, 'ip', 'addr', 'add', `${lan(side)}.2/24`, 'dev', 'lan')
    await this.#in(side, 'ip', 'route', 'add', 'default', 'via', `${lan(side)}.1`)
    await this.#in(nat, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward')
    await this.#nft(side, 'add table ip nat')
    await this.#nft(side, 'add chain ip nat out { type nat hook postrouting priority 100; }')
    await this.#nft(side, 'add rule ip nat out oifname "world" masquerade')
  }

  /** Connects two hosts with a virtual cable. */
  async #join(one: string, here: string, other: string, there: string): Promise<void> {
    await this.#in(one, 'ip', 'link', 'add', here, 'type', 'veth', 'peer', 'name', there, 'netns', this.#space(other))
    await this.#in(one, 'ip', 'link', 'set', here, 'up')
    await this.#in(other, 'ip', 'link', 'set', there, 'up')
  }

  #space(host: string): string {
    return `${this.#name}-${host}`
  }

  async #nft(side: string, rule: string): Promise<void> {
    await this.#in(`${side}-nat`, '/usr/sbin/nft', rule)
  }

  async #in(host: string, ...argv: readonly string[]): Promise<void> {
    await this.#ip('netns', 'exec', this.#space(host), ...argv)
  }

  async #ip(...argv: readonly string[]): Promise<void> {
    await exec('/usr/sbin/ip', [...argv])
  }
}

const lan = (side: 'left' | 'right'): string => (side === 'left' ? '10.1.0' : '10.2.0')
