/** `process.env`, or the replacement of a test. */
export type Environment = Readonly<Record<string, string | undefined>>

import manifest from '../../package.json' with { type: 'json' }

/** Version of the program, as `--version` prints it. */
export const VERSION: string = manifest.version

/** Date of the release, for manual pages. */
export const RELEASED = '2026-11-28'
