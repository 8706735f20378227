import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { machineKeyOf, type MachineKey } from '../../src/identity/machine-key.ts'
import type { AgentSigner } from '../../src/identity/signing.ts'

/** An agent that is the same in every run, told apart by a number. */
export const agentNumber = (number: number): AgentSigner => agentSignerOf(new Uint8Array(32).fill(number))

/** A machine that is the same in every run. */
export const machineNumber = (number: number): MachineKey => machineKeyOf(new Uint8Array(32).fill(number))
