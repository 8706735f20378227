// Run by `npm run profile`: starts both processes of a daemon, runs a command, and stops them. Each process writes NAME.txt, the list of its
// functions that ran, into the given directory.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Script } from 'node:vm'

import { mainOf, scriptOf } from './compiled-script.mjs'
import { profileFunctions } from './profiled-functions.mjs'
import { packageRoot } from './runtime.mjs'

const dist = (name) => join(packageRoot, 'dist', name)

/** Runs one of the two processes in this process, and writes its list at the end. */
const runProcess = async (name, directory, words) => {
  process.once('exit', await profileFunctions(name, directory))
  const { file, bytes, url } = scriptOf(name)
  process.exitCode = await mainOf(new Script(bytes.toString(), { filename: file }), file, url)(words, process.env)
}

const POLL_MS = 50

const use = async (directory) => {
  const data = join(directory, 'data')
  const [acl, socket] = [join(directory, 'exec-acl.toml'), join(directory, 'executor.sock')]
  const env = { PATH: process.env.PATH, HOME: directory, X0X_MDNS: 'false', X0X_CONTAINMENT: 'group' }
  const running = new Set()
  const start = (name, words) => {
    // With a channel, x0xd ends when this process ends, even if it is killed.
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
    // The ACL needs the ID of the agent, which the first start creates.
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
  // A connection attempt that still waits must not keep a failed build running.
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
