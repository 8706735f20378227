import manifest from '../../package.json' with { type: 'json' }

/** Of the program; what `--version` prints. */
export const VERSION: string = manifest.version
