import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

/** The path of another rexd to test, from X0X_TEST_REXD. Default: the built rexd. */
const OTHER = process.env['X0X_TEST_REXD']

/** The program and the arguments that start rexd. */
export const rexdCommand = (bundle = 'dist/rexd.mjs'): readonly [string, ...string[]] => {
  if (OTHER !== undefined) return [OTHER]
  const file = join(import.meta.dirname, '../..', bundle)
  assert.ok(existsSync(file), `${bundle} is missing: npm run build`)
  return [process.execPath, file]
}
