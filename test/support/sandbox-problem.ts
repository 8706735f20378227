/** Prints why no sandbox is available on this machine, or that it is, and whether it has a user namespace. */
import { SandboxProbe } from '../../src/process/sandbox/sandbox-probe.ts'

const probe = new SandboxProbe()
const tries = await Promise.all([probe.support({ network: false }), probe.support({ network: false })])
const support = await probe.support({ network: false })
// A missing program needs no trial.
if (support.kind === 'impossible' && support.problem.startsWith('bubblewrap does not work') && tries.some((one) => one !== support))
  throw new Error('it was tried more than once')
process.stdout.write(support.kind === 'works' ? `works, user namespace: ${support.userNamespace}\n` : `impossible: ${support.problem}\n`)
