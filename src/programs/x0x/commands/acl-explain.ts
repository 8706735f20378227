import { errorText } from '../../../base/errors.ts'
import { shellWords } from '../../../base/format.ts'
import { pasteable } from '../../../base/hint.ts'
import { shown, shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { type AclBesideDaemon, notInForceLines } from '../../../doctor/loaded-acl.ts'
import type { DenialEvent } from '../../../journal/events.ts'
import type { Acl } from '../../../policy/mesh/acl.ts'
import { type ExplainRequest, type Explanation, explain, explanationText } from '../../../policy/mesh/explain.ts'
import { loadAcl } from '../../../policy/mesh/load-acl.ts'
import { fileCommandArgv, isPlainPath } from '../../../protocol/file-command.ts'
import { isHexId } from '../../../protocol/ids.ts'
import type { CliContext } from '../context.ts'
import { carriedCommand, usageError } from '../failure.ts'
import { printJson, printLine } from '../print.ts'
import { ABOUT_THE_ACL } from './acl-suggest.ts'
import { aclInForceHere, lastDenial } from './last-denial.ts'

/** The request to explain. */
type ExplainLine = Omit<ExplainRequest, 'acl'>

const readFile = async (file: string): Promise<Acl> => (await loadAcl({ path: file, explicit: true })).acl

const checkId = (id: string, flag: string): string => {
  if (isHexId(id)) return id
  throw usageError(
    `${flag}: ${JSON.stringify(id)} is not an id of 64 lower-case hex characters`,
    'x0x id on the machine of the requester prints both',
  )
}

const textOf = (explanation: Explanation, { argv }: ExplainLine): string => shown(explanationText(explanation, argv))

/** Further facts about the request, for users and for programs. */
interface About {
  readonly lines: readonly string[]
  readonly fields: object
}

const NOTHING: About = { lines: [], fields: {} }

/** Explains a named file, or a file that is in force. */
const explainFile = async (context: CliContext, file: string, asked: ExplainLine, about: About): Promise<number> => {
  const explanation = explain({ acl: await readFile(file), ...asked })
  if (context.json) await printJson(context, { ...explanation, ...about.fields })
  else await printLine(context, [...about.lines, textOf(explanation, asked)].join('\n'))
  return explanation.allowed ? 0 : 1
}

/** Explains the ACL in force, then the changed file after a restart. The exit status is never 0, because the file is not in force. */
const explainBoth = async (context: CliContext, acl: AclBesideDaemon, asked: ExplainLine, about: About): Promise<number> => {
  const now = acl.loaded === null ? null : explain({ acl: acl.loaded, ...asked })
  const later = await readFile(acl.file).then((read) => explain({ acl: read, ...asked }), errorText)
  if (context.json) {
    const after_restart = typeof later === 'string' ? null : later
    await printJson(context, { ...now, allowed: now?.allowed ?? false, not_in_force: acl.difference, after_restart, ...about.fields })
    return 1
  }
  const lines = [
    ...notInForceLines(acl).map(shownLine),
    '',
    ...about.lines,
    'In force now:',
    now === null ? 'unknown: this user cannot read the ACL that x0xd loaded' : textOf(now, asked),
    '',
    'After a restart:',
    typeof later === 'string' ? shown(later) : textOf(later, asked),
  ]
  await printLine(context, lines.join('\n'))
  return 1
}

const explainAsked = async (context: CliContext, acl: AclBesideDaemon, asked: ExplainLine, about: About): Promise<number> =>
  acl.difference === null ? explainFile(context, acl.file, asked, about) : explainBoth(context, acl, asked, about)

/** `x0x acl explain`: 0 if allowed; 1 if denied or the file is not in force; 2 if the file is invalid. */
export const runAclExplain = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [agent, machine] = [line.value('agent'), line.value('machine')]
  const [file = null] = line.words
  if (line.has('last') && line.behindDashes === null) return explainLast(context, file, agent)
  if (line.has('last')) throw usageError('--last takes the command from the audit log: leave out the words after "--"')
  if (agent === null || machine === null) throw usageError('name the requester: --agent ID --machine ID, or --last for the last denial')
  const [argv, detach, terminal] = [fileArgv(line) ?? carriedCommand(line, 1), line.has('detach'), line.has('terminal')]
  const asked = { agent_id: checkId(agent, '--agent'), machine_id: checkId(machine, '--machine'), argv, detach, terminal }
  if (file !== null) return explainFile(context, file, asked, NOTHING)
  return explainAsked(context, await aclInForceHere(context), asked, NOTHING)
}

/** The file command of `--file` and `--write`, or null without `--file`. */
const fileArgv = (line: CommandLine): string[] | null => {
  const path = line.value('file')
  if (path === null) return null
  if (line.behindDashes !== null || line.words.length > 1) throw usageError('--file takes the place of a command: leave out the command')
  if (!isPlainPath(path)) throw usageError(`--file: ${JSON.stringify(path)} is not an absolute path without "." and ".."`)
  const command = line.has('write')
    ? ({ op: 'write', path, upload: NO_UPLOAD, offset: 0, parents: true, finish: NO_FINISH } as const)
    : ({ op: 'read', path, offset: 0, length: 1, version: null } as const)
  return fileCommandArgv(command)
}

/** The name of an upload, which does not change the decision. */
const NO_UPLOAD = '0'.repeat(32)
/** The end of an upload, which is the part that an approver decides about. */
const NO_FINISH = { sha256: '0'.repeat(64), mode: null, mtime_ms: null, expect: null } as const

/** The next step after a denial that the ACL alone does not explain, or empty if a restart comes first. */
const nextOf = ({ reason, agent_id, machine_id, request_id }: DenialEvent, { difference }: AclBesideDaemon): string[] => {
  if (ABOUT_THE_ACL.includes(reason)) return difference === null ? [`Try: x0x acl suggest --request ${request_id}`] : []
  return reason === 'trust_rejected' || reason === 'unverified_sender'
    ? [`Try: x0x trust evaluate ${agent_id} ${machine_id}`]
    : ['See: docs/errors.md']
}

/** `x0x acl explain --last`: the last denial in this machine's audit log, and the ACL's decision now. */
const explainLast = async (context: CliContext, file: string | null, agent: string | null): Promise<number> => {
  const acl = await aclInForceHere(context)
  const { denial, name } = await lastDenial(context, acl, { request: null, agent }, () => true)
  const { ts, request_id, agent_id, machine_id, argv, argv_cut, reason, detail } = denial
  const lines = [
    `last denial, ${ts}: ${shellWords(argv)}${argv_cut === undefined ? '' : ' …'}`,
    `requested by ${name === null ? agent_id : `${name} (${agent_id})`} on machine ${machine_id}, request ${request_id}`,
    `reason   ${reason}${detail === null ? '' : `: ${detail}`}`,
    ...nextOf(denial, acl).map((hint) => pasteable(hint, context.given)),
    '',
  ].map(shownLine)
  const about = { lines, fields: { denial } }
  if (argv_cut !== undefined) {
    if (context.json) await printJson(context, about.fields)
    else await printLine(context, [...lines, 'the audit log has only the beginning of this command, so it cannot be explained'].join('\n'))
    return 1
  }
  const asked = { agent_id, machine_id, argv, detach: reason === 'detach_not_allowed', terminal: reason === 'terminal_not_allowed' }
  return file === null ? explainAsked(context, acl, asked, about) : explainFile(context, file, asked, about)
}
