import assert from 'node:assert/strict'

import type { CommandSpec } from '../../src/cli/command.ts'
import type { CommandLine } from '../../src/cli/parse.ts'
import { programLine } from '../../src/cli/program-line.ts'

/** Parses a command line that does not ask for help or the version. */
export const lineOf = (program: CommandSpec, argv: readonly string[]): CommandLine => {
  const line = programLine(program, argv)
  return typeof line === 'string' ? assert.fail(line) : line
}
