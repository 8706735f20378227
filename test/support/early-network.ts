import { once } from 'node:events'

import { systemClock } from '../../src/base/clock.ts'
import { pathsIn } from '../../src/clients/paths.ts'
import { NetworkSupervisor } from '../../src/supervision/network-supervisor.ts'
import { silent } from './processes.ts'

/** A supervisor for the network process of this directory, created before the executor process exists. */
export const supervisorIn = (dir: string): NetworkSupervisor => {
  const init = { user: null, paths: pathsIn(dir), socketMode: 0o600, portFileMode: 0o600, watchdogMs: 30_000 }
  return new NetworkSupervisor({ clock: systemClock, log: silent }, init)
}

/** As a program, this file starts the network process of a directory early, and then waits to be killed. */
if (process.argv[1] === import.meta.filename) {
  supervisorIn(process.argv[2] ?? '').startAhead()
  setInterval(() => undefined, 60_000)
  await once(process, 'SIGUSR2')
}
