import { Socket } from 'node:net'
import { parseArgs } from 'node:util'
import { systemClock } from '../../base/clock.ts'
import { AppError, asAppError, errorText, isAppError } from '../../base/errors.ts'
import { createLogger } from '../../base/log.ts'
import { logStages } from '../../base/run-stages.ts'
import { startAll, stopAll } from '../../base/startable.ts'
import { dial, dialService } from '../../base/unix-sockets.ts'
import { EXIT_FAILURE, firstCrash, logStopFailures, onStopSignal, printFailure, programExitStatus } from '../../cli/exit.ts'
import type { ApiSocket } from '../../doors/rest/services.ts'
import { ExecutorClient } from '../../executor-api/client.ts'
import { machineKeyOf } from '../../identity/machine-key.ts'
import { loadPrimitives } from '../../identity/primitives.ts'
import { ServiceManager } from '../../supervision/service-manager.ts'
import { activatedSocket } from '../../supervision/sockets.ts'
import { type ComposedNetwork, composeNetwork } from './compose.ts'

const NAME = 'x0xd-network'
/** There is no executor, or no longer: EX_TEMPFAIL of sysexits(3). Its unit starts us again when it is back. */
const EXIT_NO_EXECUTOR = 75

/** As the executor hands them down; the same numbers as in network-process.ts, which starts us and which we must not load. */
const CHANNEL_FD = 3
const API_SOCKET_FD = 4

/** Where the executor is, and the API's socket; and whether somebody but the executor may end us. */
interface InheritedSockets {
  readonly channel: Socket
  readonly apiSocket: ApiSocket
  readonly standsAlone: boolean
}

const USAGE = `${NAME} is the network's half of x0xd, which starts it. Alone: node ${NAME}.mjs --executor SOCKET [--api-socket PATH]\n`

/** `--of`: who started us, with the two descriptors; its value is for the list of processes alone. */
const OPTIONS = { of: { type: 'string' }, executor: { type: 'string' }, 'api-socket': { type: 'string' } } as const

/** Connects to an executor of this user. The units of deploy/ let the runtime look at no file; the directory of their socket is root's. */
const executorAt = async (path: string): Promise<Socket> => {
  const isHidden = process.permission?.has('fs.read', path) === false
  const socket = await (isHidden ? dial(path) : dialService(path))
  if (socket === null) throw new AppError('shutting_down', `no executor: nobody listens at ${path}`)
  return socket
}

const placeOf = async (argv: readonly string[]): Promise<InheritedSockets> => {
  const { values } = parseArgs({ args: [...argv], options: OPTIONS })
  if (values.of !== undefined) return { channel: new Socket({ fd: CHANNEL_FD }), apiSocket: { fd: API_SOCKET_FD }, standsAlone: false }
  const activated = activatedSocket()
  const path = values['api-socket']
  const apiSocket: ApiSocket | null = path !== undefined ? { path } : activated === null ? null : { fd: activated }
  if (values.executor === undefined || apiSocket === null) throw new AppError('bad_config', USAGE)
  const channel = await executorAt(values.executor)
  return { channel, apiSocket, standsAlone: true }
}

/** The executor decides when we end, so that programs end first; only a half that stands alone listens to its service manager. It has no file to read again: SIGHUP does nothing. */
const stopSignal = async (standsAlone: boolean): Promise<void> =>
  new Promise((resolve) => {
    onStopSignal((signal) => standsAlone && signal !== 'SIGHUP' && resolve())
  })

const begin = async (port: ExecutorClient, apiSocket: ApiSocket): Promise<ComposedNetwork> => {
  await port.start()
  const settings = await port.settings()
  const log = createLogger({ name: NAME, level: settings.log_level })
  if (settings.log_level === 'debug') logStages(log)
  const network = composeNetwork({ settings, clock: systemClock, log, machineKey: machineKeyOf(settings.machine_seed), apiSocket }, port)
  await startAll(network.entries)
  return network
}

const serve = async ({ channel, apiSocket, standsAlone }: InheritedSockets): Promise<number> => {
  const log = createLogger({ name: NAME })
  const crash = firstCrash(log, { unhandledRejections: 'log' })
  const stopping = stopSignal(standsAlone)
  const port = new ExecutorClient({ duplex: channel, log })
  // Without the executor there is nothing to do, and its children are dead already.
  let closedByUs = false
  void port.closed.then(() => closedByUs || process.exit(EXIT_NO_EXECUTOR))
  let network: ComposedNetwork
  try {
    network = await begin(port, apiSocket)
  } catch (error) {
    if (isAppError(error, 'shutting_down')) return EXIT_NO_EXECUTOR
    closedByUs = true
    // Of one that it started itself, the executor says it.
    if (standsAlone) printFailure(NAME, error)
    await port.failed(asAppError(error))
    return programExitStatus(error)
  }
  port.ready(network.apiPort())
  const manager = ServiceManager.here(log)
  const status = (): string => `api 127.0.0.1:${network.apiPort()}, connections to other machines: ${network.connections()}`
  manager.ready({ status, isWell: () => true })
  const reason = await Promise.race([stopping, port.stopAsked, crash])
  manager.stopping()
  const failures = await stopAll(network.entries)
  logStopFailures(log, failures)
  closedByUs = true
  port.stop()
  return reason === undefined && failures.length === 0 ? 0 : EXIT_FAILURE
}

/** Runs the network's half of the daemon until its executor says stop, or is gone. */
export const main = async (argv: readonly string[]): Promise<number> => {
  try {
    await loadPrimitives()
    const status = await serve(await placeOf(argv))
    // All is stopped; a library's idle timer must not keep the process.
    process.exit(status)
  } catch (error) {
    process.stderr.write(`${NAME}: ${errorText(error)}\n`)
    return isAppError(error, 'shutting_down') ? EXIT_NO_EXECUTOR : programExitStatus(error)
  }
}
