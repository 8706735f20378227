import { fstatSync } from 'node:fs'
import { isatty } from 'node:tty'
import { attempt } from '../../base/errors.ts'
import { onStopSignal } from '../../supervision/program-exit.ts'
import type { CliIo } from './context.ts'

/** Open, and no terminal any more. */
const hungUp = (fd: number): boolean => attempt(() => fstatSync(fd).isCharacterDevice()) === true && !isatty(fd)

/** The real streams and signals of this process. */
export const processIo = (): CliIo => {
  const { stdout, stderr } = process
  const terminals = [0, 1, 2].filter((fd) => isatty(fd))
  return {
    get stdin() {
      return process.stdin
    },
    ownsStdin: true,
    stdout,
    stderr,
    onSignal: onStopSignal,
    endWhereHungUp: () => {
      if (!terminals.some(hungUp)) return
      process.removeAllListeners('SIGHUP')
      process.kill(process.pid, 'SIGHUP')
    },
  }
}
