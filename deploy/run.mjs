// Runs the npm scripts. Installs missing packages, builds, and runs a task with the right runtime. Plain JavaScript without dependencies,
// so that it works right after a clone on any Node >= 20.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdtemp, realpath, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'

import { buildAll, buildWhatIsNew } from './build.mjs'
import { ensureInstalled } from './install.mjs'
import { findRuntime, missingRuntimeText, packageRoot, runInstead } from './runtime.mjs'

/** Tests and their daemons share compiled code in a cache, so the runtime compiles each module once. */
const KEPT_CODE = { NODE_COMPILE_CACHE: join(packageRoot, 'node_modules', '.cache', 'compile') }

const TASKS = {
  build: { builds: true },
  // With --keep the daemons of the demo continue to run.
  demo: { builds: true, keeps: true, run: (args) => ['e2e/demo.ts', ...args] },
  test: {
    builds: true,
    run: (args) => ['deploy/run-tests.mjs', ...args],
    env: KEPT_CODE,
  },
  campaign: { builds: true, run: (args) => ['deploy/run-campaign.mjs', ...args], env: { ...KEPT_CODE, X0X_TEST_CAMPAIGN: 'true' } },
  pictures: { builds: true, run: (args) => ['e2e/pictures/main.ts', ...args] },
  profile: { builds: true, run: () => ['deploy/profile.mjs'] },
  packages: { run: (args) => ['deploy/packages/main.mjs', ...args] },
  bench: { builds: true, run: (args) => ['bench/main.ts', ...args] },
  docs: { run: (args) => ['deploy/docs/main.ts', ...args] },
  check: { run: (args) => ['deploy/check.mjs', ...args] },
}

/**
 * Runs `work` with a separate temporary directory, which a sweeper process removes when this process ends for any reason. Resolves to an
 * exit status.
 */
const inOwnTemporary = async (work) => {
  // The real path, without links, is also the path that programs get from the system.
  const place = await mkdtemp(join(await realpath(tmpdir()), 'x0x-'))
  // Gives the directory the mode of the system's temporary directory, so that the same users can enter it.
  await chmod(place, (await stat(tmpdir())).mode & 0o7777)
  const options = { detached: true, stdio: ['pipe', 'ignore', 'inherit'] }
  const sweeper = spawn(process.execPath, [join(packageRoot, 'deploy', 'sweep.mjs'), place], options)
  const swept = once(sweeper, 'exit')
  // Ignores the error of a write to a sweeper that was killed.
  sweeper.stdin.on('error', () => undefined)
  process.env.TMPDIR = place
  let [status, left] = [1, null]
  try {
    status = await work()
  } finally {
    sweeper.stdin.end(status === 0 ? 'done' : '')
    ;[left] = await swept
    if (left === null) console.error(`${place} is left: who removes it was killed`)
  }
  return status || (left ?? 1)
}

const perform = async (task, args) => {
  await ensureInstalled()
  if (task.builds) {
    const begun = performance.now()
    process.stderr.write('building …\n')
    await (task.run ? buildWhatIsNew : buildAll)()
    process.stderr.write(`done in ${((performance.now() - begun) / 1000).toFixed(1)} s\n`)
  }
  if (!task.run) return 0
  const runtime = findRuntime()
  if (!runtime) throw new Error(missingRuntimeText())
  const command = task.run(args)
  if (command[0].endsWith('s') && !existsSync(join(packageRoot, command[0]))) throw new Error(`${command[0]} is missing`)
  // Tools that start `node` by name also get this runtime.
  return runInstead(runtime, command, {
    ...process.env,
    ...task.env,
    PATH: dirname(runtime) + delimiter + process.env.PATH,
  })
}

const main = async ([name, ...args]) => {
  const task = TASKS[name]
  if (!task) throw new Error(`no such task: ${name}; there are ${Object.keys(TASKS).join(', ')}`)
  process.chdir(packageRoot)
  return task.keeps ? perform(task, args) : inOwnTemporary(() => perform(task, args))
}

process.exitCode = await main(process.argv.slice(2)).catch((error) => {
  console.error(error.message)
  return 1
})
