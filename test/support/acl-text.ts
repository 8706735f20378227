import assert from 'node:assert/strict'

import { parseToml } from '../../src/base/toml.ts'
import type { Acl } from '../../src/policy/mesh/acl.ts'
import type { Principal } from '../../src/policy/mesh/authorize.ts'
import type { Intent } from '../../src/policy/mesh/intent.ts'
import { readAcl, type AclReading } from '../../src/policy/mesh/read-acl.ts'

export const ALICE = 'a1'.repeat(32)
export const LAPTOP = 'b2'.repeat(32)
export const MALLORY = 'c3'.repeat(32)
export const ELSEWHERE = 'd4'.repeat(32)

const list = (tokens: readonly string[]): string => `[${tokens.map((token) => JSON.stringify(token)).join(', ')}]`

/** The text of one `[[exec.allow.commands]]` table. */
export const commandText = (argv: readonly string[]): string => `[[exec.allow.commands]]\nargv = ${list(argv)}\n`

/** The text of one `[[exec.allow.files]]` table. It allows reading unless `keys` say otherwise. */
export const filesText = (root: string, keys: Record<string, string | number | boolean> = {}): string => {
  const lines = Object.entries({ root, read: true, ...keys }).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`)
  return `[[exec.allow.files]]\n${lines.join('')}`
}

/** The text of one ACL entry, for ALICE on LAPTOP unless `keys` say otherwise. */
export const entryText = (commands: readonly (readonly string[])[], keys: Record<string, string | number> = {}): string => {
  const all = { description: 'alice on her laptop', agent_id: ALICE, machine_id: LAPTOP, ...keys }
  const lines = Object.entries(all).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`)
  return `[[exec.allow]]\n${lines.join('')}${commands.map(commandText).join('')}`
}

/** The text of a complete, enabled ACL file. `keys` are lines of `[exec]`. */
export const aclText = (entries: readonly string[], keys = ''): string =>
  `[exec]\nenabled = true\naudit_log_path = "/var/lib/x0x/exec.log"\n${keys}\n${entries.join('')}`

export const readText = (text: string): AclReading => readAcl(parseToml(text, 'acl.toml', 'bad_acl', { bigints: true }))

/** Parses the text of an ACL, which must be valid. */
export const aclOf = (text: string): Acl => {
  const { acl, problems } = readText(text)
  assert.deepEqual(problems, [])
  assert.ok(acl)
  return acl
}

/** An ACL that allows ALICE on LAPTOP to run these commands. */
export const aclAllowing = (...commands: readonly (readonly string[])[]): Acl => aclOf(aclText([entryText(commands)]))

export const alice: Principal = { kind: 'mesh', agent_id: ALICE, machine_id: LAPTOP, verified: true, trust: 'accept' }

/** A request with exactly this argv. */
export const asking = (argv: readonly string[], more: Partial<Intent> = {}): Intent => ({
  argv,
  cwd: null,
  stdin_len: null,
  timeout_ms: null,
  clamp: false,
  ...more,
})
