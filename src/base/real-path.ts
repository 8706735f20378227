import { realpathSync } from 'node:fs'

/**
 * Where a path leads, as the kernel says: `..` is taken from where a link has led. What `realpathSync` itself answers takes `..` from
 * the text, and so names another file than the one that is opened.
 */
export const realPath = (path: string): string => realpathSync.native(path)
