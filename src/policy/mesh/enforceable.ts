import { tomlError, type TomlDocument } from '../../base/toml-file.ts'
import type { Acl } from './acl.ts'
import { CONFINEMENT_KEYS, UNCONFINED, type Confinement } from './confinement.ts'

/** A key of an entry that this host cannot enforce. */
export interface Unenforceable {
  readonly key: keyof Confinement
  readonly why: string
}

/** Tries on this host, not in theory; answers nothing where all of it can be enforced. */
export type EnforcementJudge = (confinement: Confinement) => Promise<readonly Unenforceable[]>

/** What no run may begin without and what cannot be had, each `file:line: key: why`. */
export const unenforceable = async (document: TomlDocument, acl: Acl, judge: EnforcementJudge): Promise<string[]> => {
  const problems: string[] = []
  for (const [index, { confinement, description }] of acl.allow.entries()) {
    if (CONFINEMENT_KEYS.every((key) => confinement[key] === UNCONFINED[key])) continue
    for (const { key, why } of await judge(confinement)) {
      const text = `cannot be enforced on this host for ${JSON.stringify(description)}: ${why}`
      problems.push(tomlError('bad_acl', document, ['exec', 'allow', index, key], text).message)
    }
  }
  return problems
}
