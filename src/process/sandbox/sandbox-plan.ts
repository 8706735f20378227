import { randomBytes } from 'node:crypto'
import type { Permit, SandboxGrant } from '../../policy/permit.ts'
import { bubblewrapArguments, isOfSystem } from './bubblewrap-arguments.ts'
import { callFilter } from './call-filter.ts'

/** What bwrap reads on descriptors of its own, where nobody else sees it, and how it is let go on. */
export interface SandboxPlan {
  readonly feeds: readonly { readonly descriptor: number; readonly bytes: Buffer }[]
  /** The program begins when a byte comes here. */
  readonly gate: number
  /** See `BubblewrapInit.marker`. */
  readonly marker: string
}

interface PlanInit {
  /** The first descriptor that is free. */
  readonly first: number
  readonly userNamespace: boolean
  /** Files that something before the program needs. */
  readonly shown: readonly string[]
}

/** What bwrap is started with, behind which its program follows, and what it is fed. */
export const planSandbox = (
  { executable, cwd, env, terminal }: Pick<Permit, 'executable' | 'cwd' | 'env' | 'terminal'>,
  grant: SandboxGrant,
  { first, userNamespace, shown }: PlanInit,
): { readonly words: readonly string[]; readonly sandbox: SandboxPlan } | { readonly problem: string } => {
  if (grant.writable !== cwd) return { problem: `the sandbox was granted ${grant.writable}, and the run is to be in ${cwd}` }
  const filter = callFilter({ unixSockets: grant.network || grant.unix_sockets })
  if (filter === null) return { problem: `no sandbox is known for processors of the kind ${process.arch}` }
  const marker = `.x0x-${randomBytes(16).toString('hex')}`
  // What holds a terminal is a program of this host's.
  if (grant.image !== null && terminal !== null) return { problem: 'in the image of a container there is no terminal: run it without one' }
  const isShown =
    shown.includes(executable.path) || grant.image !== null || isOfSystem(executable.path) || executable.path.startsWith(`${cwd}/`)
  const words = bubblewrapArguments({
    grant,
    writable: cwd,
    // On a raw terminal the program is sent its environment by who holds it.
    env: terminal?.raw === true ? {} : env,
    shown: isShown ? shown : [...shown, executable.path],
    marker,
    userNamespace,
  })
  const [options, calls, gate] = [first, first + 1, first + 2]
  return {
    words: ['--args', String(options), '--seccomp', String(calls), '--block-fd', String(gate)],
    sandbox: {
      feeds: [
        { descriptor: options, bytes: Buffer.from(words.map((word) => `${word}\0`).join('')) },
        { descriptor: calls, bytes: filter },
      ],
      gate,
      marker,
    },
  }
}
