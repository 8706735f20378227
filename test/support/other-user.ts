import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'

const OWN_IMAGE = '/proc/self/exe'

export const NOBODY = { uid: 65_534, gid: 65_534 } as const

/** Runs this Node.js as another user, even from a clone that only root may enter. Needs root. */
export const asOtherUser = (argv: readonly string[], user: { readonly uid: number; readonly gid: number } = NOBODY) =>
  spawnSync(existsSync(OWN_IMAGE) ? OWN_IMAGE : process.execPath, argv, { encoding: 'utf8', env: {}, cwd: '/', timeout: 60_000, ...user })
