import { shellWord, shellWords } from '../base/format.ts'
import { findMetacharacter } from './argv-template.ts'
import { changesFiles, isFileCommand, parseFileCommand } from './file-command.ts'
import type { DenialReason } from './reasons.ts'

export interface DeniedRequest {
  /** Name of the target as the user gave it. */
  readonly host: string
  /** True if several hosts denied it for this reason. `host` is one of them. */
  readonly others?: boolean
  /** Empty if no command was requested. */
  readonly argv: readonly string[]
  /** The requester as the target sees it, or null if unknown. */
  readonly own?: { readonly machine_id: string; readonly revoked?: boolean } | null | undefined
}

export interface DenialText {
  /** The denied command, with reason code and cause. */
  readonly what: string
  /** Code and cause alone, for a line that names the hosts itself. */
  readonly cause: string
  /** Steps for the user, one line each. */
  readonly next: readonly string[]
}

/** A message shows enough of a command to recognise it. */
const MAX_SHOWN_COMMAND = 200

const commandText = (argv: readonly string[]): string => {
  const text = shellWords(argv)
  return text.length > MAX_SHOWN_COMMAND ? `${text.slice(0, MAX_SHOWN_COMMAND)}…` : text
}

/** The request in a sentence. The name and the options of a file command mean nothing to a user. */
const subjectOf = (argv: readonly string[]): string => {
  if (argv.length === 0) return 'the request'
  const command = parseFileCommand(argv)
  if (command === null) return `"${commandText(argv)}"`
  const does = changesFiles(command) ? 'writing' : command.op === 'read' || command.op === 'hash' ? 'reading' : 'access to'
  return `${does} ${commandText([command.path])}`
}

/** A whole command line in one argument, a habit from ssh. */
export const isQuotedLine = (argv: readonly string[]): boolean => argv.length === 1 && /\S\s+\S/.test(argv[0]!)

const trustLines = ({ own }: DeniedRequest, on: string): string[] => [
  `Try, ${on}, with LINK from x0x card on this machine:`,
  '  x0x contacts import LINK',
  '  x0x contacts trust NAME trusted',
  `  x0x contacts pin NAME ${shellWord(own?.machine_id ?? 'MACHINE')}`,
]

type Words = readonly [cause: string, ...next: string[]]

/** `the` is the target in a sentence. `on` is the machine on which to type a command. */
const WORDS: Readonly<Record<DenialReason, (request: DeniedRequest, the: string, on: string) => Words>> = {
  unverified_sender: (request, the, on) => [`${the} could not verify this agent`, ...trustLines(request, on)],
  trust_rejected: (request, the, on) =>
    request.own?.revoked === true
      ? ['this agent has been revoked permanently', 'Try: x0xd --init with a new --data-dir, and let others import and trust its card']
      : [`${the} does not trust this agent on this machine`, ...trustLines(request, on)],
  request_id_used: ({ host, argv }, _the, on) => [
    'a run with this request ID was started before',
    `Try: x0x exec ${shellWord(host)} -- ${commandText(argv)}   (a new request ID)`,
    `Try, ${on}: x0x audit tail   (how that run ended)`,
  ],
  draining: ({ host, argv }, the) => [
    `${the} is draining: it is about to restart and accepts no new commands until then. Nothing ran`,
    ...(argv.length === 0 || isFileCommand(argv)
      ? ['Try: the same command again']
      : [`Try: x0x exec ${shellWord(host)} -- ${commandText(argv)}`]),
  ],
  exec_disabled: (_request, the, on) => [`${the} does not run commands for anyone`, `Try, ${on}: x0xd --doctor`],
  agent_machine_not_in_acl: (_request, the, on) => [
    `the ACL of ${the} has no entry for this agent and machine`,
    `Try, ${on}: x0x acl explain --last`,
    `Try, ${on}: x0x acl suggest`,
  ],
  argv_not_allowed: ({ host, argv }, _the, on) => [
    isFileCommand(argv) ? 'no files table for this agent in the ACL allows that' : 'no ACL entry for this agent matches that command',
    `Try: x0x acl mine ${shellWord(host)}`,
    `Try, ${on}: x0x acl explain --last`,
    `Try, ${on}: x0x acl suggest`,
  ],
  shell_metachar_in_argv: ({ argv }, _the, on) => {
    const found = findMetacharacter(argv)
    const where =
      found === null ? 'an argument contains a shell character' : `argument ${found.token + 1} contains ${JSON.stringify(found.character)}`
    return [`${where}. x0x does not use a shell`, `Try: put the command line into a script, ${on}, and allow the script`]
  },
  cwd_not_allowed: (_request, _the, on) => [
    'a requester cannot choose the working directory',
    `Try: leave the working directory out; default_cwd in the ACL, ${on}, decides`,
  ],
  detach_not_allowed: ({ host }, _the, on) => [
    'the ACL entry does not let this command run detached, or store as much output as requested',
    'Try: run it without --detach',
    `Try, ${on}: detach = true in the ACL entry (see x0x acl mine ${shellWord(host)})`,
  ],
  terminal_not_allowed: (_request, _the, on) => [
    'the ACL does not let this command run on a terminal',
    'Try: run it without -t',
    `Try, ${on}: terminal = true in its [[exec.allow.commands]] block, then restart x0xd`,
  ],
  stdin_too_large: (_request, _the, on) => [
    'stdin is larger than the limit',
    `Try: send less stdin, or, ${on}: raise max_stdin_bytes in the ACL (stdin = false closes it)`,
  ],
  timeout_too_large: (_request, _the, on) => [
    'the timeout is longer than the limit',
    `Try: a shorter timeout, or, ${on}: raise max_duration_secs in the ACL`,
  ],
  concurrency_limit_reached: (_request, _the, on) => [
    'too many commands are running on it already',
    'Try: wait until one has ended (x0x exec sessions)',
    `Try, ${on}: raise max_concurrent_per_agent or max_concurrent_total in the ACL`,
  ],
  approval_denied: (_request, the) => ['an approver refused it', `Try: ask the approvers of ${the}`],
  approval_timeout: (_request, the) => ['no approver answered in time', `Try: ask the approvers of ${the}`],
  approval_unavailable: (_request, _the, on) => ['no approver was connected', `Try, ${on}: x0x approvals watch`],
  approval_mismatch: () => ['the command has changed since it was approved', 'Try: run it again, for a new approval'],
  audit_unavailable: (_request, the, on) => [`${the} cannot write its audit log, so nothing may run`, `Try, ${on}: x0xd --doctor`],
  recording_unavailable: (_request, the, on) => [
    `${the} must record this command but cannot: its disk or its space for recordings is full`,
    `Try, ${on}: x0x audit tail -n 5   (the reason)`,
    `Try, ${on}: x0x transcripts list --terminals`,
  ],
  spawn_failed: (_request, _the, on) => ['the program could not be started', `Try, ${on}: x0x audit tail -n 5   (the reason)`],
}

/** Denials after the pair was found in the ACL. */
const AFTER_THE_PAIR: readonly string[] = ['argv_not_allowed', 'agent_machine_not_in_acl', 'shell_metachar_in_argv']

const quotedLine = ({ host, argv }: DeniedRequest): string[] => {
  const words = argv[0]!.trim().split(/\s+/)
  return [`${shellWord(argv[0]!)} is one word: leave the quotes out`, `Try: x0x exec ${shellWord(host)} -- ${shellWords(words)}`]
}

/** Text of a denial for all interfaces. An unknown reason is shown by its code. */
export const denialText = (reason: string, request: DeniedRequest): DenialText => {
  const { host, argv, others = false } = request
  const on = others ? 'on each host' : `on ${host}`
  // The target may have a newer version with further reasons.
  const words = Object.hasOwn(WORDS, reason) ? WORDS[reason as DenialReason] : null
  const [said, ...next] = words === null ? [null, `Try, ${on}: x0x audit tail`] : words(request, others ? 'the host' : host, on)
  const cause = said === null ? reason : `${reason}: ${said}`
  const hint = AFTER_THE_PAIR.includes(reason) && isQuotedLine(argv) ? quotedLine(request) : []
  const what =
    reason === 'spawn_failed'
      ? `${host} could not start ${JSON.stringify(argv[0] ?? '')} (${reason})`
      : `${host} denied ${subjectOf(argv)} (${reason})${said === null ? '' : `: ${said}`}`
  return { what, cause, next: [...hint, ...next] }
}

/** Why this side closes a link to `host`, and how to change that. `named` is the agent in a command. */
export const rejectionText = (decision: string, host: string, named: string, machineId: string): { what: string; next: string } => {
  const agent = shellWord(named)
  switch (decision) {
    case 'reject_blocked':
      return { what: `${host} is blocked in your contacts (${decision})`, next: `Try: x0x contacts trust ${agent} trusted` }
    case 'reject_machine_mismatch':
      return {
        what: `${host} is pinned to another machine in your contacts (${decision})`,
        next: `Try: x0x contacts pin ${agent} ${shellWord(machineId)}   (if you know that machine)`,
      }
    default:
      return {
        what: `${host} is rejected by your contacts (${decision})`,
        next: `Try: x0x trust evaluate ${agent} ${shellWord(machineId)}`,
      }
  }
}

/** An address that was tried, as an error has it. */
export interface Tried {
  readonly address?: unknown
  readonly reason?: unknown
  readonly error?: unknown
}

const CAUSES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to its network',
  ETIMEDOUT: 'no answer in time',
}

/** `127.0.0.1:5483` for a simple multiaddr; others unchanged. */
const placeOf = (address: string): string => {
  const [, kind, host = '', transport, port = ''] = address.split('/')
  if (transport !== 'tcp' || address.includes('/p2p-circuit')) return address
  return kind === 'ip6' ? `[${host}]:${port}` : `${host}:${port}`
}

/** `127.0.0.1:5483: connection refused` */
export const triedText = (tried: unknown): string => {
  if (typeof tried === 'string') return tried
  const { address, reason, error } = (tried ?? {}) as Tried
  const why = typeof reason === 'string' ? reason : error
  if (typeof why !== 'string') return placeOf(String(address))
  return `${placeOf(String(address))}: ${CAUSES[/\bE[A-Z]{5,}\b/.exec(why)?.[0] ?? ''] ?? why}`
}
