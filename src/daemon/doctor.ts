import { constants } from 'node:fs'
import { access, stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname } from 'node:path'

import { errorText, isAppError } from '../base/errors.ts'
import { loadSeed } from '../identity/key-file.ts'
import { primitives } from '../identity/primitives.ts'
import { inspectAcl } from '../policy/load-acl.ts'
import { shortId } from '../protocol/ids.ts'
import { Contacts } from '../trust/contacts.ts'
import { checkAcl, checkDataDir } from './check.ts'
import type { ConfigReading, DaemonConfig, Environment } from './config.ts'
import { fail, ok, warn, type Finding } from './findings.ts'
import { LocalApi } from './local-api.ts'
import { lockHolder } from './lock.ts'
import { dataDirMode } from './settings.ts'

const checkRuntime = (): Finding => {
  const { name } = primitives()
  const text = `Node ${process.versions.node}, post-quantum primitives: ${name}`
  if (name === 'native') return ok('runtime', text)
  return warn('runtime', `${text} (about ten times slower)`, 'use Node 24.7 or newer with OpenSSL 3.5, and unset X0X_CRYPTO')
}

const checkKey = async (topic: string, path: string, header: string | null, groupMayRead = false): Promise<Finding> => {
  try {
    await loadSeed({ path, header, groupMayRead })
    return ok(topic, path)
  } catch (error) {
    if (isAppError(error, 'not_found')) return ok(topic, `${path} will be made at the first start`)
    const remedy = isAppError(error) && typeof error.data['remedy'] === 'string' ? error.data['remedy'] : null
    return fail(topic, errorText(error), remedy)
  }
}

const checkKeys = async ({ paths, share_with_group }: DaemonConfig): Promise<Finding[]> =>
  Promise.all([
    checkKey('agent key', paths.agentKey, 'x0x-agent-key-v1'),
    checkKey('machine key', paths.machineKey, 'x0x-machine-key-v1'),
    checkKey('operator key', paths.operatorKey, null, share_with_group),
    checkKey('api token', paths.apiToken, null, share_with_group),
  ])

const checkContacts = async (path: string): Promise<Finding> => {
  try {
    const contacts = new Contacts({ path })
    await contacts.load()
    const list = contacts.list()
    const trusted = list.filter(({ trust }) => trust === 'trusted')
    const unpinned = trusted.filter(({ machines }) => machines.length === 0)
    if (unpinned.length === 0) return ok('contacts', `${list.length}, of which ${trusted.length} trusted`)
    const names = unpinned.map(({ name }) => name).join(', ')
    return warn(
      'contacts',
      `trusted from any machine: ${names}`,
      'x0x contacts pin NAME MACHINE, so that a stolen agent key is of no use elsewhere',
    )
  } catch (error) {
    return fail('contacts', errorText(error), 'mend the file or move it away')
  }
}

const checkJournal = async (aclPath: string): Promise<Finding> => {
  const { acl } = await inspectAcl(aclPath)
  if (acl === null || acl.audit_log_path === null) return ok('journal', 'none is configured, none is needed while exec is disabled')
  const path = acl.audit_log_path
  const directory = dirname(path)
  try {
    if ((await stat(path).catch(() => null)) !== null) await access(path, constants.W_OK)
    else if ((await stat(directory).catch(() => null)) !== null) await access(directory, constants.W_OK)
    else return ok('journal', `${path}; its directory will be made at the first start`)
    return ok('journal', path)
  } catch (error) {
    return fail(
      'journal',
      `${path} cannot be written: ${errorText(error)}; every request would be denied`,
      `make ${directory} writable for this user`,
    )
  }
}

const bindError = async (host: string, port: number): Promise<string | null> =>
  new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(null)))
  })

/** Whether what the daemon will listen on is free; asked only while it does not run. */
const checkPorts = async (config: DaemonConfig): Promise<Finding[]> => {
  const wanted = [['api port', '127.0.0.1', config.api_port] as const, ...config.listen.flatMap(meshEndpoint)]
  return Promise.all(
    wanted.map(async ([topic, host, port]) => {
      const error = port === 0 ? null : await bindError(host, port)
      const text = port === 0 ? `${host}, any free port` : `${host}:${port}`
      if (error === null) return ok(topic, `${text} is free`)
      return fail(
        topic,
        `${text} cannot be taken: ${error}`,
        `choose another with ${topic === 'api port' ? '--api-port' : '--listen'}, or stop what uses it`,
      )
    }),
  )
}

const meshEndpoint = (address: string): (readonly ['mesh port', string, number])[] => {
  const [, kind = '', host = '', , port = ''] = address.split('/')
  return kind.startsWith('ip') ? [['mesh port', host, Number(port)]] : []
}

/** The clock of another machine may differ by this much before announcements and proofs are refused. */
const CLOCK_SLACK_MS = 300_000

const checkClock = async (config: DaemonConfig): Promise<Finding> => {
  const now = new Date()
  const files = await Promise.all(
    [config.paths.agentKey, config.paths.contacts, process.execPath].map(async (path) => stat(path).catch(() => null)),
  )
  const newest = Math.max(...files.map((info) => info?.mtimeMs ?? 0))
  if (now.getTime() + CLOCK_SLACK_MS >= newest) return ok('clock', `${now.toISOString()}; peers may differ by 5 minutes`)
  return fail(
    'clock',
    `${now.toISOString()} is before files of ours were written (${new Date(newest).toISOString()})`,
    'set the clock, and keep it right with NTP',
  )
}

interface RunningAnswers {
  readonly agent: { readonly agent_id: string; readonly machine_id: string }
  readonly peers: { readonly peers: readonly { readonly connected?: boolean }[] }
  readonly exec: { readonly journal?: { readonly path: string | null; readonly writable: boolean } | null }
}

const ask = async (config: DaemonConfig, env: Environment): Promise<RunningAnswers> => {
  const api = new LocalApi({ instance: { name: config.name, dataDir: config.paths.dir }, url: null, env })
  const get = async <K extends keyof RunningAnswers>(path: string): Promise<RunningAnswers[K]> => api.json({ method: 'GET', path })
  const [agent, peers, exec] = await Promise.all([get<'agent'>('/agent'), get<'peers'>('/peers'), get<'exec'>('/diagnostics/exec')])
  return { agent, peers, exec }
}

/** What the running daemon itself says. */
const checkRunning = async (config: DaemonConfig, pid: number, env: Environment): Promise<Finding[]> => {
  try {
    const { agent, peers, exec } = await ask(config, env)
    const connected = peers.peers.filter((peer) => peer.connected !== false).length
    const journal = exec.journal
    return [
      ok('daemon', `runs with pid ${pid}: agent ${shortId(agent.agent_id)}, machine ${shortId(agent.machine_id)}`),
      connected > 0
        ? ok('peers', `${connected} connected`)
        : warn('peers', 'none is connected', 'x0x contacts import LINK, or --bootstrap; see x0x diagnostics mesh'),
      ...(journal?.writable === false && journal.path !== null
        ? [fail('journal', `the daemon cannot write ${journal.path}: every request is denied`, 'make room or mend its permissions')]
        : []),
    ]
  } catch (error) {
    return [
      fail(
        'daemon',
        `pid ${pid} holds the data directory but does not answer: ${errorText(error)}`,
        `look at its log; as a last resort: kill ${pid}`,
      ),
    ]
  }
}

/** `x0xd --doctor`: the installation, piece by piece, each with its remedy. Changes nothing. */
export const doctor = async ({ config, problems }: ConfigReading, env: Environment): Promise<Finding[]> => {
  const pid = await lockHolder(config.paths.lock)
  return [
    checkRuntime(),
    ...(problems.length > 0
      ? problems.map((problem) => fail('config', problem, null))
      : [ok('config', config.config_file ?? 'no file; flags, environment and defaults')]),
    await checkDataDir(config.paths.dir, dataDirMode(config)),
    ...(await checkKeys(config)),
    await checkContacts(config.paths.contacts),
    ...(await checkAcl(config.exec_acl, config.exec_acl_explicit)),
    await checkJournal(config.exec_acl),
    await checkClock(config),
    ...(pid === null ? [ok('daemon', 'does not run'), ...(await checkPorts(config))] : await checkRunning(config, pid, env)),
  ]
}
