import { PAGES, manualPage, referencePage } from '../../../cli/man.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'

export const runMan = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [program = 'x0x'] = line.words
  const parts = Object.hasOwn(PAGES, program) ? PAGES[program] : undefined
  if (parts === undefined) throw usageError(`${JSON.stringify(program)} has no manual page`, `one of ${Object.keys(PAGES).join(', ')}`)
  await write(context.stdout, line.has('markdown') ? referencePage(Object.values(PAGES).flat()) : manualPage(parts))
  return 0
}
