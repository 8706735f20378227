/** Prints why no sandbox can be had here, or that one can, and whether with a user namespace. */
import { SandboxProbe } from '../../src/process/sandbox/sandbox-probe.ts'

const support = await new SandboxProbe().support({ network: false })
process.stdout.write(support.kind === 'works' ? `works, user namespace: ${support.userNamespace}\n` : `impossible: ${support.problem}\n`)
