// Installs the packages of the lockfile if node_modules differs from it. Plain JavaScript for any Node >= 20.
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from './runtime.mjs'

const readLock = (path) => {
  try {
    return JSON.parse(readFileSync(join(packageRoot, path), 'utf8')).packages
  } catch {
    return undefined
  }
}

const fits = (name) => {
  const [, platform, arch] = /^node_modules\/(?:node|@koromix\/koffi)-(linux|darwin|win)-(\w+)$/.exec(name) ?? []
  return platform === process.platform && arch === process.arch
}

/** True if exactly the packages of the lockfile that belong on this machine are installed, in their versions. */
const isUpToDate = () => {
  const wanted = readLock('package-lock.json')
  const installed = readLock('node_modules/.package-lock.json')
  if (!wanted || !installed) return false
  for (const [name, entry] of Object.entries(wanted)) {
    if (name === '') continue
    const found = installed[name]
    const mayBeAbsent = (entry.optional || entry.devOptional) && !fits(name)
    if (found ? found.version !== entry.version || found.integrity !== entry.integrity : !mayBeAbsent) return false
  }
  // npm still lists packages that it removed, because it runs with --no-save.
  return Object.keys(installed).every((name) => name in wanted || !existsSync(join(packageRoot, name)))
}

const npmCommand = () => {
  const { npm_execpath: script, npm_node_execpath: node } = process.env
  if (script && /npm-cli\.c?js$/.test(script)) return [node && existsSync(node) ? node : process.execPath, script]
  return ['npm']
}

/** Installs the packages of the lockfile without changing it. Resolves to npm's exit status and output. */
const runNpm = () =>
  new Promise((resolve, reject) => {
    const [file, ...args] = [
      ...npmCommand(),
      'install',
      '--no-save',
      '--ignore-scripts',
      '--include=dev',
      '--include=optional',
      '--no-audit',
      '--no-fund',
      '--loglevel=error',
    ]
    // npm passes its settings down in npm_config_*. An outer --global or --prefix must not affect this call.
    const env = Object.fromEntries(
      Object.entries(process.env).filter(([key]) => !/^npm_config_(global|prefix|local_prefix|location|omit)$/i.test(key)),
    )
    const child = spawn(file, args, { cwd: packageRoot, env, stdio: ['ignore', 'pipe', 'pipe'] })
    let said = ''
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text))
    child.once('error', reject)
    child.once('close', (code) => resolve({ code, said }))
  })

/** Installs missing packages and prints one line of progress. If npm fails, throws an Error that says what to do. */
export const ensureInstalled = async () => {
  if (isUpToDate()) return
  const begun = performance.now()
  process.stderr.write('installing dependencies (npm, no scripts) … ')
  const { code, said } = await runNpm().catch((error) => ({ code: -1, said: `npm could not be started: ${error.message}` }))
  if (code !== 0) {
    process.stderr.write('failed\n')
    throw new Error(
      `${said.trim()}\n\nnpm install failed: the lines above are its own. Check the network and the registry (npm ping), then try again.`,
    )
  }
  process.stderr.write(`done in ${((performance.now() - begun) / 1000).toFixed(1)} s\n`)
}
