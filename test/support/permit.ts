import assert from 'node:assert/strict'

import type { Acl, RunLimits } from '../../src/policy/mesh/acl.ts'
import { DEFAULT_CAPS, NOBODY_ASKED } from '../../src/policy/mesh/acl.ts'
import { authorize } from '../../src/policy/mesh/authorize.ts'
import { UNCONFINED, type Confinement } from '../../src/policy/mesh/confinement.ts'
import { scrubbedEnvironment } from '../../src/policy/environment.ts'
import type { Permit } from '../../src/policy/permit.ts'
import { Slots } from '../../src/policy/slots.ts'
import { ALICE, alice, LAPTOP } from './acl-text.ts'

export interface PermitOptions {
  readonly watch?: boolean
  readonly limits?: Partial<RunLimits>
  readonly timeout_ms?: number
  readonly cwd?: string
  readonly confinement?: Partial<Confinement>
}

const ENTRY = { description: 'a test', described: null, discoverable: false, agent_id: ALICE, machine_id: LAPTOP }

/** A permit for this argv, which policy makes from an ACL with exactly this command. */
export const permitFor = (argv: readonly string[], options: PermitOptions = {}): Permit => {
  const limits: RunLimits = { ...DEFAULT_CAPS, ...options.limits }
  const confinement: Confinement = { ...UNCONFINED, ...options.confinement }
  const command = {
    argv,
    tokens: argv.map((text) => ({ kind: 'literal', text }) as const),
    stdin: true,
    terminal: false,
    record: false,
    watch: options.watch ?? false,
    line: 1,
  }
  const acl: Acl = {
    enabled: true,
    caps: DEFAULT_CAPS,
    contain: 'best_effort',
    allow: [{ ...ENTRY, commands: [command], files: [], limits, confinement, asking: NOBODY_ASKED, detaching: null, line: 1 }],
    always_ask: [],
    default_cwd: options.cwd ?? '/',
    audit_log_path: '/var/lib/x0x/exec.log',
    audit_tasklist_id: null,
    source: 'acl.toml',
  }
  const intent = { argv, cwd: null, stdin_len: null, timeout_ms: options.timeout_ms ?? null, clamp: false }
  const verdict = authorize(intent, alice, { acl, slots: new Slots(DEFAULT_CAPS), env: scrubbedEnvironment() })
  assert.equal(
    verdict.kind,
    'permit',
    JSON.stringify(verdict, (_key, value: unknown) => (typeof value === 'bigint' ? String(value) : value)),
  )
  return verdict.permit
}
