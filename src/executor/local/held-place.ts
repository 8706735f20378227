import { holdDirectory } from '../../fs/hold-directory.ts'
import { type WorkingDirectory, authorizeFile } from '../../policy/local/authorize.ts'
import { errorOf } from './local-engine.ts'
import type { LocalSession } from './local-session.ts'

/** Held until the program is started in it, so that it is the very directory that was permitted. */
export interface HeldPlace extends WorkingDirectory {
  readonly dev: bigint
  readonly ino: bigint
  release(): void
}

/** The directory in which a command of this session is to run. Throws `forbidden_path`, `file_not_found`, `file_error`. */
export const workingDirectory = async (session: LocalSession, path: string | null): Promise<HeldPlace> => {
  const { rights } = session
  const allowed = authorizeFile({ path: path ?? '.', access: 'read' }, { ...rights, capabilities: new Set(['fs.read']) })
  if (allowed.kind === 'refused') throw errorOf(allowed)
  const held = await holdDirectory(allowed.permit)
  let open = true
  const release = (): void => {
    if (open) held[Symbol.dispose]()
    open = false
  }
  const { real, descriptor, dev, ino } = held
  return { path: real, descriptor, dev, ino, release }
}
