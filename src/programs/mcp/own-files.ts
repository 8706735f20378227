import type { RexdConfig } from '../../config/rexd-config.ts'
import { isWithin } from '../../policy/local/authorize.ts'

/**
 * What the agent could grant itself, or take out of what is kept of it, by writing files that it may write; one text for each.
 * `record`: the file of its record, null where there is none.
 */
export const writableRules = (
  { path, audit_path, policy }: Pick<RexdConfig, 'path' | 'audit_path' | 'policy'>,
  record: string | null,
): string[] => {
  const { roots, granted } = policy
  if (!granted.has('fs.write')) return []
  return [path, audit_path, record].flatMap((file) => {
    if (file === null) return []
    const root = roots.find(({ real }) => isWithin(file, real))
    return root === undefined
      ? []
      : [`${file} is below ${root.path}, where the agent may write: put it elsewhere, or set security.allow_write to false`]
  })
}
