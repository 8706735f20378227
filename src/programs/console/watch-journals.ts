import { accessSync, constants } from 'node:fs'
import { unreadable } from '../../base/bounded-file.ts'
import { errorText } from '../../base/errors.ts'
import type { OrderedScreen } from '../../doors/console/screen/console-screen.ts'
import type { JournalLine } from '../../journal/events.ts'
import { parseLine } from '../../journal/parse-line.ts'
import { tailJournal } from '../../journal/tail.ts'
import { JournalRuns } from './journal-runs.ts'

const follow = async (file: string, screen: OrderedScreen, signal: AbortSignal): Promise<void> => {
  const runs = new JournalRuns(screen.look)
  screen.note(`runs of other doors are shown from ${file}: when they begin and how they end; a journal has no output`)
  try {
    for await (const text of tailJournal(file, { lines: 0, follow: true }, signal)) {
      const line: JournalLine | null = parseLine(Buffer.from(text))
      const shown = line === null ? null : runs.text(line)
      if (shown !== null) screen.line(shown)
    }
  } catch (error) {
    screen.note(`${file} is not watched any more: ${errorText(error)}`)
  }
}

/** Throws `bad_config` for a file that cannot be watched. */
export const checkJournals = (files: readonly string[]): void => {
  for (const file of files)
    try {
      accessSync(file, constants.R_OK)
    } catch (error) {
      throw unreadable('bad_config', file, error, `--watch-journal: ${file}`)
    }
}

/** Shows what journals of other doors tell from now on, until the signal. */
export const watchJournals = async (
  files: readonly string[],
  { screen, signal }: { readonly screen: OrderedScreen | null; readonly signal: AbortSignal },
): Promise<void> => {
  if (screen !== null) await Promise.all(files.map(async (file) => follow(file, screen, signal)))
}
