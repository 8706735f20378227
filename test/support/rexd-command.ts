import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

/** What is tried: a built rexd, or another file that is one, whose path X0X_TEST_REXD is. */
const OTHER = process.env['X0X_TEST_REXD']

/** The program and the words with which rexd is started. */
export const rexdCommand = (bundle = 'dist/rexd.mjs'): readonly [string, ...string[]] => {
  if (OTHER !== undefined) return [OTHER]
  const file = join(import.meta.dirname, '../..', bundle)
  assert.ok(existsSync(file), `${bundle} is missing: npm run build`)
  return [process.execPath, file]
}
