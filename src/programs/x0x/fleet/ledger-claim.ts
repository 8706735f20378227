import { open, readdir, realpath, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { errnoOf, errorText, isAppError, isMissing } from '../../../base/errors.ts'
import { type ProcessIdentity, identityFrom, identityText, lifeOf, ownIdentity } from '../../../base/process-identity.ts'
import { shellWord } from '../../../base/shell-word.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { usageError } from '../failure.ts'

const SUFFIX = '.writes'

/** Who writes `ledger`, by the name of a file beside it; null: it says nothing of that. */
const writerOf = (name: string, ledger: string): ProcessIdentity | null =>
  name.startsWith(`${ledger}.`) && name.endsWith(SUFFIX) ? identityFrom(name.slice(ledger.length + 1, -SUFFIX.length)) : null

/**
 * Says by a file beside a ledger that this process writes it; answers what takes that back. Each says so before it looks for others,
 * so that of two one sees the other at least. What a process that is gone has left is taken away. Throws `bad_request`.
 */
export const claimLedger = async (path: string): Promise<() => Promise<void>> => {
  // Of a link it is the file that is written.
  const ledger = await realpath(path).catch(() => path)
  const claim = `${ledger}.${identityText(ownIdentity(), '-')}${SUFFIX}`
  const taken = (file: string, pid: number): Error =>
    usageError(
      `${shownLine(path)}: another x0x writes it (pid ${pid})`,
      `wait until it has ended; where none does: rm ${shellWord(shownLine(file))}`,
    )
  try {
    await (await open(claim, 'wx', 0o600)).close()
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') throw taken(claim, process.pid)
    throw usageError(`${shownLine(path)}: ${isMissing(error) ? 'there is no such directory' : errorText(error)}`)
  }
  // One that stays is known to be of a process that is gone.
  const release = async (): Promise<void> => rm(claim, { force: true }).catch(() => undefined)
  try {
    for (const name of await readdir(dirname(ledger))) {
      const writer = writerOf(name, basename(ledger))
      const file = join(dirname(ledger), name)
      if (writer === null || name === basename(claim)) continue
      if (lifeOf(writer) !== 'gone') throw taken(file, writer.pid)
      await rm(file, { force: true })
    }
  } catch (error) {
    await release()
    throw isAppError(error) ? error : usageError(`${shownLine(path)}: ${errorText(error)}`)
  }
  return release
}
