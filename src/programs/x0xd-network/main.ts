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
/** EX_TEMPFAIL of sysexits(3), if the executor is missing. The unit of the executor starts this process again. */
const EXIT_NO_EXECUTOR = 75

/** Descriptors from the executor. They are the same numbers as in `network-supervisor.ts`, which must not be loaded by this program. */
const CHANNEL_FD = 3
const API_SOCKET_FD = 4

/** The connection to the executor, the socket of the API, and whether a service manager may stop this process. */
interface InheritedSockets {
  readonly channel: Socket
  readonly apiSocket: ApiSocket
  readonly standsAlone: boolean
}

const USAGE = `${NAME} is the network process of x0xd, which starts it. To start it separately: node ${NAME}.mjs --executor SOCKET --api-socket PATH (without --api-socket if systemd passes that socket)\n`

/** `--of` is set if the executor started this process and passed both descriptors. Its value only shows in the process list. */
const OPTIONS = { of: { type: 'string' }, executor: { type: 'string' }, 'api-socket': { type: 'string' } } as const

/**
 * Connects to an executor of this user. The units of `deploy/` allow the runtime no file access. With them, root owns the directory of the
 * socket.
 */
const executorAt = async (path: string): Promise<Socket> => {
  const isHidden = process.permission?.has('fs.read', path) === false
  const socket = await (isHidden ? dial(path) : dialService(path))
  if (socket === null) throw new AppError('shutting_down', `no executor listens at ${path}`)
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

/**
 * The executor decides when this process ends, so that programs end first. Only a process started on its own obeys its service manager.
 * SIGHUP has no effect, because there are no files to reload.
 */
const stopSignal = async (standsAlone: boolean): Promise<void> =>
  new Promise((resolve) => {
    onStopSignal((signal) => standsAlone && signal !== 'SIGHUP' && resolve())
  })

const begin = async (executor: ExecutorClient, apiSocket: ApiSocket): Promise<ComposedNetwork> => {
  await executor.start()
  const settings = await executor.settings()
  const log = createLogger({ name: NAME, level: settings.log_level })
  if (settings.log_level === 'debug') logStages(log)
  const network = composeNetwork(
    { settings, clock: systemClock, log, machineKey: machineKeyOf(settings.machine_seed), apiSocket },
    executor,
  )
  await startAll(network.entries)
  return network
}

const serve = async ({ channel, apiSocket, standsAlone }: InheritedSockets): Promise<number> => {
  const log = createLogger({ name: NAME })
  const crash = firstCrash(log, { unhandledRejections: 'log' })
  const stopping = stopSignal(standsAlone)
  const executor = new ExecutorClient({ duplex: channel, log })
  // Without the executor, its programs have ended too.
  let closedByUs = false
  void executor.closed.then(() => closedByUs || process.exit(EXIT_NO_EXECUTOR))
  let network: ComposedNetwork
  try {
    network = await begin(executor, apiSocket)
  } catch (error) {
    if (isAppError(error, 'shutting_down')) return EXIT_NO_EXECUTOR
    closedByUs = true
    // If the executor started this process, it reports the error.
    if (standsAlone) printFailure(NAME, error)
    await executor.failed(asAppError(error))
    return programExitStatus(error)
  }
  executor.ready(network.apiPort())
  const manager = ServiceManager.here(log)
  const status = (): string => `api 127.0.0.1:${network.apiPort()}, connections to other machines: ${network.connections()}`
  manager.ready({ status, isWell: () => true })
  const reason = await Promise.race([stopping, executor.stopAsked, crash])
  manager.stopping()
  const failures = await stopAll(network.entries)
  logStopFailures(log, failures)
  closedByUs = true
  executor.stop()
  return reason === undefined && failures.length === 0 ? 0 : EXIT_FAILURE
}

/** Runs the network process until its executor stops it or ends. */
export const main = async (argv: readonly string[]): Promise<number> => {
  try {
    await loadPrimitives()
    const status = await serve(await placeOf(argv))
    // Everything has stopped. An idle timer of a library must not keep the process alive.
    process.exit(status)
  } catch (error) {
    process.stderr.write(`${NAME}: ${errorText(error)}\n`)
    return isAppError(error, 'shutting_down') ? EXIT_NO_EXECUTOR : programExitStatus(error)
  }
}
