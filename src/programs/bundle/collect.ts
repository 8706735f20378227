import { constants } from 'node:fs'
import { access, readFile, stat } from 'node:fs/promises'
import { arch, freemem, loadavg, platform, release, totalmem, uptime } from 'node:os'
import type { Readable } from 'node:stream'
import { AppError, attempt, isAppError } from '../../base/errors.ts'
import { unreadable } from '../../base/files.ts'
import { type Environment, VERSION } from '../../base/runtime.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { LocalApi } from '../../clients/daemon.ts'
import { type DataPaths, defaultAclPath } from '../../clients/paths.ts'
import { type ConfigFlags, type DaemonConfig, SETTING_KEYS, readConfig } from '../../config/config.ts'
import { doctor } from '../../doctor/doctor.ts'
import type { Examiner } from '../../doctor/examiner.ts'
import type { Finding } from '../../doctor/findings.ts'
import { lastLines } from '../../journal/tail.ts'
import { inspectAcl } from '../../policy/mesh/load-acl.ts'
import { knownNames } from './known-names.ts'
import { processesOf } from './processes.ts'
import { Redactor } from './redactor.ts'

export interface BundleFlags extends ConfigFlags {
  readonly file: string | null
  /** A file; `-` for standard input. */
  readonly log: string | null
  readonly json: boolean
}

export const bundleFlags = (line: CommandLine): BundleFlags => {
  const acl = line.value('exec-acl')
  return {
    file: line.words[0] ?? null,
    log: line.value('log'),
    json: line.has('json'),
    name: line.value('name'),
    config: line.value('config'),
    dataDir: line.value('data-dir'),
    executorSocket: null,
    settings: acl === null ? {} : { 'exec-acl': acl },
  }
}

/** Lines quoted of each file. */
const MAX_LINES = 200
const MAX_TAIL_BYTES = 2 * 1024 * 1024

type Line = Readonly<Record<string, unknown>>

const parsed = (lines: readonly string[]): readonly (Line | null)[] =>
  lines
    .filter((line) => line.trim() !== '')
    .slice(-MAX_LINES)
    .map((line) => {
      // Lines from systemd's journal start with a priority.
      const value = attempt(() => JSON.parse(line.replace(/^<\d>/, '')) as unknown)
      return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Line) : null
    })

/**
 * The last lines of a file of JSON lines, including the file that was renamed last. A line that is not an object is null, and so is the
 * result without a file.
 */
export const linesOfFile = async (path: string): Promise<readonly (Line | null)[] | null> => {
  const { lines } = await lastLines(path, { lines: MAX_LINES, maxBytes: MAX_TAIL_BYTES }).catch(() => ({ lines: [] }))
  const isThere = lines.length > 0 || (await stat(path).catch(() => null))?.isFile() === true
  return isThere ? parsed(lines.map(String)) : null
}

/** The last lines of a stream, which is read to its end. */
export const linesOfStream = async (stream: Readable): Promise<readonly (Line | null)[]> => {
  let text = ''
  for await (const part of stream as AsyncIterable<Buffer>) text = `${text}${part.toString('latin1')}`.slice(-MAX_TAIL_BYTES)
  return parsed(Buffer.from(text, 'latin1').toString('utf8').split('\n'))
}

/** Files whose content must never leave the machine. */
const SECRET_FILES = ['agentKey', 'machineKey', 'operatorKey', 'apiToken', 'metricsToken'] as const satisfies readonly (keyof DataPaths)[]
const HEX_KEY = /[0-9a-f]{32,}/g
/** The token of the approval service's socket, in the approvals store. */
const STORE_TOKEN = /"token"\s*:\s*"([^"]{16,})"/g

/** Every form in which a secret of this installation could be written. An unreadable file has no secret that this process could quote. */
export const secretsOf = async (paths: DataPaths): Promise<string[]> => {
  const texts = await Promise.all(SECRET_FILES.map(async (name) => readFile(paths[name], 'latin1').catch(() => '')))
  const store = await readFile(paths.approvals, 'utf8').catch(() => '')
  const hex = texts.flatMap((text) => text.match(HEX_KEY) ?? [])
  const bytes = hex.map((key) => Buffer.from(key, 'hex'))
  const encoded = bytes.flatMap((key) => [key.toString('base64').replace(/=+$/, ''), key.toString('base64url')])
  return [...hex, ...encoded, ...[...store.matchAll(STORE_TOKEN)].map(([, token = '']) => token)]
}

/** A final check before anything is written. */
export const assertWithout = (text: string, secrets: readonly string[]): void => {
  if (secrets.some((secret) => text.includes(secret)))
    throw new AppError('internal', 'the bundle would contain a secret of this installation, so it was not written')
}

/** Above the sum of the limits of all parts. */
const MAX_BUNDLE_BYTES = 8 * 1024 * 1024

/** Topics of findings that contain no foreign text, apart from names that can be found and hashed. */
const TOLD_TOPICS = new Set(
  'runtime,data,user,group,agent key,machine key,operator key,API token,contacts,revocations,detached runs,unlisted peers,clock,daemon,processes,peers,mesh,DHT,audit log,request log,containment,approval service,approvers,API port,mesh port'.split(
    ',',
  ),
)

/** Topics that are only included if nothing is wrong. */
const TOLD_WHEN_WELL = new Set(['configuration', 'ACL', 'reachability'])

const DIAGNOSTICS = { exec: '/diagnostics/exec', dm: '/diagnostics/dm', mesh: '/diagnostics/mesh', health: '/health' } as const

const findingOf = (redactor: Redactor, { standing, topic, text, remedy }: Finding): object => {
  const isTold = TOLD_TOPICS.has(topic) || (standing === 'ok' && TOLD_WHEN_WELL.has(topic))
  if (!isTold) return { standing, topic, text: '… (it may quote a file: x0xd --doctor)' }
  return { standing, topic, text: redactor.sentence(text), remedy: remedy === null ? null : redactor.sentence(remedy) }
}

/** Counters of the daemon; without an answer, the error code. */
const diagnosticsOf = async (api: LocalApi): Promise<Record<string, unknown>> => {
  const asked = Object.entries(DIAGNOSTICS).map(async ([name, path]): Promise<[string, unknown]> => [
    name,
    await api.json<unknown>({ method: 'GET', path }).catch((error: unknown) => ({ error: isAppError(error) ? error.code : 'internal' })),
  ])
  return Object.fromEntries(await Promise.all(asked))
}

/** Values of settings, if they name nothing. */
const settingsOf = (config: DaemonConfig): Record<string, unknown> => ({
  ...Object.fromEntries(SETTING_KEYS.map((key) => [key, config[key]])),
  exec_acl: config.exec_acl === defaultAclPath(config.name, config.paths) ? 'enabled' : config.exec_acl,
  network_user: config.network_user === null ? null : 'another',
})

const logLines = (redactor: Redactor, lines: readonly (Readonly<Record<string, unknown>> | null)[]): unknown[] =>
  lines.map((line) => {
    if (line === null) return '… (not a line of x0x)'
    const { msg, err, error, ...fields } = line
    const said = Object.entries({ msg, err, error }).flatMap(([name, text]) =>
      typeof text === 'string' ? [[name, redactor.sentence(text)]] : [],
    )
    return { ...(redactor.value(fields) as object), ...Object.fromEntries(said) }
  })

/** The bundle as text. Throws `internal` if it would contain a secret. */
export const collect = async (
  flags: BundleFlags,
  examiner: Examiner,
  env: Environment,
  stdin: () => NodeJS.ReadStream,
): Promise<string> => {
  const log = flags.log === null ? null : flags.log === '-' ? await linesOfStream(stdin()) : await linesOfFile(flags.log)
  if (flags.log !== null && log === null) {
    const why: unknown = await access(flags.log, constants.R_OK).catch((error: unknown) => error)
    throw unreadable('not_found', flags.log, why ?? new Error('is not a regular file'), `--log: ${flags.log}`)
  }
  const reading = await readConfig(flags, env)
  const { config } = reading
  const api = new LocalApi({ instance: { name: config.name, dataDir: config.paths.dir }, url: null, env })
  const diagnostics = await diagnosticsOf(api)
  const { acl } = await inspectAcl(config.exec_acl).catch(() => ({ acl: null }))
  const journalPath = acl?.audit_log_path ?? null
  const journals = {
    journal: journalPath === null ? null : await linesOfFile(journalPath),
    requests: await linesOfFile(config.paths.outgoing),
    approvals: await linesOfFile(config.paths.approvalsJournal),
  }
  const lines = [...Object.values(journals).flatMap((some) => some ?? []), ...(log ?? [])]
  const redactor = new Redactor(await knownNames(config, acl, lines))
  const bundle = {
    about:
      'A support bundle of x0x. #… are hashes under a key that was deleted; … marks text that was removed. Read it before you send it.',
    bundle_version: 1,
    made_at: new Date().toISOString(),
    versions: {
      x0x: VERSION,
      node: process.versions.node,
      openssl: process.versions.openssl,
      system: `${platform()} ${release()} ${arch()}`,
    },
    machine: { memory: totalmem(), free: freemem(), load: loadavg(), uptime_secs: Math.round(uptime()) },
    processes: await processesOf(config.paths),
    configuration: redactor.value(settingsOf(config)),
    configuration_problems: reading.problems.length,
    findings: (await doctor(reading, examiner, env)).map((finding) => findingOf(redactor, finding)),
    diagnostics: redactor.value(diagnostics),
    ...Object.fromEntries(Object.entries(journals).map(([name, some]) => [name, some && some.map((line) => line && redactor.value(line))])),
    log: log && logLines(redactor, log),
  }
  const text = `${JSON.stringify(bundle, null, 1)}\n`
  if (text.length > MAX_BUNDLE_BYTES) throw new AppError('too_large', `the bundle would have ${text.length} bytes`)
  assertWithout(text, await secretsOf(config.paths))
  return text
}
