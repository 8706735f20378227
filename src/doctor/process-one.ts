import { readlinkSync } from 'node:fs'
import { basename } from 'node:path'

import { attempt } from '../base/errors.ts'
import { statOf } from '../base/proc-stat.ts'
import { warn, type Finding } from './findings.ts'

/** The launcher of x0xd, which stays its parent if it starts another Node.js, is process 1. */
const isStartedByProcessOne = (pid: number): boolean =>
  statOf(pid)[1] === '1' && basename(attempt(() => readlinkSync('/proc/1/exe')) ?? '') === basename(process.execPath)

/** Warns if x0xd is process 1 of its PID namespace, where the kernel gives it every orphan. `pid`: of the daemon, or of this process. */
export const checkProcessOne = (pid: number | null): Finding[] =>
  pid !== null && (pid === 1 || isStartedByProcessOne(pid))
    ? [
        warn(
          'process 1',
          'x0xd is process 1 of its container. It does not reap processes that commands leave behind, so they stay as zombies',
          'start it by an init: docker run --init IMAGE, or tini -s -- x0xd',
        ),
      ]
    : []
