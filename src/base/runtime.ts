/** `process.env`, or what a test gives instead. */
export type Environment = Readonly<Record<string, string | undefined>>

import manifest from '../../package.json' with { type: 'json' }

/** Of the program; what `--version` prints. */
export const VERSION: string = manifest.version

/** Day of the release, for manual pages. */
export const RELEASED = '2026-11-28'
