// Run by the build, under the runtime that is to run x0xd: starts both processes of a daemon, runs a command, and stops them. Each process
// writes NAME.cache, the code that the runtime compiled, into the given directory.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { Script } from 'node:vm'

import { functionIn, keyOf, mainOf } from './compiled-script.mjs'
import { packageRoot } from './runtime.mjs'

const dist = (name) => join(packageRoot, 'dist', name)

/** Runs one of the processes in this one, and writes its cache at the end. */
const runProcess = async (name, directory, words) => {
  const isNetwork = name === 'x0xd-network'
  const file = dist(isNetwork ? 'x0xd-network.mjs' : 'x0xd.cjs')
  const bytes = readFileSync(file)
  const text = isNetwork ? functionIn(bytes) : bytes
  const script = new Script(text.toString(), { filename: file })
  process.once('exit', () => {
    const compiled = script.createCachedData()
    writeFileSync(join(directory, `${name}.cache`), Buffer.concat([Buffer.from(keyOf(text, compiled)), compiled]))
  })
  process.exitCode = await mainOf(script, file, pathToFileURL(dist(`${name}.mjs`)).href)(words, process.env)
}

const POLL_MS = 50

const use = async (directory) => {
  const data = join(directory, 'data')
  const [acl, socket] = [join(directory, 'exec-acl.toml'), join(directory, 'executor.sock')]
  const env = { PATH: process.env.PATH, HOME: directory, X0X_MDNS: 'false', X0X_CONTAINMENT: 'group' }
  const running = new Set()
  const start = (name, words) => {
    // With a channel, x0xd ends with this process, also if that is killed.
    const stdio = ['ignore', 'pipe', 'inherit', 'ipc']
    const child = spawn(process.execPath, [import.meta.filename, name, directory, ...words], { env, stdio })
    const ended = once(child, 'exit').then(([code, signal]) => code ?? signal)
    const one = { child, ended }
    running.add(one)
    return one
  }
  const stop = async (one) => {
    running.delete(one)
    one.child.kill('SIGTERM')
    const how = await one.ended
    if (how !== 0) throw new Error(`x0xd ended with ${how}`)
  }
  const listen = ['--listen', '/ip4/127.0.0.1/tcp/0', '--api-port', '0']
  const startExecutor = async () => {
    const executor = start('x0xd', ['--data-dir', data, '--executor-socket', socket, '--exec-acl', acl, ...listen])
    const ready = await Promise.race([once(executor.child.stdout, 'data').then(String), executor.ended])
    const [, agent, machine] = /agent (\w+), machine (\w+),/.exec(ready) ?? []
    if (agent === undefined) throw new Error(`x0xd did not start: ${ready}`)
    return { executor, agent, machine }
  }
  const writeAcl = (entry) => {
    const log = JSON.stringify(join(directory, 'exec.log'))
    writeFileSync(acl, `[exec]\nenabled = true\naudit_log_path = ${log}\ndefault_cwd = "/"\n${entry}`, { mode: 0o600 })
  }
  try {
    writeAcl('')
    // The ACL names the agent, which the first start makes.
    const { executor: first, agent, machine } = await startExecutor()
    await stop(first)
    writeAcl(`[[exec.allow]]\nagent_id = "${agent}"\nmachine_id = "${machine}"\n[[exec.allow.commands]]\nargv = ["/bin/true"]\n`)
    const { executor } = await startExecutor()
    const network = start('x0xd-network', ['--executor', socket, '--api-socket', join(data, 'api.sock')])
    const ask = async () =>
      promisify(execFile)(process.execPath, [dist('x0x.cjs'), '--data-dir', data, 'exec', agent, '--', '/bin/true'], { env })
    const asked = async () => {
      for (;;) {
        try {
          return await ask()
        } catch {
          await sleep(POLL_MS)
        }
      }
    }
    await Promise.race([asked(), network.ended.then((how) => Promise.reject(new Error(`x0xd-network ended with ${how}`)))])
    await stop(network)
    await stop(executor)
  } finally {
    for (const { child } of running) child.kill('SIGKILL')
  }
}

const [first, directory, ...words] = process.argv.slice(2)
if (directory === undefined) {
  // An attempt that still waits must not keep a failed build.
  const status = await use(first).then(
    () => 0,
    (error) => {
      console.error(error.message)
      return 1
    },
  )
  process.exit(status)
}
await runProcess(first, directory, words)
