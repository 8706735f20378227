import assert from 'node:assert/strict'

import type { CommandSpec } from '../../src/cli/command.ts'
import type { CommandLine } from '../../src/cli/parse.ts'
import { programLine } from '../../src/cli/program-line.ts'

/** A line of a program that asks for neither help nor the version. */
export const lineOf = (program: CommandSpec, argv: readonly string[]): CommandLine => {
  const line = programLine(program, argv)
  return typeof line === 'string' ? assert.fail(line) : line
}
