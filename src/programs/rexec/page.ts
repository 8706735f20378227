import type { Environment } from '../../base/environment.ts'
import type { Page } from '../../doors/console/entry-text.ts'
import { lookOf } from '../../doors/console/screen/look.ts'

/** How standard output shows commands. `colour`: as its flags say; null: they say nothing. */
export const pageOf = (env: Environment, colour: boolean | null): Page => {
  const isTerminal = process.stdout.isTTY === true
  return { look: lookOf({ isTerminal, env, colour }), columns: isTerminal ? (process.stdout.columns ?? null) : null }
}
