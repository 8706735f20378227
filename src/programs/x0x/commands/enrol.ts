import { existsSync } from 'node:fs'
import { type FileHandle, mkdtemp, open, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AppError, errnoOf } from '../../../base/errors.ts'
import { readBounded, unreadable } from '../../../base/files.ts'
import { counted } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { type CommandLine, durationOf } from '../../../cli/parse.ts'
import { type CreatedEnrolKey, addressWarning, createEnrolKey } from '../../../clients/enrol.ts'
import { operate } from '../../../clients/operator.ts'
import { dataDirOf } from '../../../clients/paths.ts'
import { addressProblem } from '../../../identity/address.ts'
import { peerIdOf } from '../../../identity/machine-key.ts'
import { type EntryOwner, aclOfEntries, ownedEntries } from '../../../policy/mesh/enrolled-entries.ts'
import type { AgentAnswer } from '../../../protocol/api-answers.ts'
import type { EnrolKeyAnswer, EnrolKeyRecord, EnrolKeysAnswer } from '../../../protocol/api/enrolment.ts'
import { labelsText } from '../../../protocol/hosts/labels.ts'
import { MAX_ENROL_ACL, MAX_ENROL_ADDRESSES } from '../../../protocol/limits/enrolment.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printAnswer, printDone, printHint, printLine, printNotice, printTable } from '../print.ts'
import { checkHere } from './acl.ts'

const usesOf = (line: CommandLine): number => {
  const text = line.value('uses') ?? ''
  if (!/^[1-9][0-9]{0,5}$/.test(text)) throw usageError(`--uses: ${JSON.stringify(text)} is not a number of hosts`)
  return Number(text)
}

const lifeOf = (line: CommandLine): number => {
  const text = line.value('for') ?? ''
  return durationOf(text) ?? usageFailure(`--for: ${JSON.stringify(text)} is not a time`, 'Use 30m, 2h or 7d')
}

/** The node set of --name. Before the command, --name chooses the daemon, and people may expect that after it, too. */
const namesOf = (line: CommandLine): string | null => {
  const names = line.ownValue('name')
  if (names !== null && existsSync(dataDirOf({ name: names, dataDir: null })))
    throw usageError(`--name: ${names} is a daemon of this machine`, `To use it: x0x --name ${names} enrol create`)
  return names
}

const usageFailure = (problem: string, next: string): never => {
  throw usageError(problem, next)
}

const labelsOf = (line: CommandLine): Record<string, string> => {
  const labels: Record<string, string> = {}
  for (const word of line.values('label')) {
    const [, key, value] = /^([^=]+)=(.+)$/su.exec(word) ?? []
    if (key === undefined || value === undefined || key === '__proto__')
      throw usageError(`--label: ${JSON.stringify(word)} is not a label`, 'Use KEY=VALUE')
    if (Object.hasOwn(labels, key)) throw usageError(`--label: the label ${key} is named twice`)
    labels[key] = value
  }
  return labels
}

/** Addresses of the operator for the token: those of --address, or those that the daemon knows. */
const addressesOf = (line: CommandLine, { machine_id, addresses }: AgentAnswer): readonly string[] => {
  const peerId = peerIdOf(machine_id)
  const given = line.values('address').map((text) => (text.includes('/p2p/') ? text : `${text}/p2p/${peerId}`))
  if (given.length > MAX_ENROL_ADDRESSES) throw usageError(`--address: at most ${MAX_ENROL_ADDRESSES}`)
  for (const address of given) {
    const problem = addressProblem(address, peerId)
    if (problem !== null) throw usageError(`--address: ${JSON.stringify(address)} ${problem}`)
  }
  if (given.length + addresses.length === 0)
    throw new AppError('conflict', 'this daemon listens on no address, so no host can reach it', {
      data: { next: 'Try: add a line to config.toml, such as listen = ["/ip4/0.0.0.0/tcp/5483"], and restart x0xd' },
    })
  return given.length > 0 ? given : addresses
}

/** Reads the entries of --allow and checks them as x0x acl check does, with the agent and machine of the operator. */
const entriesOf = async (context: CliContext, file: string | null, owner: EntryOwner): Promise<string> => {
  if (file === null) return ''
  let text: string
  try {
    text = (await readBounded(file, { max: MAX_ENROL_ACL, pipes: true })).toString('utf8')
  } catch (error) {
    throw unreadable('bad_acl', file, error, `--allow ${file}`)
  }
  const entries = ownedEntries(text, owner, file)
  const directory = await mkdtemp(join(tmpdir(), 'x0x-enrol-'))
  try {
    const path = join(directory, 'exec-acl.toml')
    await writeFile(path, aclOfEntries(entries, directory), { mode: 0o600 })
    const { problems, warnings } = await checkHere(path, directory)
    // The lines of the checked file are not those of the operator's.
    const ofFile = (message: string): string =>
      message
        .split(path)
        .map((part, index) => (index === 0 ? part : part.replace(/^(?::\d+)+/, '')))
        .join(file)
    if (problems.length > 0) throw new AppError('bad_acl', problems.map(ofFile).join('\n'), { data: { file } })
    for (const warning of warnings) await printNotice(context, `warning: ${shownLine(ofFile(warning))}`)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
  return entries
}

/** Creates the file of the token, private from its first byte, before the key exists. */
const newFile = async (path: string): Promise<FileHandle> => {
  try {
    return await open(path, 'wx', 0o600)
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw unreadable('bad_request', path, error, `--out ${path}`)
    throw new AppError('conflict', `${path} exists, and a token is never written over a file`, {
      data: { next: 'Try: choose another name' },
    })
  }
}

/** `x0x enrol create`. */
export const runEnrolCreate = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [uses, expires_in_ms, labels, names, out] = [usesOf(line), lifeOf(line), labelsOf(line), namesOf(line), line.value('out')]
  const agent = await context.api.json<AgentAnswer>({ method: 'GET', path: '/agent' })
  const { agent_id, machine_id } = agent
  const addresses = addressesOf(line, agent)
  const acl = await entriesOf(context, line.value('allow'), { agent_id, machine_id })
  const warning = addressWarning(addresses)
  if (warning !== null) await printNotice(context, `warning: ${warning}`)
  const file = out === null ? null : await newFile(out)
  try {
    const made = await createEnrolKey(context, { uses, expires_in_ms, labels, names, acl, agent, addresses })
    await file?.writeFile(`${made.token}\n`)
    return await reportCreated(context, made, out)
  } catch (error) {
    if (out !== null) await rm(out, { force: true })
    throw error
  } finally {
    await file?.close()
  }
}

const reportCreated = async (context: CliContext, { key, token }: CreatedEnrolKey, out: string | null): Promise<number> => {
  const place = out === null ? { token } : { file: out }
  return printAnswer(context, { ok: true, key, ...place }, async () => {
    if (out === null) await printLine(context, token)
    await printNotice(
      context,
      shownLine(`key ${key.id}: ${counted(key.uses, 'host')} until ${key.expires_at}. Keep the token like a password.`),
    )
    await printNotice(context, `on each host: x0xd --init --enrol ${out === null ? 'TOKEN' : `@FILE   (a copy of ${shownLine(out)})`}`)
  })
}

const stateShown = ({ state, uses_left }: EnrolKeyRecord): string =>
  state === 'valid' ? counted(uses_left, 'use') : state.replace('_', ' ')

export const runEnrolList = async (context: CliContext): Promise<number> => {
  const answer = await operate<EnrolKeysAnswer>(context, '/enrol/list', {})
  return printAnswer(context, answer, async () => {
    if (answer.keys.length === 0) return printHint(context, 'no enrolment keys. To create one: x0x enrol create')
    const rows = answer.keys.map((key) => [
      key.id,
      stateShown(key),
      key.expires_at,
      key.names ?? '(own names)',
      labelsText(key.labels),
      key.hosts.map(({ name, confirmed }) => (confirmed ? name : `${name} (arriving)`)).join(' '),
    ])
    return printTable(context, ['KEY', 'LEFT', 'EXPIRES', 'NAMES', 'LABELS', 'HOSTS'], rows)
  })
}

export const runEnrolRevoke = async (context: CliContext, { words: [id = ''] }: CommandLine): Promise<number> => {
  const answer = await operate<EnrolKeyAnswer>(context, '/enrol/revoke', { id })
  return printDone(context, answer, async () => printLine(context, `${answer.key.id}: revoked`))
}
