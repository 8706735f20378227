import type { PatternToken } from '../../protocol/argv-template.ts'

/** Tokens of a command, optionally followed by any arguments. */
export interface CommandPattern {
  readonly argv: readonly string[]
  readonly tokens: readonly PatternToken[]
  readonly anyArguments: boolean
}

/** A command that needs an approver for each run, whatever else allows it. */
export interface AlwaysAskRule extends CommandPattern {
  readonly reason: string
  readonly line: number
}
