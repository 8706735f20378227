// Finds the runtime that the daemons and the tests need. Plain JavaScript for any Node >= 20.
import { spawn } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)))

/** Native ML-DSA and ML-KEM (OpenSSL 3.5) and type stripping without a flag. */
const NEEDED = [24, 7]
const NATIVE = [3, 5]
/** The release that package.json pins; an older one of it lacks what was mended since, also in the permission model. */
export const PINNED = [24, 21]

const currentIsNewEnough = () => {
  const [major, minor] = process.versions.node.split('.').map(Number)
  return major > NEEDED[0] || (major === NEEDED[0] && minor >= NEEDED[1])
}

/** The runtime packages are built against glibc; on another C library they cannot start. */
const canStartPinned = () => {
  if (process.platform !== 'linux') return true
  // Of the report only its head is wanted; to list the interfaces of the network takes longer than all the rest.
  process.report.excludeNetwork = true
  return process.report.getReport().header.glibcVersionRuntime !== undefined
}

const pinnedRuntime = () => {
  const name = `node-${process.platform}-${process.arch}`
  try {
    const path = join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), 'bin', 'node')
    return existsSync(path) && canStartPinned() ? realpathSync(path) : undefined
  } catch {
    return undefined
  }
}

/** As good as the pinned one: of its major release, which is what the tests run under, no older, and with an OpenSSL that knows the new signatures. */
const currentIsAsGood = () => {
  const [major, minor] = process.versions.node.split('.').map(Number)
  const [ssl, sslMinor] = process.versions.openssl.split('.').map(Number)
  return major === PINNED[0] && minor >= PINNED[1] && (ssl > NATIVE[0] || (ssl === NATIVE[0] && sslMinor >= NATIVE[1]))
}

/**
 * The path of a runtime that is new enough: the one that runs this where it is as good, for it need not be started again; or
 * else the pinned one; or else the one that runs this. `undefined` when none is.
 */
export const findRuntime = () => {
  const current = currentIsNewEnough() ? realpathSync(process.execPath) : undefined
  return current && currentIsAsGood() ? current : (pinnedRuntime() ?? current)
}

export const missingRuntimeText = () =>
  `x0x needs Node.js ${NEEDED.join('.')} or newer; this is ${process.versions.node}, and the package ` +
  `node-${process.platform}-${process.arch}, which would bring it along, is not installed.\n` +
  'Reinstall without omitting optional dependencies, or start this with a newer node.'

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2']
/** A terminal sends these to the child itself; forwarding would deliver them twice. */
const FROM_TERMINAL = new Set(['SIGINT', 'SIGQUIT', 'SIGHUP'])

/**
 * Runs a program in our place: same terminal, signals passed on. Resolves to its exit status, 128+n for a signal.
 * `tied`: it gets a channel to us, whose end tells it that we are gone, also when we were killed.
 */
export const runInstead = (file, args, env = process.env, { tied = false } = {}) =>
  new Promise((resolve, reject) => {
    let child
    const forward = (signal) => {
      if (!(process.stdin.isTTY && FROM_TERMINAL.has(signal))) child.kill(signal)
    }
    // Before the program starts: a signal in between would end us and leave the program.
    for (const signal of FORWARDED) process.on(signal, forward)
    const done = () => {
      for (const signal of FORWARDED) process.off(signal, forward)
    }
    try {
      child = spawn(file, args, { stdio: tied ? ['inherit', 'inherit', 'inherit', 'ipc'] : 'inherit', env })
    } catch (error) {
      done()
      throw error
    }
    child.once('error', (error) => {
      done()
      reject(error)
    })
    child.once('exit', (code, signal) => {
      done()
      resolve(signal ? 128 + constants.signals[signal] : code)
    })
  })
