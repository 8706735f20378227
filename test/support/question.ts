import type { Question } from '../../src/protocol/question.ts'

/** A question as policy makes it of `git push` by a local agent, with what a test changes. */
export const questionOf = (changed: Partial<Question> = {}): Question => ({
  permit_sha256: 'a'.repeat(64),
  grant_sha256: 'b'.repeat(64),
  door: 'mcp',
  session_id: null,
  asker: { kind: 'local', label: 'reviewer' },
  target: { host: 'gateway', agent_id: null },
  argv: ['git', 'push', 'origin'],
  executable: '/usr/bin/git',
  programs: ['/usr/bin/git'],
  opaque: null,
  cwd: '/srv/app',
  env_names: [],
  stdin: null,
  script: null,
  timeout_ms: 30_000,
  security: 'allowlist',
  ask: 'on-miss',
  ask_fallback: 'deny',
  always_ask: null,
  why: 'no pattern of the allowlist fits it',
  approvers: null,
  ...changed,
})
