import { visibleJson } from '../base/visible-text.ts'

/** How many bytes of a journal's line a command takes, MAX_COMMAND_JSON at most: its argv and the names of its variables, as JSON in which nothing is invisible. */
export const commandSize = (argv: readonly string[], variables: readonly string[]): number =>
  Buffer.byteLength(visibleJson(JSON.stringify([argv, variables])))
