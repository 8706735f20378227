import type { PatternToken } from '../../protocol/argv-template.ts'

/** Tokens of a command; behind them whatever follows, where it is open. */
export interface CommandPattern {
  /** As written in the file. */
  readonly argv: readonly string[]
  readonly tokens: readonly PatternToken[]
  readonly anyArguments: boolean
}

/** A command that needs a human each time, whatever is allowed. */
export interface AlwaysAskRule extends CommandPattern {
  /** Shown to the human. */
  readonly reason: string
  /** The line of the file, from 1. */
  readonly line: number
}
