import { chmod, chown } from 'node:fs/promises'
import type { Account } from '../policy/account.ts'
import type { Made } from './beneath.ts'
import { systemError } from './refusals.ts'

/** A directory may be entered by all who may read it. */
const directoryMode = (mode: number): number => mode | ((mode & 0o444) >> 2)

/**
 * Gives new directories the mode and the owner of new files, as far as `requested` bits allow. Each is held by its descriptor, so that a
 * link that replaces it meanwhile changes nothing else. Throws EPERM if it is not ours any more.
 */
export const giveMade = async (
  made: readonly Made[],
  { mode, account }: { readonly mode: number; readonly account: Account | null },
  requested = 0o777,
): Promise<void> => {
  // The last first, because its directory may become one that the daemon's user cannot enter.
  for (const { parent, name } of made.toReversed()) {
    using directory = await parent.enter(name)
    if ((await directory.stat()).uid !== BigInt(process.geteuid!())) throw systemError('EPERM')
    await chmod(directory.self, directoryMode(mode) & requested)
    if (account !== null) await chown(directory.self, account.uid, account.gid)
  }
}
