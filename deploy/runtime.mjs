// Finds the runtime that the daemons and the tests need. Plain JavaScript for any Node >= 20.
import { spawn } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)))

/** The first version with native ML-DSA and ML-KEM (OpenSSL 3.5) and with type stripping by default. */
const NEEDED = [24, 7]
const NATIVE = [3, 5]
/** The release that package.json pins. Older releases lack fixes, some of them in the permission model. */
export const PINNED = [24, 21]

const currentIsNewEnough = () => {
  const [major, minor] = process.versions.node.split('.').map(Number)
  return major > NEEDED[0] || (major === NEEDED[0] && minor >= NEEDED[1])
}

/** The runtime packages are built against glibc and cannot start on another C library. */
const canStartPinned = () => {
  if (process.platform !== 'linux') return true
  // Only the head of the report is needed. Listing the network interfaces would take most of the time.
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

/**
 * True if the running runtime can replace the pinned one. It must have the same major release, be at least as new, and have an OpenSSL with
 * the new signatures.
 */
const currentIsAsGood = () => {
  const [major, minor] = process.versions.node.split('.').map(Number)
  const [ssl, sslMinor] = process.versions.openssl.split('.').map(Number)
  return major === PINNED[0] && minor >= PINNED[1] && (ssl > NATIVE[0] || (ssl === NATIVE[0] && sslMinor >= NATIVE[1]))
}

/**
 * Returns the path of a runtime that is new enough, or `undefined`. The running one is preferred if it can replace the pinned one, because
 * then no new process must start. Otherwise the pinned one comes first, then the running one.
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
/** Signals that a terminal also sends to the child. Forwarding would deliver them twice. */
const FROM_TERMINAL = new Set(['SIGINT', 'SIGQUIT', 'SIGHUP'])

/**
 * Runs a program instead of this one, on the same terminal, and forwards signals to it. Resolves to its exit status, or 128+n for a signal.
 * With `tied`, the program gets a channel to this process, and notices its end even if it is killed.
 */
export const runInstead = (file, args, env = process.env, { tied = false } = {}) =>
  new Promise((resolve, reject) => {
    let child
    const forward = (signal) => {
      if (!(process.stdin.isTTY && FROM_TERMINAL.has(signal))) child.kill(signal)
    }
    // Set before the program starts. Otherwise a signal in between would end this process and leave the program running.
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
