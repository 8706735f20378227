import { randomBytes } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { attempt } from '../../base/errors.ts'
import type { SandboxGrant } from '../../policy/permit.ts'
import { SANDBOX_RETRY_MS } from '../../protocol/limits/daemon.ts'
import { findTool } from '../launch-plan.ts'
import { PROBE_MS, bwrapComplaint } from '../pid-namespace.ts'
import { bubblewrapArguments } from './bubblewrap.ts'
import { callFilter } from './seccomp-filter.ts'

export type SandboxSupport =
  | {
      readonly kind: 'works'
      readonly userNamespace: boolean
    }
  /** `problem` contains the reason and the remedy. */
  | { readonly kind: 'impossible'; readonly problem: string }

/** Part of a grant that decides whether a sandbox is possible. */
export type SandboxNeed = Pick<SandboxGrant, 'network'>

/** Settings that restrict user namespaces, with their forbidding and allowing values. */
const SWITCHES: readonly (readonly [name: string, off: string, on: string])[] = [
  ['kernel.unprivileged_userns_clone', '0', '1'],
  ['user.max_user_namespaces', '0', '15000'],
  ['kernel.apparmor_restrict_unprivileged_userns', '1', '0'],
]

const valueOf = (name: string): string | null => attempt(() => readFileSync(`/proc/sys/${name.replaceAll('.', '/')}`, 'latin1').trim())

/** The operator's remedy for a complaint of bwrap. */
const remedyOf = (complaint: string): string => {
  const set = SWITCHES.find(([name, off]) => valueOf(name) === off)
  if (set !== undefined) return `the system forbids user namespaces: allow them with sysctl -w ${set[0]}=${set[2]}, or run this as root`
  if (/mount proc/i.test(complaint)) return 'this container masks /proc: start it with --security-opt systempaths=unconfined'
  if (/seccomp/i.test(complaint)) return 'the kernel has no filter of system calls (CONFIG_SECCOMP_FILTER)'
  return 'namespaces are forbidden: a unit needs RestrictNamespaces= off, a container needs --security-opt seccomp=unconfined'
}

/** Tries sandboxes on this machine and remembers what worked. */
export class SandboxProbe {
  #works: { readonly tool: string; readonly userNamespace: boolean } | null = null
  /** A running or recently failed trial, so that concurrent callers share it. */
  #tried: { readonly key: string; readonly support: Promise<SandboxSupport>; readonly until: number } | null = null

  /** Why such a sandbox is impossible, or null if it works. */
  async problem(grant: SandboxNeed): Promise<string | null> {
    const support = await this.support(grant)
    return support.kind === 'works' ? null : support.problem
  }

  async support({ network }: SandboxNeed): Promise<SandboxSupport> {
    const tool = findTool('bwrap')
    if ('problem' in tool) return { kind: 'impossible', problem: tool.problem }
    const identity = attempt(() => statSync(tool.path, { bigint: true }))
    const key = `${tool.path} ${identity?.dev} ${identity?.ino} ${network}`
    if (this.#works?.tool === key) return { kind: 'works', userNamespace: this.#works.userNamespace }
    if (this.#tried?.key === key && performance.now() < this.#tried.until) return this.#tried.support
    const support = this.#try(tool.path, key, network)
    this.#tried = { key, support, until: performance.now() + PROBE_MS + SANDBOX_RETRY_MS }
    const known = await support
    if (this.#tried?.support === support) this.#tried = { key, support, until: performance.now() + SANDBOX_RETRY_MS }
    return known
  }

  async #try(bwrap: string, key: string, network: boolean): Promise<SandboxSupport> {
    const complaint = await bubblewrapComplaint(bwrap, { network, userNamespace: true })
    // Root needs no user namespace.
    const asRoot = complaint !== null && process.geteuid?.() === 0
    if (complaint !== null && (!asRoot || (await bubblewrapComplaint(bwrap, { network, userNamespace: false })) !== null))
      return { kind: 'impossible', problem: `bubblewrap does not work on this machine (${complaint}): ${remedyOf(complaint)}` }
    this.#works = { tool: key, userNamespace: complaint === null }
    return { kind: 'works', userNamespace: complaint === null }
  }
}

/** Runs `true` in a sandbox that shows no directory. Returns bwrap's complaint, or null. */
const bubblewrapComplaint = async (
  bwrap: string,
  { network, userNamespace }: { readonly network: boolean; readonly userNamespace: boolean },
): Promise<string | null> => {
  const feed = callFilter()
  if (feed === null) return `no filter of system calls is known for ${process.arch}`
  const grant = { network, readable: [], home: '/', image: null }
  const marker = `.x0x-${randomBytes(16).toString('hex')}`
  const words = bubblewrapArguments({ grant, writable: null, env: {}, shown: [], marker, userNamespace })
  const complaint = await bwrapComplaint(bwrap, ['--seccomp', '3', ...words, '--'], { feed })
  return complaint?.split('\n')[0] ?? null
}
