import { fstatSync } from 'node:fs'
import { isatty } from 'node:tty'

import type { CliIo } from './context.ts'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Open, and no terminal any more. */
const hungUp = (fd: number): boolean => {
  try {
    return fstatSync(fd).isCharacterDevice() && !isatty(fd)
  } catch {
    return false
  }
}

/** The real streams and signals of this process. */
export const processIo = (): CliIo => {
  const { stdout, stderr } = process
  const terminals = [0, 1, 2].filter((fd) => isatty(fd))
  return {
    get stdin() {
      return process.stdin
    },
    stdout,
    stderr,
    onSignal: (listener) => {
      for (const signal of SIGNALS) process.on(signal, listener)
      return () => {
        for (const signal of SIGNALS) process.off(signal, listener)
      }
    },
    endWhereHungUp: () => {
      if (!terminals.some(hungUp)) return
      process.removeAllListeners('SIGHUP')
      process.kill(process.pid, 'SIGHUP')
    },
  }
}
