import { manualPage } from '../../../command-line/man.ts'
import { PAGES } from '../../../command-line/pages.ts'
import { referencePage } from '../../../command-line/reference.ts'
import { write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'

/** `x0x man PROGRAM`. */
export const runMan = async (context: CliContext, program: string, { markdown }: { readonly markdown: boolean }): Promise<number> => {
  const parts = Object.hasOwn(PAGES, program) ? PAGES[program] : undefined
  if (parts === undefined) throw usageError(`${JSON.stringify(program)} has no manual page`, `one of ${Object.keys(PAGES).join(', ')}`)
  await write(context.stdout, markdown ? referencePage(Object.values(PAGES).flat()) : manualPage(parts))
  return 0
}
