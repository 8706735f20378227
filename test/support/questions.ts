import type { StoreSnapshot } from '../../src/policy/approval/judge.ts'
import type { ApprovalRequest } from '../../src/policy/approval/approval.ts'

export const PERMIT_SHA = 'a'.repeat(64)
export const GRANT_SHA = 'b'.repeat(64)
const AGENT = 'c'.repeat(64)

/** An approval request of a local agent about git. `fields` replaces fields. */
export const questionOf = (fields: Partial<ApprovalRequest> = {}): ApprovalRequest => ({
  permit_sha256: PERMIT_SHA,
  grant_sha256: GRANT_SHA,
  door: 'mcp',
  session_id: 's_1',
  asker: { kind: 'local', label: 'coder' },
  target: { host: 'gateway', agent_id: null },
  argv: ['git', 'status'],
  executable: '/usr/bin/git',
  programs: ['/usr/bin/git'],
  opaque: null,
  cwd: '/work',
  env_names: [],
  variables: [],
  stdin: null,
  script: null,
  writable: [],
  unheld: null,
  timeout_ms: 30_000,
  max_output_bytes: 1_048_576,
  outlives: false,
  security: 'allowlist',
  ask: 'on-miss',
  ask_fallback: 'deny',
  always_ask: null,
  why: 'security is "allowlist"',
  approvers: null,
  ...fields,
})

export const meshQuestionOf = (fields: Partial<ApprovalRequest> = {}): ApprovalRequest =>
  questionOf({
    door: 'mesh',
    session_id: null,
    asker: { kind: 'mesh', agent_id: AGENT, machine_id: 'd'.repeat(64), name: null },
    ...fields,
  })

/** A store without restrictions and lists. */
export const storeOf = (fields: Partial<StoreSnapshot> = {}): StoreSnapshot => ({
  defaults: { security: 'full', ask: 'off', ask_fallback: 'full' },
  agents: {},
  grants: [],
  home: '/home/me',
  ...fields,
})
