import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { machineKeyOf, type MachineKey } from '../../src/identity/machine-key.ts'
import type { AgentSigner } from '../../src/identity/signing.ts'

/** An agent with the same key in every test run. Each number gives another agent. */
export const agentNumber = (number: number): AgentSigner => agentSignerOf(new Uint8Array(32).fill(number))

/** A machine with the same key in every test run. */
export const machineNumber = (number: number): MachineKey => machineKeyOf(new Uint8Array(32).fill(number))
