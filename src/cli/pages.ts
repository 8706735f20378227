import { BUNDLE } from './bundle.ts'
import type { CommandSpec } from './command.ts'
import { DESK } from './desk.ts'
import { MCP } from './mcp.ts'
import { REXD, REXD_EXEC } from './rexd.ts'
import { REXEC } from './rexec.ts'
import { UI } from './ui.ts'
import { X0X } from './x0x.ts'
import { X0XD } from './x0xd.ts'

/** Each program with what else is told on its page: of these manual pages, completion and the reference are made. The single file has `x0x` alone. */
export const PAGES: Readonly<Record<string, readonly [CommandSpec, ...CommandSpec[]]>> = {
  x0x: X0X.elsewhere === true ? [X0X] : [X0X, MCP, UI, DESK, BUNDLE],
  x0xd: [X0XD],
  rexd: [REXD, REXD_EXEC],
  rexec: [REXEC],
}
