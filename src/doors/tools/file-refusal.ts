import { AppError, isAppError } from '../../base/errors.ts'
import { shown } from '../../base/visible-text.ts'

/** What a caller can do about a refusal, by its `data.reason` or its code. */
const REMEDIES: Readonly<Record<string, string>> = {
  exists: 'write_file with mode "replace" writes over it, with "append" goes behind it',
  changed: 'read_file it again, and go on from what and which mtime it then has',
  no_match: 'read_file it again, and give the text to be replaced exactly as it stands there, blanks and line ends included',
  ambiguous: 'give more of the lines around it, or replace_all true',
  file_not_found: 'list_directory and glob_files show what there is, and write_file with make_directories makes directories on the way',
}

const rootsOf = (roots: unknown): string | null => (Array.isArray(roots) ? `files are below ${roots.join(', ')}` : null)

const remedyOf = ({ code, data }: AppError): string | null => {
  if (code === 'forbidden_path') return rootsOf(data['allowed_roots'])
  return REMEDIES[String(data['reason'])] ?? REMEDIES[code] ?? null
}

/** A refusal of the executor, for who called a tool: which argument it is about (`path`, unless it says another), and what to do. */
export const fileRefusal = (error: unknown): unknown => {
  if (!isAppError(error)) return error
  const { code, message, data } = error
  const named = /^[a-z_]+: /.test(message) ? message : `path: ${message}`
  const remedy = remedyOf(error)
  return new AppError(code, shown(remedy === null ? named : `${named}; ${remedy}`), { cause: error, data: { ...data } })
}
