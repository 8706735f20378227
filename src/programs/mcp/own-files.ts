import type { RexdConfig } from '../../config/rexd-config.ts'
import { isWithin } from '../../policy/local/authorize.ts'

/**
 * How the agent could extend its rights or change its record by writing files that it may write; one text each. `record` is the record's
 * file or null.
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
      : [`${file} is below ${root.path}, where the AI agent may write: move it, or set security.allow_write to false`]
  })
}
