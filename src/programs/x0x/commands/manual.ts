import type { CommandSpec } from '../../../command-line/command.ts'
import { completions, COMPLETION_SCRIPTS, SHELLS } from '../../../command-line/completion.ts'
import { manualPage } from '../../../command-line/man.ts'
import { BUNDLE } from '../../../command-line/bundle.ts'
import { DESK } from '../../../command-line/desk.ts'
import { MCP } from '../../../command-line/mcp.ts'
import { REXD, REXD_EXEC } from '../../../command-line/rexd.ts'
import { REXEC } from '../../../command-line/rexec.ts'
import { UI } from '../../../command-line/ui.ts'
import { X0X } from '../../../command-line/x0x.ts'
import { X0XD } from '../../../command-line/x0xd.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { write } from '../../../supervision/program-output.ts'

const PAGES: Readonly<Record<string, readonly [CommandSpec, ...CommandSpec[]]>> = {
  x0x: [X0X, MCP, UI, DESK, BUNDLE],
  x0xd: [X0XD],
  rexd: [REXD, REXD_EXEC],
  rexec: [REXEC],
}

/** `x0x completion SHELL`, and what the scripts of all shells ask: `x0x completion words -- LINE...`. */
export const runCompletion = async (context: CliContext, what: string, line: readonly string[]): Promise<number> => {
  const shell = SHELLS.find((name) => name === what)
  if (shell === undefined && what !== 'words')
    throw usageError(`${JSON.stringify(what)} is no shell that is known here`, `one of ${SHELLS.join(', ')}`)
  const found = completions(Object.values(PAGES).flat(), line).map(([word, text]) => `${word}\t${text}\n`)
  await write(context.stdout, shell === undefined ? found.join('') : COMPLETION_SCRIPTS[shell])
  return 0
}

/** `x0x man PROGRAM`. */
export const runMan = async (context: CliContext, program: string): Promise<number> => {
  const parts = Object.hasOwn(PAGES, program) ? PAGES[program] : undefined
  if (parts === undefined) throw usageError(`${JSON.stringify(program)} has no manual page`, `one of ${Object.keys(PAGES).join(', ')}`)
  await write(context.stdout, manualPage(parts))
  return 0
}
