// `npm run profile`: uses the built programs as their users do, and writes the functions that run into deploy/profiles. Do this before a
// release: functions that have changed since are compiled only when they run.
import { copyFileSync } from 'node:fs'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { runInstead, packageRoot } from './runtime.mjs'
import { PROFILED } from './profiled-functions.mjs'

const directory = await realpath(await mkdtemp(join(tmpdir(), 'x0x-profile-')))
try {
  // Flags of this process would change the compiled code.
  const { NODE_OPTIONS: _flags, ...env } = process.env
  for (const maker of ['profile-rexd.mjs', 'profile-daemon.mjs']) {
    const status = await runInstead(process.execPath, [join(packageRoot, 'deploy', maker), directory], env)
    if (status !== 0) throw new Error(`${maker} ended with ${status}`)
  }
  for (const name of PROFILED) copyFileSync(join(directory, `${name}.txt`), join(packageRoot, 'deploy', 'profiles', `${name}.txt`))
} finally {
  await rm(directory, { recursive: true, force: true })
}
